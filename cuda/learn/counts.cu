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
// jtgpu/learn/dags/scores/gpu.py repeats the layout of Sets.
#include "learn/numbers.cuh"

#define THREADS 128
#define MAX_PREFIX 4
#define MAX_PAIR_STATES 8  // of a pair's smaller variable
#define MAX_VALUES 8       // functions of one launch
#define SHARED_CELLS 8192  // of a histogram in shared memory

struct Sets {
    const u32* planes;       // (n_words, n_planes): plane of variable v in state s is start[s] + v
    const u32* lasts;        // (n_words, n): the planes of the last states
    const int* start;        // (largest number of states - 1,)
    const u32* cards;        // (n,) ascending
    const u8* codes;         // (n, n_rows)
    const u32* weights;      // (n_rows,), or null
    const u64* binomials;    // (n + 1, BINOMIAL_SIZES)
    const u32* segments;     // (n_segments + 1,) first words
    const u64* products;     // (n_functions,) cells of the tables that use a function; null: all functions for each set
    const double* shapes;    // (n_functions,)
    const double* functions; // (n_functions, n_tabulated)
    const u64* first_tile;   // (n_prefixes + 1,)
    double* values;          // (n_values, n_sets)
    u32* cells;              // scan: (blocks, stride) histograms too large for shared memory
    u64 n_sets, n_prefixes, begin, n_tiles, max_cells;  // begin: first tile of the launch
    u64 origin;              // rank of the set of values[0]
    u32 n, n_planes, n_rows, n_cases, n_segments, n_functions, n_tabulated, n_values;
    u32 size, tile, most_combos, tile_words, most_at_once, first_value, stride, pad;
};

#ifdef __CUDACC__
extern __shared__ uint4 dynamic_shared[];
#else
static uint4 dynamic_shared[1 << 14];
#endif

struct Prefix {
    u32 members[MAX_PREFIX], cards[MAX_PREFIX];
    u32 n_members, smallest, n_pairs, first_pair, last_pair;
    u64 n_configs, rank;
};

// Find the prefix and the pairs of a tile.
__device__ __forceinline__ void enter_tile(const Sets& s, u64 tile, Prefix& p) {
    u64 low = 0, high = s.n_prefixes;
    while (high - low > 1) {
        const u64 middle = (low + high) / 2;
        if (s.first_tile[middle] <= tile) low = middle;
        else high = middle;
    }
    p.n_members = s.size - 2;
    p.smallest = s.n;
    p.n_configs = 1;
    p.rank = 0;
    u64 rank = low;
    u32 limit = s.n;
    for (int j = (int)p.n_members; j > 0; j--) {
        const u32 v = largest_member(s.binomials, limit, j, rank);
        rank -= s.binomials[v * BINOMIAL_SIZES + j];
        p.members[j - 1] = p.smallest = limit = v;
        p.cards[j - 1] = s.cards[v];
        p.n_configs *= s.cards[v];
        p.rank += s.binomials[v * BINOMIAL_SIZES + j + 2];
    }
    p.n_pairs = p.smallest * (p.smallest - 1) / 2;
    p.first_pair = (u32)(tile - s.first_tile[low]) * s.tile;
    p.last_pair = p.n_pairs - p.first_pair < s.tile ? p.n_pairs : p.first_pair + s.tile;
}

// Whether a set's rows are counted, since its planes take longer.
__device__ __forceinline__ bool is_scanned(const Sets& s, u32 r_a, u32 r_b, u64 n_configs) {
    return r_a > MAX_PAIR_STATES || (r_a - 1) * (u64)(r_b - 1) * n_configs > s.most_combos;
}

// Number of the function of a table; `products` has the number of cells.
__device__ __forceinline__ u32 function_of(const Sets& s, u64 n_cells) {
    u32 low = 0, high = s.n_functions;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (s.products[middle] <= n_cells) low = middle;
        else high = middle;
    }
    return low;
}

__device__ __forceinline__ double evaluate(const Sets& s, u32 f, u32 count) {
    return count < s.n_tabulated ? s.functions[(u64)f * s.n_tabulated + count] : count_function(s.shapes[f], count);
}

// Plane of a prefix's configuration, one word.
__device__ __forceinline__ u32 prefix_word(const Sets& s, const Prefix& p, u64 config, u32 word) {
    u32 found = ~0u;
    for (int j = (int)p.n_members - 1; j >= 0; j--) {
        const u32 state = (u32)(config % p.cards[j]), v = p.members[j];
        config /= p.cards[j];
        found &= state + 1 < p.cards[j] ? s.planes[(u64)word * s.n_planes + s.start[state] + v]
                                        : s.lasts[(u64)word * s.n + v];
    }
    return found;
}

template <int AT_ONCE>
struct Tile {  // words of AT_ONCE configurations of a prefix in shared memory
    static const int STRIDE = (AT_ONCE + 3) / 4 * 4;
    u32* words;
    bool resident;

    __device__ __forceinline__ void load(const Sets& s, const Prefix& p, u64 config, u32 begin, u32 end) {
        for (u32 i = threadIdx.x; i < (end - begin) * AT_ONCE; i += THREADS) {
            const u32 word = i / AT_ONCE, c = i % AT_ONCE;
            words[word * STRIDE + c] = config + c < p.n_configs ? prefix_word(s, p, config + c, begin + word) : 0u;
        }
    }
};

__device__ __forceinline__ void add_three(u32& n, u32 a, u32 b, u32 c) {
    n += __popc(a ^ b ^ c) + 2 * __popc((a & b) | (c & (a ^ b)));
}

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
            u32 w = begin;
            // three words at a time as sums and carries: two population counts, the slowest instruction, in place of three
            for (; w + 2 < stop; w += 3, at_x += 3 * s.n_planes, at_y += 3 * s.n_planes, words += 3 * STRIDE) {
                const u32 x0 = *at_x & *at_y, x1 = at_x[s.n_planes] & at_y[s.n_planes],
                          x2 = at_x[2 * s.n_planes] & at_y[2 * s.n_planes];
#pragma unroll
                for (int c = 0; c < AT_ONCE; c += 4) {
                    const uint4 f0 = *(const uint4*)(words + c), f1 = *(const uint4*)(words + STRIDE + c),
                                f2 = *(const uint4*)(words + 2 * STRIDE + c);
                    add_three(n[c], x0 & f0.x, x1 & f1.x, x2 & f2.x);
                    if (c + 1 < AT_ONCE) add_three(n[c + 1 < AT_ONCE ? c + 1 : c], x0 & f0.y, x1 & f1.y, x2 & f2.y);
                    if (c + 2 < AT_ONCE) add_three(n[c + 2 < AT_ONCE ? c + 2 : c], x0 & f0.z, x1 & f1.z, x2 & f2.z);
                    if (c + 3 < AT_ONCE) add_three(n[c + 3 < AT_ONCE ? c + 3 : c], x0 & f0.w, x1 & f1.w, x2 & f2.w);
                }
            }
            for (; w < stop; w++, at_x += s.n_planes, at_y += s.n_planes, words += STRIDE) {
                const u32 both = *at_x & *at_y;
#pragma unroll
                for (int c = 0; c < AT_ONCE; c += 4) {
                    const uint4 four = *(const uint4*)(words + c);
                    n[c] += __popc(both & four.x);
                    if (c + 1 < AT_ONCE) n[c + 1 < AT_ONCE ? c + 1 : c] += __popc(both & four.y);
                    if (c + 2 < AT_ONCE) n[c + 2 < AT_ONCE ? c + 2 : c] += __popc(both & four.z);
                    if (c + 3 < AT_ONCE) n[c + 3 < AT_ONCE ? c + 3 : c] += __popc(both & four.w);
                }
            }
        }
    }
}

template <int N_VALUES>
struct Sums {  // of a set, one for each function
    double sum[N_VALUES];
    u32 first;

    __device__ __forceinline__ void add(const Sets& s, u32 count) {
        if (N_VALUES == 1) {
            sum[0] += evaluate(s, first, count);
        } else {
#pragma unroll 1
            for (u32 k = 0; k < s.n_values; k++) sum[k] += evaluate(s, first + k, count);
        }
    }
};

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
    // a number of configurations at once that leaves few of the last pass unused
    const u32 sizes[] = {16, 9, 6, 4, 1};
    u32 at_once = 1;
    u64 least = ~0ull;
    for (u32 i = 0; i < 5; i++) {
        const u64 passes = (p.n_configs + sizes[i] - 1) / sizes[i], cost = passes * (sizes[i] + 1);
        if (sizes[i] <= s.most_at_once && cost < least) {
            least = cost;
            at_once = sizes[i];
        }
    }
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
