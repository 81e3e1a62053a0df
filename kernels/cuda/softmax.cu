// Softmax and its logarithm: one block per row.
#include "maths.cuh"
#include "reduce.cuh"

const u32 MOST = 1024;

// The row's maximum and the sum of its exponentials under it, which are left in out.
DEVICE float exponentials(const float* row, float* out, u32 width, float* most) {
    float high = -INFINITE;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) high = larger(high, row[i]);
    *most = block_max(high);
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
        float e = exp_of(row[i] - *most);
        out[i] = e;
        sum = sum + e;
    }
    return block_sum(sum);
}

KERNEL(MOST) softmax(const float* x, float* out, u32 width) {
    u64 at = (u64)blockIdx.x * width;
    float most;
    float inverse = 1.0f / exponentials(x + at, out + at, width, &most);
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) out[at + i] = out[at + i] * inverse;
}

KERNEL(MOST) log_softmax(const float* x, float* out, u32 width) {
    u64 at = (u64)blockIdx.x * width;
    float most;
    float log = log_of(exponentials(x + at, out + at, width, &most));
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) out[at + i] = x[at + i] - most - log;
}
