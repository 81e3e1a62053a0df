// Linear layers without a library: any shape, exact order. cuBLASLt takes over where it is there.
#include "tile.cuh"

struct PlainRows {
    const float* x;
    u32 inputs;

    DEVICE_METHOD float at(u64 row, u32 k) const { return x[row * inputs + k]; }
};

// y = activation(x W^T + bias) + residual; x [rows][inputs]. For weights and steps see tile.cuh.
KERNEL(TILE_THREADS) linear_f32(const float* x, const float* weight, const float*, const float* bias, const float* residual,
                                float* y, u64 rows, u32 inputs, u32 outputs, u32 function, u32 flags) {
    multiply(PlainRows{x, inputs}, rows, Floats{weight, inputs}, outputs, inputs, Finish{bias, residual, function, flags}, y);
}

KERNEL(TILE_THREADS) linear_bf16(const float* x, const bf16* weight, const float*, const float* bias, const float* residual,
                                 float* y, u64 rows, u32 inputs, u32 outputs, u32 function, u32 flags) {
    multiply(PlainRows{x, inputs}, rows, Halves{weight, inputs}, outputs, inputs, Finish{bias, residual, function, flags}, y);
}

KERNEL(TILE_THREADS) linear_blocks(const float* x, const u8* weight, const float* steps, const float* bias, const float* residual,
                                   float* y, u64 rows, u32 inputs, u32 outputs, u32 function, u32 flags) {
    Blocks blocks{weight, steps, (inputs + 31) / 32};
    multiply(PlainRows{x, inputs}, rows, blocks, outputs, inputs, Finish{bias, residual, function, flags}, y);
}
