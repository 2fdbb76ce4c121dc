// Sums of a function over the cells of the tables of all sets of variables of one size, from 2 on.
//
// The variables are numbered by ascending number of states. A set is its two smallest variables, the pair, and the
// others, the prefix. A block processes a range of the pairs of one prefix, a thread a pair: pairs have consecutive
// ranks, so blocks write ranges of values. For each configuration of the prefix, the cells in which neither variable of
// the pair has its last state are counted by AND and population count; the others follow by subtraction from the
// tables of the prefix with one variable of the pair, which the block counts first. All counts are exact integers.
//
// A row's weight is the sum of the bits of its segments: the rows whose weight has a bit are one segment of words, the
// most significant bit first.
//
// Sets whose planes would take longer than their rows are counted by `scan_sets`, row by row.
#include "learn/counts.cuh"

// Count the rows of x and y in each of the configurations; all threads of a block call it.
template <int AT_ONCE>
__device__ __forceinline__ void count(
    const Sets& s, const Prefix& p, Tile<AT_ONCE>& tile, u64 config, const u32* x, const u32* y, bool active,
    u32 (&n)[AT_ONCE]) {
    const int STRIDE = Tile<AT_ONCE>::STRIDE;
    for (int c = 0; c < AT_ONCE; c++) n[c] = 0;
    for (u32 segment = 0; segment < s.n_segments; segment++) {
        if (segment)
            for (int c = 0; c < AT_ONCE; c++) n[c] <<= 1;
        const u32 end = s.segments[segment + 1];
        for (u32 begin = s.segments[segment]; begin < end; begin += s.tile_words) {
            const u32 stop = end - begin < s.tile_words ? end : begin + s.tile_words;
            const u32* words = tile.words + (tile.resident ? begin * STRIDE : 0);
            if (!tile.resident) {
                __syncthreads();
                tile.load(s, p, config, begin, stop);
                __syncthreads();
            }
            if (!active) continue;
            const u32 *at_x = x + (u64)begin * s.n_planes, *at_y = y + (u64)begin * s.n_planes;
            add_words<AT_ONCE>(s, words, at_x, at_y, stop - begin, n);
        }
    }
}

// Add the cells of AT_ONCE configurations of the prefix, from `config` on, to the values of the tile's sets.
template <int AT_ONCE, int N_VALUES>
__device__ __forceinline__ void add_configs(const Sets& s, const Prefix& p, u64 config) {
    Tile<AT_ONCE> tile;
    tile.words = (u32*)dynamic_shared;
    u32* totals = tile.words + (u64)s.tile_words * Tile<AT_ONCE>::STRIDE;  // of the configurations
    u32* margins = totals + AT_ONCE;  // (AT_ONCE, n_planes): with each variable of a pair
    tile.resident = s.segments[s.n_segments] <= s.tile_words;
    u32 n[AT_ONCE];
    const u32 n_configs = p.n_configs - config < AT_ONCE ? (u32)(p.n_configs - config) : AT_ONCE;
    const u32 n_last = s.cards[p.smallest - 1] - 1;  // most states of a pair's variable but the last
    __syncthreads();
    if (tile.resident) {
        tile.load(s, p, config, 0, s.segments[s.n_segments]);
        __syncthreads();
    }
    const u32 n_planes = n_last * p.smallest;  // those of a variable of fewer states are skipped
    for (u32 base = 0; base < n_planes; base += THREADS) {
        const u32 i = base + threadIdx.x, state = i / p.smallest, v = i % p.smallest;
        const bool active = i < n_planes && state + 1 < s.cards[v];
        const u32 at = active ? s.start[state] + (int)v : 0;
        count(s, p, tile, config, s.planes + at, s.planes + at, active, n);
        if (active)
            for (int c = 0; c < AT_ONCE; c++) margins[c * s.n_planes + at] = n[c];
    }
    for (u32 c = threadIdx.x / 32; c < n_configs; c += THREADS / 32) {  // a warp a configuration
        u32 total = 0;
        for (u32 segment = 0; segment < s.n_segments; segment++) {
            total <<= 1;
            for (u32 w = s.segments[segment] + threadIdx.x % 32; w < s.segments[segment + 1]; w += 32)
                total += __popc(tile.resident ? tile.words[w * Tile<AT_ONCE>::STRIDE + c]
                                              : prefix_word(s, p, config + c, w));
        }
        for (u32 bit = 16; bit; bit >>= 1) total += __shfl_xor_sync(0xffffffffu, total, bit);
        if (threadIdx.x % 32 == 0) totals[c] = p.n_members ? total : s.n_cases;
    }
    __syncthreads();
    const u32 most_a = n_last < MAX_PAIR_STATES - 1 ? n_last : MAX_PAIR_STATES - 1;
    const u32 most_b = n_last < s.most_combos ? n_last : s.most_combos;
    for (u32 base = p.first_pair; base < p.last_pair; base += THREADS) {
        const u32 pair = base + threadIdx.x;
        u32 a = 0, b = 1, r_a = 1, r_b = 1;
        bool counted = pair < p.last_pair;
        if (counted) {
            pair_of(pair, a, b);
            r_a = s.cards[a];
            r_b = s.cards[b];
        }
        const u64 n_cells = r_a * r_b * p.n_configs;
        double* values = s.values + (p.rank + pair - s.origin);
        if (counted && n_cells > s.max_cells) {
            for (u32 k = 0; k < s.n_values; k++) values[k * s.n_sets] = -infinity();
            counted = false;
        }
        counted = counted && !is_scanned(s, r_a, r_b, p.n_configs);
        Sums<N_VALUES> sums;
        sums.first = s.first_value + (s.products && counted ? function_of(s, n_cells) : 0);
#pragma unroll
        for (int k = 0; k < N_VALUES; k++) sums.sum[k] = 0.0;
        u32 rest_a[MAX_PAIR_STATES - 1][AT_ONCE], both_last[AT_ONCE];
        for (int c = 0; c < AT_ONCE; c++) both_last[c] = (u32)c < n_configs ? totals[c] : 0;
#pragma unroll 1
        for (u32 y = 0; y < most_b; y++) {
            const bool has_y = counted && y + 1 < r_b;
            if (tile.resident && !has_y) break;
            const u32 plane_b = has_y ? s.start[y] + (int)b : 0;
            u32 rest_b[AT_ONCE];
            for (int c = 0; c < AT_ONCE; c++) rest_b[c] = has_y ? margins[c * s.n_planes + plane_b] : 0;
            for (int c = 0; c < AT_ONCE; c++) both_last[c] -= rest_b[c];
#pragma unroll 1
            for (u32 x = 0; x < most_a; x++) {
                const bool active = has_y && x + 1 < r_a;
                if (tile.resident && !active) break;
                const u32 plane_a = active ? s.start[x] + (int)a : 0;
                count(s, p, tile, config, s.planes + plane_a, s.planes + plane_b, active, n);
                if (!active) continue;
#pragma unroll
                for (int c = 0; c < AT_ONCE; c++) {
                    if ((u32)c < n_configs) sums.add(s, n[c]);
                    rest_b[c] -= n[c];
                    rest_a[x][c] = (y ? rest_a[x][c] : margins[c * s.n_planes + plane_a]) - n[c];
                }
            }
            if (has_y)
#pragma unroll
                for (int c = 0; c < AT_ONCE; c++)
                    if ((u32)c < n_configs) sums.add(s, rest_b[c]);
        }
        if (!counted) continue;
#pragma unroll 1
        for (u32 x = 0; x + 1 < r_a; x++)
#pragma unroll
            for (int c = 0; c < AT_ONCE; c++)
                if ((u32)c < n_configs) {
                    sums.add(s, rest_a[x][c]);
                    both_last[c] -= rest_a[x][c];
                }
#pragma unroll
        for (int c = 0; c < AT_ONCE; c++)
            if ((u32)c < n_configs) sums.add(s, both_last[c]);
#pragma unroll
        for (int k = 0; k < N_VALUES; k++)
            if (k < (int)s.n_values) {
                double* to = values + k * s.n_sets;
                *to = config ? *to + sums.sum[k] : sums.sum[k];
            }
    }
}

template <int AT_ONCE, int N_VALUES>
__device__ __noinline__ void add_tile(const Sets& s, const Prefix& p) {
#pragma unroll 1
    for (u64 config = 0; config < p.n_configs; config += AT_ONCE) add_configs<AT_ONCE, N_VALUES>(s, p, config);
}

template <int N_VALUES>
__device__ __forceinline__ void count_tile(const Sets& s) {
    __shared__ Prefix p;
    if (threadIdx.x == 0) enter_tile(s, s.begin + blockIdx.x, p);
    __syncthreads();
    const u32 at_once = configs_at_once(s, p.n_configs);
    if (N_VALUES > 1) {  // few are compiled
        if (at_once > 1) add_tile<4, N_VALUES>(s, p);
        else add_tile<1, N_VALUES>(s, p);
        return;
    }
    switch (at_once) {
        case 16: add_tile<16, 1>(s, p); break;
        case 9: add_tile<9, 1>(s, p); break;
        case 6: add_tile<6, 1>(s, p); break;
        case 4: add_tile<4, 1>(s, p); break;
        default: add_tile<1, 1>(s, p);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 5) count_sets(GRID_CONSTANT Sets s) { count_tile<1>(s); }
extern "C" __global__ void __launch_bounds__(THREADS, 4) count_sets_by_rows(GRID_CONSTANT Sets s) {
    count_tile<MAX_VALUES>(s);
}

// Sum of a block's numbers in a fixed order; the answer is thread 0's.
__device__ __forceinline__ double sum_of_block(double x, double* shared) {
    __syncthreads();
    shared[threadIdx.x] = x;
    __syncthreads();
    for (u32 step = THREADS / 2; step; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
        __syncthreads();
    }
    return shared[0];
}

// Count the sets that `count_sets` leaves out, a block a set.
extern "C" __global__ void __launch_bounds__(THREADS) scan_sets(GRID_CONSTANT Sets s) {
    __shared__ u32 histogram[SHARED_CELLS];
    __shared__ double sums[THREADS];
    __shared__ Prefix p;
    for (u64 t = blockIdx.x; t < s.n_tiles; t += gridDim.x) {
        __syncthreads();
        if (threadIdx.x == 0) enter_tile(s, s.begin + t, p);
        __syncthreads();
        for (u32 pair = p.first_pair; pair < p.last_pair; pair++) {
            u32 a, b;
            pair_of(pair, a, b);
            const u32 r_a = s.cards[a], r_b = s.cards[b];
            const u64 n_cells = r_a * r_b * p.n_configs;
            if (n_cells > s.max_cells || !is_scanned(s, r_a, r_b, p.n_configs)) continue;
            u32* cells = n_cells <= SHARED_CELLS ? histogram : s.cells + (u64)blockIdx.x * s.stride;
            __syncthreads();
            for (u64 i = threadIdx.x; i < n_cells; i += THREADS) cells[i] = 0;
            __syncthreads();
            for (u32 row = threadIdx.x; row < s.n_rows; row += THREADS) {
                u64 at = s.codes[(u64)a * s.n_rows + row] * r_b + s.codes[(u64)b * s.n_rows + row];
                for (u32 j = 0; j < p.n_members; j++)
                    at = at * p.cards[j] + s.codes[(u64)p.members[j] * s.n_rows + row];
                atomicAdd(&cells[at], s.weights ? s.weights[row] : 1u);
            }
            __syncthreads();
            const u32 first = s.first_value + (s.products ? function_of(s, n_cells) : 0);
            for (u32 k = 0; k < s.n_values; k++) {
                double sum = 0.0;
                for (u64 i = threadIdx.x; i < n_cells; i += THREADS) sum += evaluate(s, first + k, cells[i]);
                sum = sum_of_block(sum, sums);
                if (threadIdx.x == 0) s.values[k * s.n_sets + p.rank + pair - s.origin] = sum;
            }
        }
    }
}
