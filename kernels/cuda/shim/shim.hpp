// CUDA's threads without a GPU: every thread of a block is a fiber of one OS thread, so the C++ compiler can compile
// kernels and tests can run them on small shapes.
//
// A fiber runs until it meets a barrier or a shuffle; then the next one runs, in an order that the launch chooses. A
// kernel that lacks a barrier gives other results under some order. A barrier that not all threads of the block (or of
// the warp) reach is an error, as are shuffles of part of a warp. Shared memory starts as what is not a number.
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct dim3 {
    unsigned x, y, z;
};

namespace shim {

// What a fiber sees of its place, and how it waits.
struct Thread {
    dim3 thread, block, block_size, grid;
};

extern thread_local Thread here;

// Waits for all threads of the block, or of the warp.
void block_barrier();
void warp_barrier();
// Lays `bits` where the warp can see it and returns what lane `lane` laid there.
uint32_t exchange(uint32_t bits, unsigned lane, unsigned mask);
// The block's shared array number `key`, of `bytes`.
void* shared(int key, size_t bytes);

inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

} // namespace shim

#define threadIdx (shim::here.thread)
#define blockIdx (shim::here.block)
#define blockDim (shim::here.block_size)
#define gridDim (shim::here.grid)
#define __syncthreads() shim::block_barrier()
#define __restrict__
#define INFINITE HUGE_VALF

#define DEVICE static inline
#define DEVICE_METHOD inline
#define KERNEL(threads) static void
#define SHARED(type, name, count) type* const name = static_cast<type*>(shim::shared(__COUNTER__, sizeof(type) * (count)))

inline uint32_t __float_as_uint(float x) { return shim::bits_of(x); }
inline float __uint_as_float(uint32_t bits) { return shim::float_of(bits); }

inline unsigned lane_of_thread() { return shim::here.thread.x % 32; }

inline float __shfl_xor_sync(unsigned mask, float v, unsigned step) {
    return shim::float_of(shim::exchange(shim::bits_of(v), lane_of_thread() ^ step, mask));
}
inline uint32_t __shfl_xor_sync(unsigned mask, uint32_t v, unsigned step) {
    return shim::exchange(v, lane_of_thread() ^ step, mask);
}
