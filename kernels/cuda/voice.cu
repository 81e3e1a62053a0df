// What a voice is made of: noise by its place, and the spectrum.
#include "maths.cuh"

const u32 ROUNDS = 10;

// One round of Philox4x32 (Salmon et al. 2011).
DEVICE void round_of(u32* counter, u32 low, u32 high) {
    u64 first = (u64)counter[0] * 0xD2511F53u, second = (u64)counter[2] * 0xCD9E8D57u;
    u32 one = counter[1], three = counter[3];
    counter[0] = (u32)(second >> 32) ^ one ^ low;
    counter[1] = (u32)second;
    counter[2] = (u32)(first >> 32) ^ three ^ high;
    counter[3] = (u32)first;
}

// out[0] and, if there is room, out[1]: two independent normal numbers of two random words.
DEVICE void gaussian(u32 a, u32 b, float* out, u64 room) {
    const float unit = 1.0f / 16777216.0f;
    float square = log_of(((float)(a >> 8) + 0.5f) * unit) * -2.0f;
    // A logarithm that is rounded may end just beyond zero.
    float radius = sqrtf(square < 0.0f ? 0.0f : square);
    Turn turn = turn_of((float)(b >> 8) * unit * 6.28318531f);
    if (room > 0) out[0] = radius * turn.cos;
    if (room > 1) out[1] = radius * turn.sin;
}

// Four normal numbers a thread: count counters, fours to a row that is width wide.
KERNEL(256) normal(float* out, u64 count, u64 width, u64 fours, u32 first_row, u32 stream, u32 low, u32 high) {
    u64 i = global_thread();
    if (i >= count) return;
    u64 row = i / fours, at = i % fours * 4;
    u32 counter[4] = {(u32)(i % fours), first_row + (u32)row, stream, 0};
    for (u32 round = 0; round < ROUNDS; round++) {
        round_of(counter, low, high);
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    float* to = out + row * width + at;
    u64 room = width - at;
    gaussian(counter[0], counter[1], to, room);
    if (room > 2) gaussian(counter[2], counter[3], to + 2, room - 2);
}

DEVICE float gain_of(float log, float most) { return exp_of(most < log ? most : log); }

// exp(lh) e^(i pi tanh(theta)) source + exp(ln) noise + exp(lr) e^(i phi): one bin a thread. head is [frame][5][bin], the
// spectra are [frame][bin][2]; flags says whether there is noise.
KERNEL(256) voice_spectrum(const float* head, const float* source, const float* noise, float* out, u64 count, u64 bins, float most, u32 flags) {
    u64 i = global_thread();
    if (i >= count) return;
    const float* part = head + i / bins * 5 * bins + i % bins;
    float re = source[2 * i], im = source[2 * i + 1];
    float gain = gain_of(part[0], most);
    Turn turn = turn_of(tanh_of(part[bins]) * 3.14159265f);
    float s = gain * turn.sin, c = gain * turn.cos;
    float to_re = re * c - im * s, to_im = fmaf(re, s, im * c);
    if (flags & 1u) {
        gain = gain_of(part[2 * bins], most);
        to_re = fmaf(gain, noise[2 * i], to_re);
        to_im = fmaf(gain, noise[2 * i + 1], to_im);
    }
    gain = gain_of(part[3 * bins], most);
    turn = turn_of(part[4 * bins]);
    out[2 * i] = fmaf(gain, turn.cos, to_re);
    out[2 * i + 1] = fmaf(gain, turn.sin, to_im);
}
