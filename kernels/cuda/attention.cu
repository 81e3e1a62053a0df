// Attention over paged keys and values, for decode and prefill alike.
//
// A sequence's keys are cut in parts of 256 by their positions. Within a part a query's scores are chains over the
// width, their exponentials stand under the part's own maximum, and the output is one chain over the keys; parts are
// merged first to last. A block either walks through the parts (many queries: prefill) or computes one of them and
// leaves it to attention_merge (few: decode). Both merge by the same function, so the choice does not show in a bit.
#include "maths.cuh"
#include "reduce.cuh"

const u32 PAGE = 16;
const u32 PART = 256;
const u32 LINES = 8;  // queries times heads of one block
const u32 WIDEST = 256; // elements of a head

// A block's task as it lies in memory, the launch's `tasks` array of eight numbers each.
struct Task {
    u32 first_row; // of the part of the batch
    u32 rows;
    u32 keys;      // of the sequence
    u32 table;     // where its pages start in `tables`
    u32 reach;     // 0 full, 1 causal, 2 a window, 3 blocks
    u32 size;      // of the window, or of a block
    u32 first_line;
    u32 lines;
};

// The keys that a line sees, and where its query lies.
struct Line {
    u32 start, end;
    u64 at;
};

// What is known of a query after some parts: the greatest score, the sum of exponentials under it.
struct Seen {
    float most, sum;
};

// Factors that bring an old and a new part under their common maximum. A part without keys changes nothing.
DEVICE void merge(Seen& seen, Seen part, float* keep, float* take) {
    *keep = 1.0f;
    *take = 0.0f;
    if (part.sum == 0.0f) return;
    float most = larger(seen.most, part.most);
    *keep = seen.sum == 0.0f ? 0.0f : exp_of(seen.most - most);
    *take = exp_of(part.most - most);
    seen.sum = fmaf(seen.sum, *keep, part.sum * *take);
    seen.most = most;
}

// Whether a part that takes nothing is merged or left out must not show, in the sign of a zero either.
DEVICE float merged(float old, float part, float keep, float take) {
    return take == 0.0f ? old : fmaf(old, keep, part * take);
}

DEVICE Line line_of(const Task& task, u32 line, u32 head, u32 heads, u32 group, u32 width) {
    u32 turn = (task.first_line + line) / group, row = task.first_row + turn;
    Line found;
    found.at = ((u64)row * heads + head * group + (task.first_line + line) % group) * width;
    u32 own = task.keys - (task.rows < task.keys ? task.rows : task.keys) + turn + 1;
    found.end = task.reach == 0 ? task.keys : own;
    if (task.reach == 3) {
        u64 end = ((u64)own + task.size - 1) / task.size * task.size;
        found.end = end < task.keys ? (u32)end : task.keys;
    }
    found.start = task.reach == 2 && own > task.size ? own - task.size : 0;
    return found;
}

// Scores of the part's keys for every line: a thread per key. Unseen keys score minus infinity.
template <class T>
DEVICE void part_scores(const T* keys, const u32* table, u32 part, const Line* lines, u32 count, const float* queries, u32 kv_heads,
                        u32 head, u32 width, u32 used, float factor, float* scores) {
    u32 key = part * PART + threadIdx.x;
    float sums[LINES] = {};
    if (key < used) {
        const T* run = keys + ((u64)table[key / PAGE] * kv_heads + head) * width * PAGE + key % PAGE;
        for (u32 i = 0; i < width; i++) {
            float k = wide(run[i * PAGE]);
            for (u32 r = 0; r < LINES; r++) sums[r] = fmaf(queries[r * width + i], k, sums[r]);
        }
    }
    for (u32 r = 0; r < count; r++) {
        bool sees = key >= lines[r].start && key < lines[r].end;
        scores[r * PART + threadIdx.x] = sees ? sums[r] * factor : -INFINITE;
    }
}

// A warp per line turns its scores into exponentials.
DEVICE Seen exponentials(float* scores) {
    u32 lane = threadIdx.x % WARP;
    float most = -INFINITE;
    for (u32 i = lane; i < PART; i += WARP) most = larger(most, scores[i]);
    most = warp_max(most);
    float sum = 0.0f;
    for (u32 i = lane; i < PART; i += WARP) {
        float e = most == -INFINITE ? 0.0f : exp_of(scores[i] - most);
        scores[i] = e;
        sum = sum + e;
    }
    return Seen{most, warp_sum(sum)};
}

// The thread's elements: element `element` of the lines group, group + step, ..
struct Share {
    u32 element, group, step;
};

DEVICE Share share_of(u32 width) {
    u32 span = width <= 32 ? 32 : width <= 64 ? 64 : width <= 128 ? 128 : 256;
    return Share{threadIdx.x % span, threadIdx.x / span, PART / span};
}

// The part's output of the thread's element of each of its lines: a chain over the keys that the line sees.
template <class T>
DEVICE void part_outputs(const T* values, const u32* table, u32 part, const Line* lines, u32 count, u32 kv_heads, u32 head,
                         u32 padded, u32 used, const float* scores, Share share, float* sums) {
    u32 first = part * PART, end = first + PART < used ? first + PART : used;
    for (u32 s = 0; s < LINES; s++) sums[s] = 0.0f;
    for (u32 key = first; key < end; key++) {
        float v = wide(values[(((u64)table[key / PAGE] * kv_heads + head) * PAGE + key % PAGE) * padded + share.element]);
        for (u32 s = 0; s < LINES; s++) {
            u32 r = share.group + s * share.step;
            if (r < count && key >= lines[r].start && key < lines[r].end) sums[s] = fmaf(scores[r * PART + key - first], v, sums[s]);
        }
    }
}

// split 0: a block (task, head) writes its lines to out. split n: a block (task, head, part), of n parts, writes its
// part's outputs to `parts`, [row][head][part][width], and its sums to `sums`, [row][head][part][2].
template <class T>
DEVICE void attend(const float* q, const T* keys, const T* values, const u32* tables, const u32* tasks, float* out, float* parts,
                   float* part_sums, u32 heads, u32 kv_heads, u32 width, u32 padded, u32 split, float factor) {
    SHARED(float, queries, LINES * WIDEST);
    SHARED(float, scores, LINES * PART);
    SHARED(Line, lines, LINES);
    SHARED(Seen, now, LINES);
    const u32* words = tasks + blockIdx.x * 8;
    Task task{words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7]};
    u32 head = blockIdx.y, group = heads / kv_heads, count = task.lines;
    const u32* table = tables + task.table;
    if (threadIdx.x < count) lines[threadIdx.x] = line_of(task, threadIdx.x, head, heads, group, width);
    __syncthreads();
    for (u32 i = threadIdx.x; i < LINES * width; i += PART) queries[i] = i / width < count ? q[lines[i / width].at + i % width] : 0.0f;
    // The lines' keys, all together. Lines ascend, so the last sees the furthest and the first the earliest.
    u32 used = lines[count - 1].end, first = lines[0].start / PART, end = (used + PART - 1) / PART;
    if (split > 0) {
        first = first > blockIdx.z ? first : blockIdx.z;
        end = end < blockIdx.z + 1 ? end : blockIdx.z + 1;
    }
    __syncthreads();
    Share share = share_of(width);
    bool writes = share.element < width;
    Seen seen[LINES];
    float held[LINES] = {}, sums[LINES];
    for (u32 s = 0; s < LINES; s++) seen[s] = Seen{-INFINITE, 0.0f};
    for (u32 part = first; part < end; part++) {
        part_scores(keys, table, part, lines, count, queries, kv_heads, head, width, used, factor, scores);
        __syncthreads();
        u32 warp = threadIdx.x / WARP;
        if (warp < count) {
            Seen found = exponentials(scores + warp * PART);
            if (threadIdx.x % WARP == 0) now[warp] = found;
        }
        __syncthreads();
        if (writes) part_outputs(values, table, part, lines, count, kv_heads, head, padded, used, scores, share, sums);
        for (u32 s = 0; s < LINES; s++) {
            u32 r = share.group + s * share.step;
            if (r >= count || !writes) continue;
            float keep, take;
            merge(seen[s], now[r], &keep, &take);
            held[s] = split > 0 ? sums[s] : merged(held[s], sums[s], keep, take);
        }
        __syncthreads(); // scores and sums may be written again
    }
    for (u32 s = 0; s < LINES; s++) {
        u32 r = share.group + s * share.step;
        if (r >= count || !writes) continue;
        if (split == 0) {
            out[lines[r].at + share.element] = seen[s].sum == 0.0f ? 0.0f : held[s] * (1.0f / seen[s].sum);
            continue;
        }
        u64 place = lines[r].at / width * split + blockIdx.z;
        parts[place * width + share.element] = held[s];
        if (share.element == 0) {
            part_sums[place * 2] = first < end ? now[r].most : -INFINITE;
            part_sums[place * 2 + 1] = first < end ? now[r].sum : 0.0f;
        }
    }
}

KERNEL(PART) attention_f32(const float* q, const float* keys, const float* values, const u32* tables, const u32* tasks, float* out,
                           float* parts, float* sums, u32 heads, u32 kv_heads, u32 width, u32 padded, u32 split, float factor) {
    attend(q, keys, values, tables, tasks, out, parts, sums, heads, kv_heads, width, padded, split, factor);
}

KERNEL(PART) attention_bf16(const float* q, const bf16* keys, const bf16* values, const u32* tables, const u32* tasks, float* out,
                            float* parts, float* sums, u32 heads, u32 kv_heads, u32 width, u32 padded, u32 split, float factor) {
    attend(q, keys, values, tables, tasks, out, parts, sums, heads, kv_heads, width, padded, split, factor);
}

// Merges the parts of the rows and heads that the tasks name: a block per (task, line).
KERNEL(PART) attention_merge(const float* parts, const float* sums, const u32* tasks, float* out, u32 heads, u32 kv_heads, u32 width,
                             u32 split) {
    const u32* words = tasks + blockIdx.x * 8;
    Task task{words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7]};
    if (blockIdx.z >= task.lines || threadIdx.x >= width) return;
    Line line = line_of(task, blockIdx.z, blockIdx.y, heads, heads / kv_heads, width);
    Seen seen{-INFINITE, 0.0f};
    float held = 0.0f;
    for (u32 part = 0; part < split; part++) {
        u64 place = line.at / width * split + part;
        float keep, take;
        merge(seen, Seen{sums[place * 2], sums[place * 2 + 1]}, &keep, &take);
        held = merged(held, parts[place * width + threadIdx.x], keep, take);
    }
    out[line.at + threadIdx.x] = seen.sum == 0.0f ? 0.0f : held * (1.0f / seen.sum);
}
