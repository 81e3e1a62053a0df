// Functions that must round alike on the device and on the host: made of additions, products and fmaf only, with the
// polynomials of the CPU tiers where those have one.
#pragma once
#include "machine.cuh"

// e^x to about 1e-7, relative.
DEVICE float exp_of(float x) {
    const float low = -86.6f, high = 88.72284f;
    float held = x < low ? low : x;
    held = held > high ? high : held;
    float n = rintf(held * 1.44269504f);
    float r = fmaf(n, -0.6933594f, held);
    r = fmaf(n, 2.1219444e-4f, r);
    float p = 1.0f / 5040.0f;
    p = fmaf(p, r, 1.0f / 720.0f);
    p = fmaf(p, r, 1.0f / 120.0f);
    p = fmaf(p, r, 1.0f / 24.0f);
    p = fmaf(p, r, 1.0f / 6.0f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    // 2^n may be one step too far for a float where the result is not. What is not a number has no power of two.
    int power = held == held ? (int)n + 126 : 127;
    float scaled = p * __uint_as_float((u32)power << 23) * 2.0f;
    if (x < low) return 0.0f;
    return x > high ? INFINITE : scaled;
}

DEVICE float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }

// The error function to 4e-7, absolutely: x p(x^2) / q(x^2) where it is not one.
DEVICE float erf_of(float x) {
    const float one = 3.925f;
    if (x > one) return 1.0f;
    if (x < -one) return -1.0f;
    float z = x * x;
    float p = 1.9748234e-6f;
    p = fmaf(p, z, 2.8804134e-4f);
    p = fmaf(p, z, 4.0036575e-3f);
    p = fmaf(p, z, 5.3467516e-2f);
    p = fmaf(p, z, 0.19624931f);
    p = fmaf(p, z, 1.12837917f);
    float q = 3.748079e-5f;
    q = fmaf(q, z, 1.2163621e-3f);
    q = fmaf(q, z, 1.5444447e-2f);
    q = fmaf(q, z, 0.11647656f);
    q = fmaf(q, z, 0.50725257f);
    q = fmaf(q, z, 1.0f);
    return x * p / q;
}

// The natural logarithm of a positive, normal number, to about 1e-7, relative to the larger of it and 1.
DEVICE float log_of(float x) {
    if (!(x > 0.0f)) return x == 0.0f ? -INFINITE : x - x + (x < 0.0f ? 0.0f * INFINITE : 0.0f);
    if (x == INFINITE) return x;
    u32 bits = __float_as_uint(x) - 0x3f3504f3u;
    float e = (float)((int)bits >> 23);
    float f = __uint_as_float((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    // ln(1 + f) = 2 artanh(s), s = f / (2 + f).
    float s = f / (2.0f + f), z = s * s;
    float p = 2.0f / 11.0f;
    p = fmaf(p, z, 2.0f / 9.0f);
    p = fmaf(p, z, 2.0f / 7.0f);
    p = fmaf(p, z, 2.0f / 5.0f);
    p = fmaf(p, z, 2.0f / 3.0f);
    p = fmaf(p, z, 2.0f);
    return fmaf(e, 0.6933594f, fmaf(e, -2.1219444e-4f, s * p));
}

// An angle's sine and cosine to about 1e-7, absolutely, for magnitudes up to ten thousand.
struct Turn {
    float sin, cos;
};

DEVICE Turn turn_of(float x) {
    float n = rintf(x * 0.636619772f);
    float r = fmaf(n, -1.5703125f, x);
    r = fmaf(n, -4.837513e-4f, r);
    r = fmaf(n, -7.54979e-8f, r);
    float z = r * r;
    float s = 2.7557319e-6f;
    s = fmaf(s, z, -1.984127e-4f);
    s = fmaf(s, z, 8.333333e-3f);
    s = fmaf(s, z, -0.16666667f);
    s = fmaf(s, z, 1.0f) * r;
    float c = 2.4801587e-5f;
    c = fmaf(c, z, -1.3888889e-3f);
    c = fmaf(c, z, 4.1666667e-2f);
    c = fmaf(c, z, -0.5f);
    c = fmaf(c, z, 1.0f);
    // Quarter turns beyond whole ones, from -2 to 2.
    float rest = fmaf(rintf(n * 0.25f), -4.0f, n);
    bool odd = rest == 1.0f || rest == -1.0f;
    Turn turn = {odd ? c : s, odd ? s : c};
    if (rest < -0.5f || rest > 1.5f) turn.sin = -turn.sin;
    if (rest > 0.5f || rest < -1.5f) turn.cos = -turn.cos;
    return turn;
}

DEVICE float sin_of(float x) { return turn_of(x).sin; }

DEVICE float sin_squared(float x) {
    float s = sin_of(x);
    return s * s;
}

DEVICE float tanh_of(float x) { return fmaf(sigmoid_of(x + x), 2.0f, -1.0f); }

DEVICE float silu_of(float x) { return x * sigmoid_of(x); }

DEVICE float gelu_erf_of(float x) { return x * 0.5f * (erf_of(x * 0.70710678f) + 1.0f); }

// 0.5 * (1 + tanh(y)) is sigmoid(2y).
DEVICE float gelu_tanh_of(float x) {
    float cubic = fmaf(x * x, 0.044715f, 1.0f);
    return x * sigmoid_of(x * cubic * 1.595769f);
}

DEVICE float relu_of(float x) { return x < 0.0f ? 0.0f : x; }

// Which function an operation applies; the numbers are those of the Rust side.
enum Function { NONE = 0, GELU_ERF = 1, GELU_TANH = 2, RELU = 3, SILU = 4, SIGMOID = 5, SINE = 6 };

DEVICE float apply(u32 function, float x) {
    switch (function) {
    case GELU_ERF: return gelu_erf_of(x);
    case GELU_TANH: return gelu_tanh_of(x);
    case RELU: return relu_of(x);
    case SILU: return silu_of(x);
    case SIGMOID: return sigmoid_of(x);
    case SINE: return sin_of(x);
    default: return x;
    }
}
