// Convolution over time of rows of channels: the dense ones as matrix products whose rows are gathered while they are
// multiplied, the depthwise ones directly. A transposed one is a dense one with more outputs.
#include "tile.cuh"

// Output row `row` under tap `tap` sees input row row * stride + tap * dilation - before. Inputs are [tap][channel].
struct TapRows {
    const float* x;
    u32 rows, channels, stride, dilation, before;

    DEVICE_METHOD float at(u64 row, u32 k) const {
        u64 source = row * stride + (u64)(k / channels) * dilation - before;
        // Before the start it wraps around and lies beyond the end.
        return source < rows ? x[source * channels + k % channels] : 0.0f;
    }
};

KERNEL(TILE_THREADS) conv1d_f32(const float* x, const float* weight, const float*, const float* bias, const float* residual,
                                float* y, u64 outs, u32 rows, u32 channels, u32 taps, u32 stride, u32 dilation, u32 before,
                                u32 outputs, u32 function, u32 flags) {
    TapRows source{x, rows, channels, stride, dilation, before};
    u32 inputs = taps * channels;
    multiply(source, outs, Floats{weight, inputs}, outputs, inputs, Finish{bias, residual, function, flags}, y);
}

KERNEL(TILE_THREADS) conv1d_bf16(const float* x, const bf16* weight, const float*, const float* bias, const float* residual,
                                 float* y, u64 outs, u32 rows, u32 channels, u32 taps, u32 stride, u32 dilation, u32 before,
                                 u32 outputs, u32 function, u32 flags) {
    TapRows source{x, rows, channels, stride, dilation, before};
    u32 inputs = taps * channels;
    multiply(source, outs, Halves{weight, inputs}, outputs, inputs, Finish{bias, residual, function, flags}, y);
}

KERNEL(TILE_THREADS) conv1d_blocks(const float* x, const u8* weight, const float* steps, const float* bias, const float* residual,
                                   float* y, u64 outs, u32 rows, u32 channels, u32 taps, u32 stride, u32 dilation, u32 before,
                                   u32 outputs, u32 function, u32 flags) {
    TapRows source{x, rows, channels, stride, dilation, before};
    u32 inputs = taps * channels;
    Blocks blocks{weight, steps, (inputs + 31) / 32};
    multiply(source, outs, blocks, outputs, inputs, Finish{bias, residual, function, flags}, y);
}

// Every channel on its own; weight is [tap][channel].
KERNEL(256) depthwise_conv1d(const float* x, const float* weight, const float* bias, float* y, u64 count, u32 rows,
                             u32 channels, u32 taps, u32 stride, u32 dilation, u32 before, u32 flags) {
    u64 i = global_thread();
    if (i >= count) return;
    u32 channel = (u32)(i % channels);
    u64 row = i / channels;
    float sum = flags & 1u ? bias[channel] : 0.0f;
    for (u32 tap = 0; tap < taps; tap++) {
        u64 source = row * stride + (u64)tap * dilation - before;
        if (source < rows) sum = fmaf(weight[(u64)tap * channels + channel], x[source * channels + channel], sum);
    }
    y[i] = sum;
}
