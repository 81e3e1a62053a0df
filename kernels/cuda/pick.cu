// The greatest entries of rows: one block per row. Of equal entries the first counts; what is not a number never does.
#include "reduce.cuh"

const u32 THREADS = 256;

// An entry and its place.
struct Entry {
    float value;
    u32 place;
};

// Says whether a comes before b in falling order.
DEVICE bool before(Entry a, Entry b) { return a.value > b.value || (a.value == b.value && a.place < b.place); }

DEVICE Entry first_of_warp(Entry own) {
    for (u32 step = WARP / 2; step > 0; step /= 2) {
        Entry other{__shfl_xor_sync(WHOLE_WARP, own.value, step), __shfl_xor_sync(WHOLE_WARP, own.place, step)};
        if (before(other, own)) own = other;
    }
    return own;
}

// The first of the block's entries, for every thread.
DEVICE Entry first_of_block(Entry own) {
    SHARED(Entry, parts, THREADS / WARP);
    own = first_of_warp(own);
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = own;
    __syncthreads();
    Entry best = parts[0];
    for (u32 i = 1; i < THREADS / WARP; i++) best = before(parts[i], best) ? parts[i] : best;
    __syncthreads(); // parts may be written again
    return best;
}

// places, values: [rows][k]. Each turn finds the first entry behind the one found before.
KERNEL(THREADS) top_k(const float* x, float* values, u32* places, u32 width, u32 k) {
    const float* row = x + (u64)blockIdx.x * width;
    Entry last{INFINITE, 0};
    for (u32 turn = 0; turn < k; turn++) {
        Entry own{-INFINITE, 0xffffffffu};
        for (u32 i = threadIdx.x; i < width; i += THREADS) {
            float value = row[i];
            Entry entry{value == value ? value : -INFINITE, i};
            bool open = turn == 0 || before(last, entry);
            if (open && before(entry, own)) own = entry;
        }
        last = first_of_block(own);
        if (threadIdx.x == 0) {
            values[(u64)blockIdx.x * k + turn] = row[last.place];
            places[(u64)blockIdx.x * k + turn] = last.place;
        }
    }
}
