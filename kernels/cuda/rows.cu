// Rows and columns gathered, joined and turned.
#include "machine.cuh"

template <class T> DEVICE void gather(const T* table, const u32* ids, float* out, u64 count, u64 width) {
    u64 i = global_thread();
    if (i < count) out[i] = wide(table[(u64)ids[i / width] * width + i % width]);
}

// out[i] = table[ids[i]], rows of width elements.
KERNEL(256) gather_f32(const float* table, const u32* ids, float* out, u64 count, u64 width) {
    gather(table, ids, out, count, width);
}

KERNEL(256) gather_bf16(const bf16* table, const u32* ids, float* out, u64 count, u64 width) {
    gather(table, ids, out, count, width);
}

// Copies columns: width of each row of x, from column from on, to column to of out. Strides are rows' lengths.
KERNEL(256) copy_columns(const float* x, float* out, u64 count, u64 width, u64 stride, u64 from, u64 out_stride, u64 to) {
    u64 i = global_thread();
    if (i >= count) return;
    u64 row = i / width, column = i % width;
    out[row * out_stride + to + column] = x[row * stride + from + column];
}

const u32 TILE = 32;

// out[j][i] = x[i][j], in tiles that are read and written row by row. 256 threads.
KERNEL(256) transpose(const float* x, float* out, u32 height, u32 width) {
    SHARED(float, tile, TILE * (TILE + 1));
    u32 across = (width + TILE - 1) / TILE;
    u32 top = blockIdx.x / across * TILE, left = blockIdx.x % across * TILE;
    u32 lane = threadIdx.x % TILE;
    for (u32 i = threadIdx.x / TILE; i < TILE; i += 256 / TILE) {
        if (top + i < height && left + lane < width) tile[i * (TILE + 1) + lane] = x[(u64)(top + i) * width + left + lane];
    }
    __syncthreads();
    for (u32 i = threadIdx.x / TILE; i < TILE; i += 256 / TILE) {
        if (left + i < width && top + lane < height) out[(u64)(left + i) * height + top + lane] = tile[lane * (TILE + 1) + i];
    }
}
