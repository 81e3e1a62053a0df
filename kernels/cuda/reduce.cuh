// Sums and maxima over the threads of a block. The tree depends on the block's size alone, and that on the row's width
// alone, so a row's bits do not depend on its batch. Every thread gets the result.
#pragma once
#include "machine.cuh"

const u32 WARP = 32;
const u32 WHOLE_WARP = 0xffffffffu;

DEVICE float warp_sum(float v) {
    for (u32 step = WARP / 2; step > 0; step /= 2) v = v + __shfl_xor_sync(WHOLE_WARP, v, step);
    return v;
}

DEVICE float larger(float a, float b) { return a > b ? a : b; }

DEVICE float warp_max(float v) {
    for (u32 step = WARP / 2; step > 0; step /= 2) v = larger(v, __shfl_xor_sync(WHOLE_WARP, v, step));
    return v;
}

DEVICE float block_sum(float v) {
    SHARED(float, parts, WARP);
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    v = warp_sum(v);
    if (lane == 0) parts[warp] = v;
    __syncthreads();
    v = warp_sum(lane < blockDim.x / WARP ? parts[lane] : 0.0f);
    __syncthreads(); // parts may be written again
    return v;
}

DEVICE float block_max(float v) {
    SHARED(float, parts, WARP);
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    v = warp_max(v);
    if (lane == 0) parts[warp] = v;
    __syncthreads();
    v = warp_max(lane < blockDim.x / WARP ? parts[lane] : -INFINITE);
    __syncthreads(); // parts may be written again
    return v;
}
