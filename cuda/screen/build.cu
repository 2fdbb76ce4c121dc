// The tree that knn.cu searches: rows sorted along a curve, in leaves of 32, and the boxes of 32 leaves, 32 of these ...
//
//   screen_curve      a number for each row: its places among the quantiles of the columns, bits interleaved (Morton)
//   screen_histogram  digits of a tile of keys: one pass of a radix sort, 8 bits
//   screen_scan       exclusive prefix sums of the histograms, one block
//   screen_scatter    keys and rows to their places, stable
//   screen_gather     rows of 8-byte cells into groups of 32, column by column
//   screen_leaves     boxes of leaves
//   screen_nodes      boxes of a level from those of the level below
//   screen_diagonals  upper bounds of the diagonals of the boxes of some consecutive leaves
//
// Any order of the rows gives the same weights; a better one visits fewer leaves. Everything here is bound by memory:
// a pass of the sort moves 24 bytes a row, all of it some 300 for two columns: 10 million rows take a few milliseconds.
#include "screen/layout.cuh"

#define TILE 2048          // keys of a block of the sort
#define PER_WARP (TILE / WARPS)
#define DIGITS 256

struct Curve {
    const double* x;       // (n, n_columns)
    const double* edges;   // (n_columns, n_edges) ascending quantiles of the first columns of the curve
    const u32* columns;    // (n_used,)
    u64* keys;             // (n,)
    u32* rows;             // (n,) 0, 1, ...
    u32 n, n_columns, n_edges, n_used, bits;  // of each column; n_used * bits <= 64
};

extern "C" __global__ void __launch_bounds__(256) screen_curve(const Curve* c, const void*) {
    const u32 row = blockIdx.x * 256 + threadIdx.x;
    if (row >= c->n) return;
    c->rows[row] = row;
    u64 key = 0;
    for (u32 i = 0; i < c->n_used; i++) {
        const u32 j = c->columns[i];
        const double v = c->x[(u64)row * c->n_columns + j];
        const double* edges = c->edges + (u64)i * c->n_edges;
        u32 low = 0, high = c->n_edges;  // edges before `low` are <= v
        while (low < high) {
            const u32 middle = (low + high) / 2;
            if (edges[middle] <= v) low = middle + 1;
            else high = middle;
        }
        // the place within its interval, linearly
        double within = 0.0;
        if (low && low < c->n_edges) within = (v - edges[low - 1]) / (edges[low] - edges[low - 1]);
        within = within >= 0.0 && within < 1.0 ? within : within >= 1.0 ? 0.999999 : 0.0;
        const double scaled = ((double)low + within) / (double)(c->n_edges + 1) * (double)(1ull << c->bits);
        const u64 place = (u64)scaled;
        for (u32 b = 0; b < c->bits; b++) key |= (place >> b & 1) << (b * c->n_used + i);
    }
    c->keys[row] = key;
}

struct Sort {
    const u64* keys;
    const u32* rows;
    u64* keys_out;
    u32* rows_out;
    u32* counts;           // (DIGITS, n_tiles)
    u32 n, n_tiles, shift, pad;
};

extern "C" __global__ void __launch_bounds__(256) screen_histogram(const Sort* s, const void*) {
    __shared__ u32 counts[DIGITS];
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < TILE; i += 256) {
        const u32 at = blockIdx.x * TILE + i;
        if (at < s->n) atomicAdd(&counts[s->keys[at] >> s->shift & (DIGITS - 1)], 1u);
    }
    __syncthreads();
    s->counts[(u64)threadIdx.x * s->n_tiles + blockIdx.x] = counts[threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(1024) screen_scan(const Sort* s, const void*) {
    __shared__ u32 sums[32];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n = DIGITS * s->n_tiles;
    u32 before = 0;
    for (u32 first = 0; first < n; first += 4096) {  // four counts a thread
        const u32 at = first + 4 * threadIdx.x;
        u32 x[4], own = 0;
        for (u32 i = 0; i < 4; i++) {
            x[i] = at + i < n ? s->counts[at + i] : 0;
            own += x[i];
        }
        u32 upto = own;
        for (u32 by = 1; by < 32; by <<= 1) {
            const u32 other = __shfl_up_sync(ALL, upto, by);
            if (lane >= by) upto += other;
        }
        if (lane == 31) sums[warp] = upto;
        __syncthreads();
        if (warp == 0) {
            u32 total = sums[lane];
            for (u32 by = 1; by < 32; by <<= 1) {
                const u32 other = __shfl_up_sync(ALL, total, by);
                if (lane >= by) total += other;
            }
            sums[lane] = total;
        }
        __syncthreads();
        u32 start = before + (warp ? sums[warp - 1] : 0) + upto - own;
        for (u32 i = 0; i < 4; i++) {
            if (at + i < n) s->counts[at + i] = start;
            start += x[i];
        }
        before += sums[31];
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256) screen_scatter(const Sort* s, const void*) {
    __shared__ u32 places[WARPS][DIGITS];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, first = blockIdx.x * TILE + warp * PER_WARP;
    for (u32 w = 0; w < WARPS; w++) places[w][threadIdx.x] = 0;
    __syncthreads();
    for (u32 i = lane; i < PER_WARP; i += 32)
        if (first + i < s->n) atomicAdd(&places[warp][s->keys[first + i] >> s->shift & (DIGITS - 1)], 1u);
    __syncthreads();
    u32 start = s->counts[(u64)threadIdx.x * s->n_tiles + blockIdx.x];
    for (u32 w = 0; w < WARPS; w++) {
        const u32 count = places[w][threadIdx.x];
        places[w][threadIdx.x] = start;
        start += count;
    }
    __syncthreads();
    for (u32 i = 0; i < PER_WARP; i += 32) {
        const u32 at = first + i + lane;
        const u64 key = at < s->n ? s->keys[at] : 0;
        const u32 digit = at < s->n ? (u32)(key >> s->shift & (DIGITS - 1)) : DIGITS;
        const u32 peers = __match_any_sync(ALL, digit), rank = __popc(peers & ((1u << lane) - 1));
        const u32 to = digit < DIGITS ? places[warp][digit] + rank : 0;
        __syncwarp();
        if (digit < DIGITS && rank == 0) places[warp][digit] += __popc(peers);
        __syncwarp();
        if (digit < DIGITS) {
            s->keys_out[to] = key;
            s->rows_out[to] = s->rows[at];
        }
    }
}

struct Gather {
    const u64* cells;      // (N, n_columns)
    const u32* rows;       // (n,) null: 0, 1, ...
    u64* groups;           // [group][n_columns][32]
    const u32* counts;     // (N,) null: 1
    u32* counts_out;       // [group * 32]; null: none
    u64 empty;             // cells after the last row
    u32 n, n_columns;
};

extern "C" __global__ void __launch_bounds__(256) screen_gather(const Gather* g, const void*) {
    const u32 at = blockIdx.x * 256 + threadIdx.x, group = at / 32, lane = at % 32;
    if (group * 32 >= g->n) return;
    const u32 row = at < g->n ? g->rows ? g->rows[at] : at : 0;
    const u64* from = g->cells + (u64)row * g->n_columns;
    u64* to = g->groups + (u64)group * g->n_columns * 32 + lane;
    for (u32 j = 0; j < g->n_columns; j++) to[32 * j] = at < g->n ? from[j] : g->empty;
    if (g->counts_out) g->counts_out[at] = at < g->n ? g->counts ? g->counts[row] : 1 : 0;
}

__device__ __forceinline__ double least(double x) {
    for (u32 bit = 16; bit; bit >>= 1) x = fmin(x, __shfl_xor_sync(ALL, x, bit));
    return x;
}

__device__ __forceinline__ u64 all_of(u64 x) {
    for (u32 bit = 16; bit; bit >>= 1) x &= __shfl_xor_sync(ALL, x, bit);
    return x;
}

struct Boxes {
    Tree tree;
    u32 level, pad;
};

extern "C" __global__ void __launch_bounds__(256) screen_leaves(const Boxes* b, const void*) {
    const Tree& t = b->tree;
    const u32 lane = threadIdx.x & 31, leaf = blockIdx.x * WARPS + (threadIdx.x >> 5), place = leaf % 32;
    if (leaf >= t.n_leaves) return;
    const u64 group = t.first[0] + leaf / 32;
    for (u32 j = 0; j < t.n_numbers; j++) {
        const double x = t.numbers[((u64)leaf * t.n_numbers + j) * 32 + lane];  // fmin ignores NaN
        const double low = least(x), high = -least(-x);
        if (lane == 0) {
            t.sides[(group * 2 * t.n_numbers + j) * 32 + place] = __double2float_rd(__dsub_rd(low, t.centres[j]));
            t.sides[(group * 2 * t.n_numbers + t.n_numbers + j) * 32 + place] =
                __double2float_ru(__dsub_ru(high, t.centres[j]));
        }
    }
    const u64* words = t.words + (u64)leaf * (t.n_planes + 2 * t.n_groups) * 32 + lane;
    u64* agreed = t.agreed + group * (t.n_groups + t.n_planes) * 32 + place;
    const bool exists = leaf * 32 + lane < t.n_rows;
    for (u32 g = 0; g < t.n_groups; g++) {
        u64 same = ~0ull;
        for (u32 p = t.planes[g]; p < t.planes[g + 1]; p++) {
            const u64 ones = all_of(exists ? words[32 * p] : ~0ull), zeros = all_of(exists ? ~words[32 * p] : ~0ull);
            same &= ones | zeros;
            if (lane == 0) agreed[32 * (t.n_groups + p)] = ones;
        }
        if (lane == 0) agreed[32 * g] = same;
    }
}

extern "C" __global__ void __launch_bounds__(256) screen_nodes(const Boxes* b, const void*) {
    const Tree& t = b->tree;
    const u32 lane = threadIdx.x & 31, node = blockIdx.x * WARPS + (threadIdx.x >> 5), place = node % 32;
    if (node >= t.size[b->level]) return;
    const bool exists = node * 32 + lane < t.size[b->level - 1];
    const u64 from = t.first[b->level - 1] + node, to = t.first[b->level] + node / 32;
    for (u32 j = 0; j < 2 * t.n_numbers; j++) {
        const bool is_low = j < t.n_numbers;
        const double nothing = __longlong_as_double(0x7ff0000000000000ll);
        const double x = exists ? (double)t.sides[(from * 2 * t.n_numbers + j) * 32 + lane] : nothing;
        const double found = is_low ? least(x) : -least(exists ? -x : nothing);
        if (lane == 0) t.sides[(to * 2 * t.n_numbers + j) * 32 + place] = (float)found;
    }
    const u64* below = t.agreed + from * (t.n_groups + t.n_planes) * 32 + lane;
    u64* agreed = t.agreed + to * (t.n_groups + t.n_planes) * 32 + place;
    for (u32 g = 0; g < t.n_groups; g++) {
        u64 same = all_of(exists ? below[32 * g] : ~0ull);
        for (u32 p = t.planes[g]; p < t.planes[g + 1]; p++) {
            const u64 word = exists ? below[32 * (t.n_groups + p)] : 0;
            const u64 ones = all_of(exists ? word : ~0ull), zeros = all_of(exists ? ~word : ~0ull);
            same &= ones | zeros;
            if (lane == 0) agreed[32 * (t.n_groups + p)] = ones;
        }
        if (lane == 0) agreed[32 * g] = same;
    }
}

struct Diagonals {
    Tree tree;
    float* found;          // (n,)
    u32 n, leaves;         // consecutive leaves of each; the last has the rest
    u32 is_squared, pad;
};

extern "C" __global__ void __launch_bounds__(256) screen_diagonals(const Diagonals* d, const void*) {
    const Tree& t = d->tree;
    const u32 part = blockIdx.x * 256 + threadIdx.x;
    if (part >= d->n) return;
    const u32 last = part + 1 < d->n ? (part + 1) * d->leaves : t.n_leaves;
    float total = 0.0f;
    for (u32 j = 0; j < t.n_numbers; j++) {
        float low = __uint_as_float(NO_BOX), high = -low;
        for (u32 leaf = part * d->leaves; leaf < last; leaf++) {
            const float* sides = t.sides + (u64)(t.first[0] + leaf / 32) * 2 * t.n_numbers * 32 + leaf % 32;
            low = fminf(low, sides[32 * j]);
            high = fmaxf(high, sides[32 * (t.n_numbers + j)]);
        }
        const float side = __fsub_ru(high, low);
        total = __fadd_ru(total, d->is_squared ? __fmul_ru(side, side) : side);
    }
    d->found[part] = d->is_squared ? __fsqrt_ru(total) : total;
}
