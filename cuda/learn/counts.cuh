// What the kernels that count sets of variables share: sets, prefixes, words of bit planes, functions of a count.
// jtgpu/learn/dags/scores/gpu_device.py repeats the layout of Sets.
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
    u32 size, tile, most_combos, tile_words, most_at_once, first_value, stride, most_configs;
    u32* margins;            // count_slices: (prefixes, most_configs, n_planes + 1) of the prefixes from first_prefix on
    u64 first_prefix;
};

#ifdef __CUDACC__
extern __shared__ uint4 dynamic_shared[];
#else
static uint4 dynamic_shared[1 << 14];
#endif

struct Prefix {
    u32 members[MAX_PREFIX], cards[MAX_PREFIX];
    u32 n_members, smallest, n_pairs, first_pair, last_pair;
    u64 n_configs, rank, number;
};

// Find the prefix and the pairs of a tile.
__device__ __forceinline__ void enter_tile(const Sets& s, u64 tile, Prefix& p) {
    u64 low = 0, high = s.n_prefixes;
    while (high - low > 1) {
        const u64 middle = (low + high) / 2;
        if (s.first_tile[middle] <= tile) low = middle;
        else high = middle;
    }
    p.number = low;
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
        for (u32 i = threadIdx.x; i < (end - begin) * AT_ONCE; i += blockDim.x) {
            const u32 word = i / AT_ONCE, c = i % AT_ONCE;
            words[word * STRIDE + c] = config + c < p.n_configs ? prefix_word(s, p, config + c, begin + word) : 0u;
        }
    }
};

__device__ __forceinline__ void add_three(u32& n, u32 a, u32 b, u32 c) {
    n += __popc(a ^ b ^ c) + 2 * __popc((a & b) | (c & (a ^ b)));
}

// Count the rows of x and y in each of the configurations, in some words. Three words at a time as sums and carries: two
// population counts, the slowest instruction, in place of three.
template <int AT_ONCE>
__device__ __forceinline__ void add_words(
    const Sets& s, const u32* words, const u32* at_x, const u32* at_y, u32 n_words, u32 (&n)[AT_ONCE]) {
    const int STRIDE = Tile<AT_ONCE>::STRIDE;
    u32 w = 0;
    for (; w + 2 < n_words; w += 3, at_x += 3 * s.n_planes, at_y += 3 * s.n_planes, words += 3 * STRIDE) {
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
    for (; w < n_words; w++, at_x += s.n_planes, at_y += s.n_planes, words += STRIDE) {
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

// How many configurations are counted at once: a number that leaves few of the last pass unused.
__device__ __forceinline__ u32 configs_at_once(const Sets& s, u64 n_configs) {
    const u32 sizes[] = {16, 9, 6, 4, 1};
    u32 found = 1;
    u64 least = ~0ull;
    for (u32 i = 0; i < 5; i++) {
        const u64 passes = (n_configs + sizes[i] - 1) / sizes[i], cost = passes * (sizes[i] + 1);
        if (sizes[i] <= s.most_at_once && cost < least) {
            least = cost;
            found = sizes[i];
        }
    }
    return found;
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

