// Around the Fourier transform, which is a linear layer whose weights are cosines and sines: frames of a signal, and
// Whisper's log-mel spectrogram.
#include "maths.cuh"
#include "reduce.cuh"

// The sample at `place` of the signal with its edges: 0 none, 1 zeros, 2 mirrored.
DEVICE float sample(const float* signal, u64 samples, u64 place, u64 side, u32 edges) {
    u64 at = place > side ? place - side : side - place;
    if (edges == 2 && at >= samples) return signal[2 * (samples - 1) - at];
    if (edges == 1 && (place < side || at >= samples)) return 0.0f;
    return signal[at];
}

// frames[frame][i] = the windowed sample i of the frame.
KERNEL(256) stft_frames(const float* signal, const float* window, float* frames, u64 count, u64 samples, u32 size, u32 hop, u32 edges) {
    u64 i = global_thread();
    if (i >= count) return;
    u64 frame = i / size, place = frame * hop + i % size;
    frames[i] = sample(signal, samples, place, edges == 0 ? 0 : size / 2, edges) * window[i % size];
}

// logs[frame][mel] = log10 of the filtered power; spectrum is [frame][bin][2], filters [mel][bin].
KERNEL(256) mel_logs(const float* spectrum, const float* filters, float* logs, u64 count, u32 bins, u32 mels) {
    u64 i = global_thread();
    if (i >= count) return;
    const float* bin = spectrum + i / mels * bins * 2;
    const float* filter = filters + i % mels * bins;
    float sum = 0.0f;
    for (u32 b = 0; b < bins; b++) {
        float power = fmaf(bin[2 * b], bin[2 * b], bin[2 * b + 1] * bin[2 * b + 1]);
        sum = fmaf(filter[b], power, sum);
    }
    logs[i] = log_of(sum < 1e-10f ? 1e-10f : sum) * 0.434294482f;
}

// greatest[block] = the greatest of the block's share of x. A maximum has no order.
KERNEL(1024) greatest(const float* x, float* most, u64 count) {
    float high = -INFINITE;
    for (u64 i = global_thread(); i < count; i += (u64)gridDim.x * blockDim.x) high = larger(high, x[i]);
    high = block_max(high);
    if (threadIdx.x == 0) most[blockIdx.x] = high;
}

// Not below the greatest minus 8, plus 4, divided by 4.
KERNEL(256) mel_floor(float* logs, const float* most, u64 count) {
    u64 i = global_thread();
    if (i >= count) return;
    float low = most[0] - 8.0f;
    logs[i] = ((logs[i] < low ? low : logs[i]) + 4.0f) / 4.0f;
}
