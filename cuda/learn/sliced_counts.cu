// The sums of cuda/learn/counts.cu where there are many rows and few sets: the warps of a block share the words.
//
// A block takes 32 pairs of variables of one prefix, a lane each. Each warp counts a slice of the words, for all
// configurations of the prefix; then it adds the counts of all warps for its own configurations, and evaluates them. The
// tables of a prefix with one further variable are counted once, by `count_margins`. All words of a prefix are in shared
// memory. Blocks with the most states come first.
#include "learn/counts.cuh"

#define LANES 32

template <int AT_ONCE>
struct Slices {
    Tile<AT_ONCE> tile;
    u32* counts;  // (warps, AT_ONCE, LANES)

    __device__ __forceinline__ void load(const Sets& s, const Prefix& p, u64 config) {
        tile.words = (u32*)dynamic_shared;
        counts = tile.words + (u64)s.tile_words * Tile<AT_ONCE>::STRIDE;
        __syncthreads();
        tile.load(s, p, config, 0, s.segments[s.n_segments]);
        __syncthreads();
    }

    // Count the rows of x and y in this warp's words, and exchange the counts with the other warps.
    __device__ __forceinline__ void count(const Sets& s, const u32* x, const u32* y, bool active) {
        const u32 warp = threadIdx.x / 32, warps = blockDim.x / 32;
        u32 n[AT_ONCE];
        for (int c = 0; c < AT_ONCE; c++) n[c] = 0;
        if (active)
            for (u32 segment = 0; segment < s.n_segments; segment++) {
                if (segment)
                    for (int c = 0; c < AT_ONCE; c++) n[c] <<= 1;
                const u32 begin = s.segments[segment], end = s.segments[segment + 1];
                const u32 slice = ((end - begin + warps - 1) / warps + 2) / 3 * 3, from = begin + warp * slice;
                if (from >= end) continue;
                add_words<AT_ONCE>(
                    s, tile.words + from * Tile<AT_ONCE>::STRIDE, x + (u64)from * s.n_planes, y + (u64)from * s.n_planes,
                    end - from < slice ? end - from : slice, n);
            }
        __syncthreads();  // the sums before have been read
        for (int c = 0; c < AT_ONCE; c++) counts[(warp * AT_ONCE + c) * LANES + threadIdx.x % 32] = n[c];
        __syncthreads();
    }

    // Rows of a configuration, of all warps.
    __device__ __forceinline__ u32 total(u32 c) const {
        u32 sum = 0;
        for (u32 w = 0; w < blockDim.x / 32; w++) sum += counts[(w * AT_ONCE + c) * LANES + threadIdx.x % 32];
        return sum;
    }
};

__device__ __forceinline__ u32* margins_of(const Sets& s, const Prefix& p, u64 config) {
    return s.margins + ((p.number - s.first_prefix) * s.most_configs + config) * (s.n_planes + 1);
}

template <int AT_ONCE>
__device__ __noinline__ void margins_of_configs(const Sets& s, const Prefix& p) {
    const u32 warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    const u32 n_planes = p.smallest ? (s.cards[p.smallest - 1] - 1) * p.smallest : 0;
    for (u64 config = 0; config < p.n_configs; config += AT_ONCE) {
        Slices<AT_ONCE> slices;
        slices.load(s, p, config);
        for (u32 base = 0; base < n_planes; base += LANES) {
            const u32 i = base + lane, state = i / p.smallest, v = i % p.smallest;
            const bool active = i < n_planes && state + 1 < s.cards[v];
            const u32 at = active ? s.start[state] + (int)v : 0;
            slices.count(s, s.planes + at, s.planes + at, active);
            for (u32 c = warp; c < AT_ONCE && config + c < p.n_configs; c += warps)
                if (active) margins_of(s, p, config + c)[at] = slices.total(c);
        }
        for (u32 c = warp; c < AT_ONCE && config + c < p.n_configs; c += warps) {
            u32 total = 0;
            for (u32 segment = 0; segment < s.n_segments; segment++) {
                total <<= 1;
                for (u32 w = s.segments[segment] + lane; w < s.segments[segment + 1]; w += 32)
                    total += __popc(slices.tile.words[w * Tile<AT_ONCE>::STRIDE + c]);
            }
            for (u32 bit = 16; bit; bit >>= 1) total += __shfl_xor_sync(0xffffffffu, total, bit);
            if (lane == 0) margins_of(s, p, config + c)[s.n_planes] = p.n_members ? total : s.n_cases;
        }
    }
}

// Counts of each prefix with one further variable, a block a prefix.
extern "C" __global__ void __launch_bounds__(512) count_margins(GRID_CONSTANT Sets s) {
    __shared__ Prefix p;
    if (threadIdx.x == 0) enter_tile(s, s.first_tile[s.first_prefix + blockIdx.x], p);
    __syncthreads();
    switch (configs_at_once(s, p.n_configs)) {
        case 16: margins_of_configs<16>(s, p); break;
        case 9: margins_of_configs<9>(s, p); break;
        case 6: margins_of_configs<6>(s, p); break;
        case 4: margins_of_configs<4>(s, p); break;
        default: margins_of_configs<1>(s, p);
    }
}

template <int AT_ONCE, int WARPS>
__device__ __noinline__ void count_pairs(const Sets& s, const Prefix& p, double* shared_sums) {
    const int OWN = (AT_ONCE + WARPS - 1) / WARPS;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, pair = p.first_pair + lane;
    u32 a = 0, b = 1, r_a = 1, r_b = 1;
    bool counted = pair < p.last_pair;
    if (counted) {
        pair_of(pair, a, b);
        r_a = s.cards[a];
        r_b = s.cards[b];
    }
    const u64 n_cells = r_a * r_b * p.n_configs;
    double* value = s.values + (p.rank + pair - s.origin);
    if (counted && n_cells > s.max_cells) {
        if (warp == 0) *value = -infinity();
        counted = false;
    }
    counted = counted && !is_scanned(s, r_a, r_b, p.n_configs);
    Sums<1> sums;
    sums.first = s.first_value + (s.products && counted ? function_of(s, n_cells) : 0);
    sums.sum[0] = 0.0;
    u32 most_a = counted ? r_a - 1 : 0, most_b = counted ? r_b - 1 : 0;  // of all lanes, the same in all warps
    for (u32 bit = 16; bit; bit >>= 1) {
        const u32 x = __shfl_xor_sync(0xffffffffu, most_a, bit), y = __shfl_xor_sync(0xffffffffu, most_b, bit);
        most_a = x > most_a ? x : most_a;
        most_b = y > most_b ? y : most_b;
    }
#pragma unroll 1
    for (u64 config = 0; config < p.n_configs; config += AT_ONCE) {
        Slices<AT_ONCE> slices;
        slices.load(s, p, config);
        const u32 n_configs = p.n_configs - config < AT_ONCE ? (u32)(p.n_configs - config) : AT_ONCE;
        u32 rest_a[MAX_PAIR_STATES - 1][OWN], rest_b[OWN], both_last[OWN];
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const u32 c = warp + i * WARPS;
            both_last[i] = counted && c < n_configs ? margins_of(s, p, config + c)[s.n_planes] : 0;
        }
#pragma unroll 1
        for (u32 y = 0; y < most_b; y++) {
            const bool has_y = counted && y + 1 < r_b;
            const u32 plane_b = has_y ? s.start[y] + (int)b : 0;
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                const u32 c = warp + i * WARPS;
                rest_b[i] = has_y && c < n_configs ? margins_of(s, p, config + c)[plane_b] : 0;
                both_last[i] -= rest_b[i];
            }
#pragma unroll 1
            for (u32 x = 0; x < most_a; x++) {
                const bool active = has_y && x + 1 < r_a;
                const u32 plane_a = active ? s.start[x] + (int)a : 0;
                slices.count(s, s.planes + plane_a, s.planes + plane_b, active);
                if (!active) continue;
#pragma unroll
                for (int i = 0; i < OWN; i++) {
                    const u32 c = warp + i * WARPS;
                    if (c >= n_configs) continue;
                    const u32 n = slices.total(c);
                    sums.add(s, n);
                    rest_b[i] -= n;
                    rest_a[x][i] = (y ? rest_a[x][i] : margins_of(s, p, config + c)[plane_a]) - n;
                }
            }
            if (has_y)
#pragma unroll
                for (int i = 0; i < OWN; i++)
                    if (warp + i * WARPS < n_configs) sums.add(s, rest_b[i]);
        }
        if (!counted) continue;
#pragma unroll 1
        for (u32 x = 0; x + 1 < r_a; x++)
#pragma unroll
            for (int i = 0; i < OWN; i++)
                if (warp + i * WARPS < n_configs) {
                    sums.add(s, rest_a[x][i]);
                    both_last[i] -= rest_a[x][i];
                }
#pragma unroll
        for (int i = 0; i < OWN; i++)
            if (warp + i * WARPS < n_configs) sums.add(s, both_last[i]);
    }
    shared_sums[threadIdx.x] = sums.sum[0];
    __syncthreads();
    if (warp || !counted) return;
    double sum = 0.0;
    for (int w = 0; w < WARPS; w++) sum += shared_sums[w * LANES + lane];
    *value = sum;
}

template <int WARPS>
__device__ __forceinline__ void count_slices(const Sets& s) {
    __shared__ Prefix p;
    __shared__ double sums[WARPS * LANES];
    if (threadIdx.x == 0) enter_tile(s, s.begin + s.n_tiles - 1 - blockIdx.x, p);
    __syncthreads();
    switch (configs_at_once(s, p.n_configs)) {
        case 16: count_pairs<16, WARPS>(s, p, sums); break;
        case 9: count_pairs<9, WARPS>(s, p, sums); break;
        case 6: count_pairs<6, WARPS>(s, p, sums); break;
        case 4: count_pairs<4, WARPS>(s, p, sums); break;
        default: count_pairs<1, WARPS>(s, p, sums);
    }
}

extern "C" __global__ void __launch_bounds__(64, 8) count_slices_2(GRID_CONSTANT Sets s) { count_slices<2>(s); }
extern "C" __global__ void __launch_bounds__(128, 6) count_slices_4(GRID_CONSTANT Sets s) { count_slices<4>(s); }
extern "C" __global__ void __launch_bounds__(256, 3) count_slices_8(GRID_CONSTANT Sets s) { count_slices<8>(s); }
extern "C" __global__ void __launch_bounds__(512) count_slices_16(GRID_CONSTANT Sets s) { count_slices<16>(s); }
