// The product of a tile: 64 rows times 64 outputs by 256 threads, four by four sums each. Every (row, output) is one
// chain of multiply-adds over the inputs, from the first to the last, so no tile, batch or grid changes a bit of it.
#pragma once
#include "maths.cuh"

const u32 TILE_ROWS = 64;
const u32 TILE_OUTPUTS = 64;
const u32 TILE_INPUTS = 16;
const u32 TILE_THREADS = 256;
// Lengths of the shared rows; one more than a power of two spreads them over the banks.
const u32 TILE_STRIDE = 65;

// What follows the sum: y = activation(sum + bias) + residual.
struct Finish {
    const float* bias;
    const float* residual;
    u32 function;
    u32 flags; // 1: there is a bias, 2: there is a residual

    DEVICE_METHOD float of(float sum, u64 at, u32 output) const {
        float v = sum;
        if (flags & 1u) v = v + bias[output];
        v = apply(function, v);
        if (flags & 2u) v = v + residual[at];
        return v;
    }
};

// Weights say what input k counts for an output, and what a row's number becomes before it is multiplied.
struct Floats {
    const float* weights; // [outputs][inputs]
    u32 inputs;

    DEVICE_METHOD float at(u32 output, u32 k) const { return weights[(u64)output * inputs + k]; }
    DEVICE_METHOD float factor(float x) const { return x; }
};

// Where the weights are halves, so are the rows, and their products are exact.
struct Halves {
    const bf16* weights; // [outputs][inputs]
    u32 inputs;

    DEVICE_METHOD float at(u32 output, u32 k) const { return wide(weights[(u64)output * inputs + k]); }
    DEVICE_METHOD float factor(float x) const {
        bf16 rounded;
        narrow(x, &rounded);
        return wide(rounded);
    }
};

// Signed bytes in blocks of 32 inputs, times a scale and less a minimum.
struct Blocks {
    const u8* bytes;    // [outputs][blocks][32]
    const float* steps; // [outputs][blocks][2]
    u32 blocks;

    DEVICE_METHOD float at(u32 output, u32 k) const {
        u64 block = (u64)output * blocks + k / 32;
        float quant = (float)(signed char)bytes[block * 32 + k % 32];
        return fmaf(quant, steps[block * 2], -steps[block * 2 + 1]);
    }
    DEVICE_METHOD float factor(float x) const { return x; }
};

// y[row][output] for the tile of block (blockIdx.x: rows, blockIdx.y: outputs). `Rows` gives input k of a row.
template <class Weights, class Rows>
DEVICE void multiply(const Rows& rows, u64 count, const Weights& weights, u32 outputs, u32 inputs, const Finish& finish, float* y) {
    SHARED(float, left, TILE_INPUTS * TILE_STRIDE);
    SHARED(float, right, TILE_INPUTS * TILE_STRIDE);
    u64 top = (u64)blockIdx.x * TILE_ROWS;
    u32 first = blockIdx.y * TILE_OUTPUTS;
    u32 across = threadIdx.x % 16, down = threadIdx.x / 16;
    float sums[4][4] = {};
    for (u32 start = 0; start < inputs; start += TILE_INPUTS) {
        // Sixteen threads read sixteen inputs of one row.
        for (u32 i = down; i < TILE_ROWS; i += 16) {
            u32 k = start + across;
            bool held = k < inputs;
            left[across * TILE_STRIDE + i] = held && top + i < count ? weights.factor(rows.at(top + i, k)) : 0.0f;
            right[across * TILE_STRIDE + i] = held && first + i < outputs ? weights.at(first + i, k) : 0.0f;
        }
        __syncthreads();
        u32 depth = inputs - start < TILE_INPUTS ? inputs - start : TILE_INPUTS;
        for (u32 k = 0; k < depth; k++) {
            for (u32 r = 0; r < 4; r++) {
                float x = left[k * TILE_STRIDE + down + 16 * r];
                for (u32 n = 0; n < 4; n++) sums[r][n] = fmaf(x, right[k * TILE_STRIDE + across + 16 * n], sums[r][n]);
            }
        }
        __syncthreads(); // the tiles may be written again
    }
    for (u32 r = 0; r < 4; r++) {
        u64 row = top + down + 16 * r;
        if (row >= count) continue;
        for (u32 n = 0; n < 4; n++) {
            u32 output = first + across + 16 * n;
            u64 at = row * outputs + output;
            if (output < outputs) y[at] = finish.of(sums[r][n], at, output);
        }
    }
}
