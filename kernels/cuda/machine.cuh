// What kernels use of the machine they run on. Under NVRTC it is CUDA; under a C++ compiler it is the host shim, which
// runs the same source without a GPU (see shim/shim.hpp). Nothing here needs a header of the CUDA toolkit.
//
// Kernels are compiled without contraction: a fused multiply-add stands in the source as fmaf or not at all, so the
// device, the shim and a reading of the source agree on every rounding.
#pragma once

#ifdef __CUDACC_RTC__
#define DEVICE static __device__ __forceinline__
#define DEVICE_METHOD __device__ __forceinline__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define SHARED(type, name, count) __shared__ type name[count]
#define INFINITE __int_as_float(0x7f800000)
#else
#include "shim/shim.hpp"
#endif

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// The upper half of a float.
struct bf16 {
    unsigned short bits;
};

DEVICE float wide(float x) { return x; }

DEVICE float wide(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

// Rounds to the nearest, ties to even; keeps what is not a number.
DEVICE void narrow(float x, bf16* out) {
    u32 bits = __float_as_uint(x);
    bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    u32 rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    out->bits = (unsigned short)(nan ? (bits >> 16) | 0x40u : rounded >> 16);
}

DEVICE void narrow(float x, float* out) { *out = x; }

// This thread's place among all threads of the grid.
DEVICE u64 global_thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
