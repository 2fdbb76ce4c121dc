// Sums over the parent sets of a variable: look-ups of the sets of candidates, and outer sets, which have a member that is
// no candidate and are summed one by one. Tables is the record of a kernel, with the fields of
// jtgpu.learn.dags.chain_records.SetTables.
#include "learn/chains.cuh"

#define NEGLIGIBLE_REST -16.0
#define ANY (~0ull)

__device__ __forceinline__ u32 lane_number() { return threadIdx.x % 32; }
__device__ __forceinline__ u32 lowest(u64 mask) { return __popcll((mask & (0ull - mask)) - 1); }
template <class Tables>
__device__ __forceinline__ u64 inner_of(const Tables& o) { return (1ull << o.k) - 1; }

// ln(exp(x) + exp(y)) for x above -inf.
__device__ __forceinline__ double log_add(double x, double y) {
    if (y == -infinity()) return x;
    const double high = x > y ? x : y, low = x > y ? y : x;
    return high + log1p(exp(low - high));
}

__device__ __forceinline__ u64 sum_of_warp(u64 x) {
    for (u32 bit = 16; bit; bit >>= 1)
        x += (u64)__double_as_longlong(__shfl_xor_sync(ALL, __longlong_as_double((long long)x), bit));
    return x;
}

template <class Tables>
__device__ __forceinline__ double hit(const Tables& o, u32 v, u32 bit, u64 before) {
    const u32 mask = (u32)(before & inner_of(o));
    const u32 squeezed = (mask & ((1u << bit) - 1)) | (mask >> (bit + 1)) << bit;
    return o.hits[((u64)(v * o.k + bit) << (o.k - 1)) + squeezed];
}

template <class Tables>
__device__ __forceinline__ double all_sets(const Tables& o, u32 v, u64 mask) {
    return o.sums[((u64)v << o.k) + (mask & inner_of(o))];
}

// Add the weights of the outer sets of v within `before` that have a member in `met` to a total; the warp together.
template <class Tables>
__device__ __forceinline__ double with_outer(const Tables& o, u32 v, u64 before, u64 met, double total) {
    const u64* masks = o.outer_masks + (u64)v * o.n_outer;
    const u64* counts = o.outer_counts + (u64)v * o.n_outer;
    const u32* ends = o.outer_ends + v * (o.n_segments + 1);
    for (u32 s = 0; s < o.n_segments; s++) {
        if (o.outer_totals[v * o.n_segments + s] <= total + NEGLIGIBLE_REST) break;
        u64 count = 0;
        for (u32 i = ends[s] + lane_number(); i < ends[s + 1]; i += 32)
            if (!(masks[i] & ~before) && (masks[i] & met)) count += counts[i];
        count = sum_of_warp(count);
        if (count) total = log_add(o.outer_units[v * o.n_segments + s] + log((double)count), total);
    }
    return total;
}
