// Normalisation. Of rows: one block per row. Of groups of channels over all rows of a sample: in pieces of fixed height,
// whose sums are added in their order.
#include "maths.cuh"
#include "reduce.cuh"

const u32 MOST = 1024;

// x / sqrt(mean(x^2) + eps) * (plus + weight).
KERNEL(MOST) rms_norm(const float* x, const float* weight, float* out, u32 width, float eps, float plus) {
    const float* row = x + (u64)blockIdx.x * width;
    float squares = 0.0f;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) squares = fmaf(row[i], row[i], squares);
    float inverse = 1.0f / sqrtf(block_sum(squares) / (float)width + eps);
    float* to = out + (u64)blockIdx.x * width;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) to[i] = row[i] * inverse * (plus + weight[i]);
}

// (x - mean) / sqrt(variance + eps), times the weight (flag 1), plus the bias (flag 2).
KERNEL(MOST) layer_norm(const float* x, const float* weight, const float* bias, float* out, u32 width, float eps, u32 flags) {
    const float* row = x + (u64)blockIdx.x * width;
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) sum = sum + row[i];
    float mean = block_sum(sum) / (float)width;
    float squares = 0.0f;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) squares = fmaf(row[i] - mean, row[i] - mean, squares);
    float inverse = 1.0f / sqrtf(block_sum(squares) / (float)width + eps);
    float* to = out + (u64)blockIdx.x * width;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
        float v = (row[i] - mean) * inverse;
        if (flags & 1u) v = v * weight[i];
        if (flags & 2u) v = v + bias[i];
        to[i] = v;
    }
}

// Rows of one piece of a group norm.
const u32 PIECE = 256;

// parts[group][piece] = the sum of x over the group's channels and the piece's rows or, with means, of the squares of
// what is left when the group's mean is taken away. A block per piece and group.
KERNEL(256) group_parts(const float* x, const float* means, float* parts, u32 rows, u32 channels, u32 groups, u32 squared) {
    u32 piece = blockIdx.x, group = blockIdx.y, width = channels / groups;
    u32 first = piece * PIECE, height = rows - first < PIECE ? rows - first : PIECE;
    float mean = squared ? means[group] : 0.0f, sum = 0.0f;
    for (u32 i = threadIdx.x; i < height * width; i += blockDim.x) {
        float v = x[(u64)(first + i / width) * channels + group * width + i % width] - mean;
        sum = squared ? fmaf(v, v, sum) : sum + v;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[group * gridDim.x + piece] = sum;
}

// means[group] = the sum of its parts / count. A thread per group.
KERNEL(256) group_mean(const float* parts, float* means, u32 pieces, u32 groups, float count) {
    u32 group = (u32)global_thread();
    if (group >= groups) return;
    float sum = 0.0f;
    for (u32 piece = 0; piece < pieces; piece++) sum = sum + parts[group * pieces + piece];
    means[group] = sum / count;
}

// activation((x - mean) / sqrt(variance + eps) * weight + bias), channel by channel.
KERNEL(256) group_apply(const float* x, const float* means, const float* variances, const float* weight, const float* bias,
                        float* out, u64 count, u32 channels, u32 groups, float eps, u32 function) {
    u64 i = global_thread();
    if (i >= count) return;
    u32 channel = (u32)(i % channels), group = channel / (channels / groups);
    float inverse = 1.0f / sqrtf(variances[group] + eps);
    out[i] = apply(function, fmaf((x[i] - means[group]) * inverse, weight[channel], bias[channel]));
}
