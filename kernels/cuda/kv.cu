// Keys and values of new tokens into their pages: keys [head][element][token of 16], values [head][token of 16][padded].
#include "machine.cuh"

const u32 PAGE = 16;

template <class T>
DEVICE void append(const float* k, const float* v, T* keys, T* values, const u32* slots, u64 count, u32 heads, u32 width, u32 padded) {
    u64 i = global_thread();
    if (i >= count) return;
    u32 element = (u32)(i % width), head = (u32)(i / width % heads);
    const u32* slot = slots + i / width / heads * 3; // row, page, token
    u64 from = ((u64)slot[0] * heads + head) * width + element;
    u64 run = (u64)slot[1] * heads + head;
    narrow(k[from], keys + (run * width + element) * PAGE + slot[2]);
    narrow(v[from], values + (run * PAGE + slot[2]) * padded + element);
}

KERNEL(256) kv_append_f32(const float* k, const float* v, float* keys, float* values, const u32* slots, u64 count, u32 heads,
                          u32 width, u32 padded) {
    append(k, v, keys, values, slots, count, heads, width, padded);
}

KERNEL(256) kv_append_bf16(const float* k, const float* v, bf16* keys, bf16* values, const u32* slots, u64 count, u32 heads,
                           u32 width, u32 padded) {
    append(k, v, keys, values, slots, count, heads, width, padded);
}
