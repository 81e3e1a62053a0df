// Convolution of images [row][column][channel] as a matrix product whose rows are gathered while they are multiplied.
#include "tile.cuh"

// Inputs are [tap down][tap across][channel], with `taps` of them across; an image that is read at `zoom` 2 is its
// enlargement to the nearest.
struct ImageRows {
    const float* x;
    u32 height, width, channels, taps, down, across, above, left, zoom, out_width;

    DEVICE_METHOD float at(u64 place, u32 k) const {
        u32 channel = k % channels, tap = k / channels;
        // Above and left of the image they wrap around and lie beyond its ends.
        u64 row = place / out_width * down + tap / taps - above;
        u64 column = place % out_width * across + tap % taps - left;
        if (row >= (u64)height * zoom || column >= (u64)width * zoom) return 0.0f;
        return x[(row / zoom * width + column / zoom) * channels + channel];
    }
};

KERNEL(TILE_THREADS) conv2d_f32(const float* x, const float* weight, const float*, const float* bias, const float* residual,
                                float* y, u64 outs, u32 height,
                                u32 width, u32 channels, u32 taps, u32 down, u32 across, u32 above, u32 left, u32 zoom,
                                u32 out_width, u32 inputs, u32 outputs, u32 function, u32 flags) {
    ImageRows source{x, height, width, channels, taps, down, across, above, left, zoom, out_width};
    multiply(source, outs, Floats{weight, inputs}, outputs, inputs, Finish{bias, residual, function, flags}, y);
}

KERNEL(TILE_THREADS) conv2d_bf16(const float* x, const bf16* weight, const float*, const float* bias, const float* residual,
                                 float* y, u64 outs, u32 height,
                                 u32 width, u32 channels, u32 taps, u32 down, u32 across, u32 above, u32 left, u32 zoom,
                                 u32 out_width, u32 inputs, u32 outputs, u32 function, u32 flags) {
    ImageRows source{x, height, width, channels, taps, down, across, above, left, zoom, out_width};
    multiply(source, outs, Halves{weight, inputs}, outputs, inputs, Finish{bias, residual, function, flags}, y);
}

KERNEL(TILE_THREADS) conv2d_blocks(const float* x, const u8* weight, const float* steps, const float* bias, const float* residual,
                                   float* y, u64 outs, u32 height,
                                   u32 width, u32 channels, u32 taps, u32 down, u32 across, u32 above, u32 left, u32 zoom,
                                   u32 out_width, u32 inputs, u32 outputs, u32 function, u32 flags) {
    ImageRows source{x, height, width, channels, taps, down, across, above, left, zoom, out_width};
    multiply(source, outs, Blocks{weight, steps, (inputs + 31) / 32}, outputs, inputs, Finish{bias, residual, function, flags}, y);
}
