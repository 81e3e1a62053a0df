// Kernels that are wrong on purpose: the shim must say so.
#include "machine.cuh"

// Reads what a neighbour wrote, without waiting for it.
KERNEL(64) lacks_a_barrier(float* out) {
    SHARED(float, held, 64);
    held[threadIdx.x] = (float)threadIdx.x;
    out[threadIdx.x] = held[(threadIdx.x + 1) % 64];
}

KERNEL(64) barrier_of_some(float* out) {
    if (threadIdx.x < 40) __syncthreads();
    out[threadIdx.x] = 1.0f;
}

KERNEL(64) shuffle_of_some(float* out) {
    out[threadIdx.x] = threadIdx.x % 2 ? __shfl_xor_sync(0xaaaaaaaau, 1.0f, 2) : 0.0f;
}

KERNEL(64) writes_beyond(float* out) { out[threadIdx.x + 1] = 1.0f; }

KERNEL(64) shares_too_little(float* out) {
    SHARED(float, held, 60);
    held[threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = held[0];
}
