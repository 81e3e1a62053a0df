// Sums, products and functions, element by element.
#include "maths.cuh"

const u32 THREADS = 256;

// out = a + b; b has period items, one row for all when shorter than a.
KERNEL(THREADS) add(const float* a, const float* b, float* out, u64 count, u64 period) {
    u64 i = global_thread();
    if (i < count) out[i] = a[i] + b[i % period];
}

// out = a * b, with b as in add.
KERNEL(THREADS) mul(const float* a, const float* b, float* out, u64 count, u64 period) {
    u64 i = global_thread();
    if (i < count) out[i] = a[i] * b[i % period];
}

KERNEL(THREADS) scale(const float* x, float* out, u64 count, float factor) {
    u64 i = global_thread();
    if (i < count) out[i] = x[i] * factor;
}

KERNEL(THREADS) activate(const float* x, float* out, u64 count, u32 function) {
    u64 i = global_thread();
    if (i < count) out[i] = apply(function, x[i]);
}

KERNEL(THREADS) silu_mul(const float* gate, const float* up, float* out, u64 count) {
    u64 i = global_thread();
    if (i < count) out[i] = silu_of(gate[i]) * up[i];
}

// silu of the first half of each row, times the second; the halves are width wide.
KERNEL(THREADS) silu_mul_halves(const float* x, float* out, u64 count, u64 width) {
    u64 i = global_thread();
    if (i >= count) return;
    const float* gate = x + i / width * 2 * width + i % width;
    out[i] = silu_of(gate[0]) * gate[width];
}

// x + sin(alpha x)^2 / (alpha + 1e-9), one alpha per channel.
KERNEL(THREADS) snake(const float* x, const float* alpha, float* out, u64 count, u64 channels) {
    u64 i = global_thread();
    if (i >= count) return;
    float own = alpha[i % channels];
    out[i] = fmaf(sin_squared(own * x[i]), 1.0f / (own + 1e-9f), x[i]);
}

KERNEL(THREADS) to_bf16(const float* x, bf16* out, u64 count) {
    u64 i = global_thread();
    if (i < count) narrow(x[i], out + i);
}

KERNEL(THREADS) to_f32(const bf16* x, float* out, u64 count) {
    u64 i = global_thread();
    if (i < count) out[i] = wide(x[i]);
}

// Behind a matrix product: y = activation(y + bias) + residual, in place; `flags` says which of them there are.
KERNEL(THREADS) finish(float* y, const float* bias, const float* residual, u64 count, u64 outputs, u32 function, u32 flags) {
    u64 i = global_thread();
    if (i >= count) return;
    float v = y[i];
    if (flags & 1u) v = v + bias[i % outputs];
    v = apply(function, v);
    if (flags & 2u) v = v + residual[i];
    y[i] = v;
}
