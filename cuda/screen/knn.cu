// Weights of rows: the sums of their k smallest distances to the references, exactly, with the bits of the CPU.
//
// A warp takes a row, a lane a reference: keys of 32 references are computed at once, in float64, column by column and
// without fused multiply-adds. The k smallest keys stay in registers, ascending over the lanes, JT_WAYS a lane; keys
// below the largest enter one by one: entry i becomes min(entry i, max(key, entry i-1)), a shuffle and a few
// instructions. Leaves are visited nearest first, depth first; a box that is no nearer than the k-th key is skipped. The
// row's search ends early as soon as its sum is below its cut: it is no outlier.
//
// Rows that are neighbours in the tree's order run on neighbouring warps and read the same leaves, from L1 mostly.
//
//   screen_squared   columns of numbers, squared differences
//   screen_absolute  columns of numbers, absolute differences
//   screen_shares    bit planes of states and columns of numbers: the columns that differ
//   screen_holes     the same where cells are missing: means over the columns that both rows have; no bounds
//
// Work: about 25 instructions and 8 a bytes from L1 for 32 pairs of a columns, 35 for bit planes; a leaf's box costs
// 1/32 of that. An insertion costs 20 to 35 instructions, and a row needs about k (1 + ln(visited / k)) of them.
// Without boxes (many columns) 1e12 pairs of 3 columns take 0.8 s on 132 SMs; with boxes a row visits some 30 leaves.
#include "screen/layout.cuh"

#ifndef JT_WAYS
#define JT_WAYS 2
#endif
#define PER_LANE JT_WAYS   // entries of the list that a lane has
#define SLACK 1.000000000001  // sums for the cut are added in another order

enum Metric { SQUARED, ABSOLUTE, SHARES, HOLES };

struct Search {
    Tree tree;
    const double* numbers;   // the rows, in groups of 32, as the tree's
    const u64* words;
    const double* cuts;      // (n,) the search of a row may end below it; null: none
    const double* divisors;  // (n,) weights are divided by it; null: 1
    double* weights;         // (n,)
    u64* pairs;              // distances that were computed
    u32 n, k;
};

struct Row {                 // a lane's view of the warp's row: column j is at 32 j
    const double* numbers;
    const u64* words;
};

// First plane of a group; most tables have one group.
__device__ __forceinline__ u32 first_plane(const Tree& t, u32 g) {
    return g == 0 ? 0 : g == t.n_groups ? t.n_planes : t.planes[g];
}

// A lower bound of the keys of a row and the references in box `lane` of a box group.
template <int METRIC>
__device__ __forceinline__ float bound(const Tree& t, const Row& x, u32 group, u32 lane) {
    if (METRIC == HOLES) return 0.0f;
    const float* sides = t.sides + (u64)group * 2 * t.n_numbers * 32 + lane;
    float total = 0.0f;
    for (u32 j = 0; j < t.n_numbers; j++) {
        const double v = x.numbers[32 * j], c = t.centres[j];
        const float above = __double2float_ru(__dsub_ru(v, c)), below = __double2float_rd(__dsub_rd(v, c));
        const float low = sides[32 * j], high = sides[32 * (t.n_numbers + j)];
        const float d = fmaxf(fmaxf(__fsub_rd(low, above), __fsub_rd(below, high)), 0.0f);  // a missing v: 0
        total = __fadd_rd(total, METRIC == SQUARED ? __fmul_rd(d, d) : d);
    }
    total = __fmul_rd(total, 0.999999f);  // keys are rounded
    if (METRIC == SHARES) {
        const u64* agreed = t.agreed + (u64)group * (t.n_groups + t.n_planes) * 32 + lane;
        u32 differ = 0;
        for (u32 g = 0; g < t.n_groups; g++) {
            u64 odd = x.words[32 * (t.n_planes + t.n_groups + g)];
            for (u32 p = first_plane(t, g); p < first_plane(t, g + 1); p++) odd |= x.words[32 * p] ^ agreed[32 * (t.n_groups + p)];
            differ += __popcll(odd & agreed[32 * g] & x.words[32 * (t.n_planes + g)]);
        }
        total = __fadd_rd((float)differ, total);
    }
    return total;
}

// The key of a row and reference `lane` of a leaf.
template <int METRIC>
__device__ __forceinline__ double key_of(const Tree& t, const Row& x, u32 leaf, u32 lane) {
    const double* numbers = t.numbers + (u64)leaf * t.n_numbers * 32 + lane;
    double key = 0.0;
    u32 common = 0;
    for (u32 j = 0; j < t.n_numbers; j++) {
        const double d = __dsub_rn(numbers[32 * j], x.numbers[32 * j]);
        if (METRIC == SQUARED) key = __dadd_rn(key, __dmul_rn(d, d));
        else if (METRIC == ABSOLUTE) key = __dadd_rn(key, fabs(d));
        else if (d == d) {
            key = __dadd_rn(key, fabs(d));
            common++;
        }
    }
    if (METRIC < SHARES) return key;
    const u64* words = t.words + (u64)leaf * (t.n_planes + 2 * t.n_groups) * 32 + lane;
    u32 differ = 0;
    for (u32 g = 0; g < t.n_groups; g++) {
        u64 odd = x.words[32 * (t.n_planes + t.n_groups + g)], both = x.words[32 * (t.n_planes + g)];
        for (u32 p = first_plane(t, g); p < first_plane(t, g + 1); p++) odd |= words[32 * p] ^ x.words[32 * p];
        if (METRIC == HOLES) {
            both &= words[32 * (t.n_planes + g)];
            common += __popcll(both);
        }
        differ += __popcll(odd & both);
    }
    key = __dadd_rn(key, (double)differ);
    return METRIC == HOLES ? common ? key / (double)common : 1.0 : key;
}

// The k smallest keys so far, ascending; entries before the k are -inf.
struct Nearest {
    double entry[PER_LANE];
    double worst;  // the k-th

    __device__ __forceinline__ void start(u32 k, u32 lane) {
        const double inf = __longlong_as_double(0x7ff0000000000000ll);
#pragma unroll
        for (u32 i = 0; i < PER_LANE; i++) entry[i] = lane * PER_LANE + i < 32 * PER_LANE - k ? -inf : inf;
        worst = inf;
    }

    __device__ __forceinline__ void insert(double key, u32 lane) {
        double before = __shfl_up_sync(ALL, entry[PER_LANE - 1], 1);
        if (lane == 0) before = -__longlong_as_double(0x7ff0000000000000ll);
#pragma unroll
        for (int i = PER_LANE - 1; i >= 0; i--) {
            const double lower = i ? entry[i ? i - 1 : 0] : before;
            const double moved = lower > key ? lower : key;
            entry[i] = entry[i] < moved ? entry[i] : moved;
        }
        worst = __shfl_sync(ALL, entry[PER_LANE - 1], 31);
    }

    template <int METRIC>
    __device__ __forceinline__ double distance(u32 i) const { return METRIC == SQUARED ? sqrt(entry[i]) : entry[i]; }

    // Their sum, in any order.
    template <int METRIC>
    __device__ __forceinline__ double rough_sum(u32 k, u32 lane) const {
        double sum = 0.0;
#pragma unroll
        for (u32 i = 0; i < PER_LANE; i++)
            if (lane * PER_LANE + i >= 32 * PER_LANE - k) sum += distance<METRIC>(i);
        for (u32 bit = 16; bit; bit >>= 1) sum += __shfl_xor_sync(ALL, sum, bit);
        return sum;
    }

    // Their sum, ascending.
    template <int METRIC>
    __device__ __forceinline__ double sum(u32 k) const {
        double all[PER_LANE], total = 0.0;
#pragma unroll
        for (u32 i = 0; i < PER_LANE; i++) all[i] = distance<METRIC>(i);
        for (u32 from = 0; from < 32; from++)
#pragma unroll
            for (u32 i = 0; i < PER_LANE; i++) {
                const double x = __shfl_sync(ALL, all[i], from);
                if (from * PER_LANE + i >= 32 * PER_LANE - k) total = __dadd_rn(total, x);
            }
        return total;
    }
};

template <int METRIC>
__device__ __forceinline__ void search(const Search& s) {
    __shared__ u32 waiting[WARPS][LEVELS][32];  // bits of the bounds of the boxes that are still to be visited
    const Tree t = s.tree;  // in registers, except for its levels: the compiler cannot know that no store changes it
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row = blockIdx.x * WARPS + warp;
    if (row >= s.n) return;
    const u32 n_words = t.n_planes + 2 * t.n_groups;
    const Row x = {s.numbers + (u64)(row / 32) * t.n_numbers * 32 + row % 32, s.words + (u64)(row / 32) * n_words * 32 + row % 32};
    const double cut = s.cuts ? s.cuts[row] : -__longlong_as_double(0x7ff0000000000000ll);
    const double divisor = s.divisors ? s.divisors[row] : 1.0;
    const bool may_end = s.cuts != 0;
    Nearest near;
    near.start(s.k, lane);
    u32 level = t.n_levels - 1, parent = 0, n_visited = 0;  // lane l has the node whose children level l lists
    waiting[warp][level][lane] = lane < s.tree.size[level] ? __float_as_uint(bound<METRIC>(t, x, s.tree.first[level], lane)) : NO_BOX;
    while (level < t.n_levels) {
        const u32 mine = waiting[warp][level][lane], least = warp_min(mine);
        if (least == NO_BOX || (double)__uint_as_float(least) >= near.worst) {
            level++;
            continue;
        }
        const u32 pick = __ffs(__ballot_sync(ALL, mine == least)) - 1;
        if (lane == pick) waiting[warp][level][lane] = NO_BOX;
        const u32 node = __shfl_sync(ALL, parent, level) * 32 + pick;
        if (level) {
            level--;
            if (lane == level) parent = node;
            const u32 child = node * 32 + lane;
            waiting[warp][level][lane] =
                child < s.tree.size[level] ? __float_as_uint(bound<METRIC>(t, x, s.tree.first[level] + node, lane)) : NO_BOX;
            continue;
        }
        const u32 count = t.counts[node * 32 + lane];
        const double key = key_of<METRIC>(t, x, node, lane);
        n_visited++;
        bool is_new = false;
        for (u32 hits = __ballot_sync(ALL, count && key < near.worst); hits; hits &= hits - 1) {
            const u32 from = __ffs(hits) - 1;
            const double one = __shfl_sync(ALL, key, from);
            const u32 most = METRIC < SHARES ? 1 : __shfl_sync(ALL, count, from);
            for (u32 i = 0; i < most && one < near.worst; i++) {
                near.insert(one, lane);
                is_new = true;
            }
        }
        if (may_end && is_new && near.worst < __longlong_as_double(0x7ff0000000000000ll)) {
            const double most = near.rough_sum<METRIC>(s.k, lane) * SLACK / divisor;
            if (most < cut) {
                if (lane == 0) s.weights[row] = most;
                break;
            }
        }
    }
    if (level >= t.n_levels) {
        const double total = near.sum<METRIC>(s.k);
        if (lane == 0) s.weights[row] = total / divisor;
    }
    if (lane == 0) atomicAdd(s.pairs, (u64)n_visited * 32);
}

extern "C" __global__ void __launch_bounds__(256) screen_squared(const Search* s, const void*) { search<SQUARED>(*s); }

extern "C" __global__ void __launch_bounds__(256) screen_absolute(const Search* s, const void*) { search<ABSOLUTE>(*s); }

extern "C" __global__ void __launch_bounds__(256) screen_shares(const Search* s, const void*) { search<SHARES>(*s); }

extern "C" __global__ void __launch_bounds__(256) screen_holes(const Search* s, const void*) { search<HOLES>(*s); }
