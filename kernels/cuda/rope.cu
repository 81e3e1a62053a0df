// Rotary position embedding: a thread per pair, and one per element that no pair has.
#include "machine.cuh"

// x, out: [rows, heads, width]; cos, sin: [rows, pairs]. adjacent: elements 2i and 2i + 1 make a pair, otherwise i and
// i + pairs.
KERNEL(256) rope(const float* x, const float* cos, const float* sin, float* out, u64 count, u32 heads, u32 width, u32 pairs, u32 adjacent) {
    u64 thread = global_thread();
    if (thread >= count) return;
    u32 per_head = width - pairs, place = (u32)(thread % per_head);
    u64 head = thread / per_head, row = head / heads, at = head * width;
    if (place >= pairs) {
        u64 rest = at + pairs + place;
        out[rest] = x[rest];
        return;
    }
    u64 a = at + (adjacent ? 2 * place : place), b = adjacent ? a + 1 : a + pairs;
    float c = cos[row * pairs + place], s = sin[row * pairs + place];
    float left = x[a], right = x[b];
    out[a] = left * c - right * s;
    out[b] = right * c + left * s;
}
