// The state of a chain over partitions: a warp's variables in shared memory, their predecessors and values, and draws of
// parent sets.
// jtgpu/learn/dags/chains/gpu_chains.py repeats the layout of Partitions.
#include "learn/outer_sets.cuh"

#define NOBODY 0xffffffffu
enum { KIND, FIRST, SECOND, THIRD, FOURTH, ACCEPT, CONFIRM, SETS, DRAWS };

struct Partitions {
    const int* candidates;   // (n, m) possible parents, the candidates first, or -1
    const double* sums;      // (n, 2**k)
    const double* hits;      // (n, k, 2**(k - 1))
    const u64* masks;        // (n, n_sets) by descending weight
    const double* weights;   // (n, n_sets)
    const u64* outer_masks;  // (n, n_outer) sets with a member that is no candidate, in segments
    const u64* outer_counts; // (n, n_outer) weights in units of their segments
    const u32* outer_ends;   // (n, n_segments + 1)
    const double* outer_units;   // (n, n_segments)
    const double* outer_totals;  // (n, n_segments) of a segment and all later ones
    const double* outer_ratios;  // (n,)
    const double* log_factorials;
    u16* parts;              // (chains, n) the state, updated
    u64* parents;            // (chains, n)
    u64* arcs;               // (groups, n, n)
    double* trace;           // (chains,) ln weight at the last sample
    u64* best;               // (chains, n)
    double* best_weight;     // (chains,)
    u32* moves;              // (chains, 8) proposals and acceptances, added
    u64 seed, first;
    double shares[3];        // of reversals, of splits and merges, of swaps
    u32 n, k, n_sets, n_steps, thin, first_chain, n_chains, group, m, n_outer, n_segments, pad;
};

struct Chain {  // in shared memory; each array has n entries, rounded up to 4
    double *rough, *values, *gains, *exact;
    u64 *parents, *before, *last, *new_before, *new_last;
    u32* marks;
    u16 *part, *order, *next, *start, *cursor;  // start, cursor: 4 entries more
    u32* moves;
    u32 m;  // parts
};

__device__ __forceinline__ u32 chain_bytes(u32 n) {
    const u32 even = (n + 3) / 4 * 4;
    return even * (9 * 8 + 4 + 5 * 2) + 16 + 32;
}

__device__ __forceinline__ Chain chain_of_warp(u32 n) {
    const u32 even = (n + 3) / 4 * 4;
    char* at = (char*)chain_memory + (u64)(threadIdx.x / 32) * chain_bytes(n);
    Chain c;
    c.rough = (double*)at;
    c.values = c.rough + even;
    c.gains = c.values + even;
    c.exact = c.gains + even;
    c.parents = (u64*)(c.exact + even);
    c.before = c.parents + even;
    c.last = c.before + even;
    c.new_before = c.last + even;
    c.new_last = c.new_before + even;
    c.marks = (u32*)(c.new_last + even);
    c.moves = c.marks + even;
    c.part = (u16*)(c.moves + 8);
    c.order = c.part + even;
    c.next = c.order + even;
    c.start = c.next + even;
    c.cursor = c.start + even + 4;
    c.m = 0;
    return c;
}

struct Random {
    u64 seed, step;
    u32 chain;
    u32 words[8];

    __device__ __forceinline__ void begin(u64 number) {
        step = number;
        philox(seed, step, chain, 0, words);
        philox(seed, step, chain, 1, words + 4);
    }
    __device__ __forceinline__ u32 word(u32 i) const {
        u32 w[4];
        philox(seed, step, chain, i / 4, w);
        return i % 4 == 0 ? w[0] : i % 4 == 1 ? w[1] : i % 4 == 2 ? w[2] : w[3];
    }
};

// ln of the total weight of the sets of candidates of v within `before` that have a member in `last`.
__device__ __forceinline__ double of_candidates(const Partitions& o, u32 v, u64 before, u64 last) {
    double total = -infinity();
    for (last &= inner_of(o); last; last &= last - 1) {
        const u32 bit = lowest(last);
        const double x = hit(o, v, bit, before);
        if (x > -infinity()) total = log_add(x, total);
        before &= ~(1ull << bit);
    }
    return total;
}

// ln of the total weight of the parent sets of v that predecessors allow; the warp together.
__device__ __forceinline__ double value_of(const Partitions& o, u32 v, u64 before, u64 last) {
    if (!before) return all_sets(o, v, 0);
    return with_outer(o, v, before, last, of_candidates(o, v, before, last));
}

// An approximation by look-ups; exact without outer sets.
__device__ __forceinline__ double rough_of(const Partitions& o, u32 v, u64 before, u64 last) {
    if (!before) return all_sets(o, v, 0);
    double total = of_candidates(o, v, before, last);
    if (last && o.n_segments && o.outer_ratios[v] > -infinity()) {
        const double x = all_sets(o, v, before) + o.outer_ratios[v];
        if (x > -infinity() || total > -infinity()) total = log_add(x, total);
    }
    return total;
}

// The value of a variable, which is computed if it is unknown; the warp together.
__device__ __forceinline__ double current(const Partitions& o, const Chain& c, u32 v) {
    double x = c.values[v];
    if (x == infinity()) {
        x = value_of(o, v, c.before[v], c.last[v]);
        __syncwarp();
        if (lane_number() == 0) c.values[v] = x;
        __syncwarp();
    }
    return x;
}

// ln of the total weight of the parent sets of v within `before` that have a single member, or ANY; the warp together.
__device__ __forceinline__ double total_of(const Partitions& o, u32 v, u64 before, u64 met) {
    const double total = met == ANY ? all_sets(o, v, before) : of_candidates(o, v, before, met);
    return before & ~inner_of(o) ? with_outer(o, v, before, met, total) : total;
}

__device__ __forceinline__ void predecessors(const Partitions& o, const u16* part, u32 v, u64& before, u64& last) {
    const u32 own = part[v];
    before = last = 0;
    for (u32 j = 0; j < o.m; j++) {
        const int u = o.candidates[v * o.m + j];
        if (u < 0) continue;
        const u32 other = part[u];
        before |= (u64)(other < own) << j;
        last |= (u64)(other + 1 == own) << j;
    }
}

// Sort the variables by part.
__device__ __forceinline__ void sort(const Partitions& o, Chain& c) {
    const u32 lane = lane_number(), n = o.n;
    u32 most = 0;
    for (u32 i = lane; i <= n; i += 32) c.cursor[i] = 0;
    __syncwarp();
    for (u32 first = 0; first < n; first += 32) {
        const u32 v = first + lane, own = v < n ? c.part[v] : NOBODY, same = __match_any_sync(ALL, own);
        if (v < n && lowest(same) == lane) c.cursor[own] += __popc(same);
        if (v < n && own + 1 > most) most = own + 1;
        __syncwarp();
    }
    for (u32 bit = 16; bit; bit >>= 1) {
        const u32 other = __shfl_xor_sync(ALL, most, bit);
        most = other > most ? other : most;
    }
    c.m = most;
    u32 before = 0;
    for (u32 first = 0; first < n; first += 32) {  // first positions
        const u32 i = first + lane;
        const u32 own = i < n ? c.cursor[i] : 0;
        u32 sum = own;
        for (u32 by = 1; by < 32; by *= 2) {
            const u32 x = __shfl_up_sync(ALL, sum, by);
            if (lane >= by) sum += x;
        }
        if (i < n) c.start[i] = c.cursor[i] = (u16)(before + sum - own);
        before += __shfl_sync(ALL, sum, 31);
    }
    if (lane == 0) c.start[n] = (u16)n;
    __syncwarp();
    for (u32 first = 0; first < n; first += 32) {
        const u32 v = first + lane, own = v < n ? c.part[v] : NOBODY, same = __match_any_sync(ALL, own);
        if (v < n) c.order[c.cursor[own] + __popc(same & ((1u << lane) - 1))] = (u16)v;
        __syncwarp();
        if (v < n && lowest(same) == lane) c.cursor[own] += __popc(same);
        __syncwarp();
    }
}

// A parent set of v within `before` that has a member in `met`, drawn by the weights: its number. The warp takes 32 sets
// at a time.
__device__ __forceinline__ u32 draw_set(const Partitions& o, u32 v, u64 before, u64 met, double log_total, double u) {
    const u32 lane = lane_number();
    const u64* masks = o.masks + (u64)v * o.n_sets;
    const double* weights = o.weights + (u64)v * o.n_sets;
    u32 found = 0;
    double passed = 0.0;
    for (u32 first = 0; first < o.n_sets; first += 32) {
        const u32 i = first + lane;
        double weight = -infinity();
        if (i < o.n_sets) {
            const u64 mask = masks[i];
            if (!(mask & ~before) && (met == ANY || (mask & met))) weight = weights[i];
        }
        const u32 possible = __ballot_sync(ALL, weight > -infinity());
        if (!possible) continue;
        double share = 0.0;
        if (weight > -infinity()) {
            double x = weight - log_total;
            x = x > NEGLIGIBLE ? x : NEGLIGIBLE;
            share = exponential(x < 0.0 ? x : 0.0);
        }
        double all;
        const double below_own = sum_below(share, all);
        const u32 enough = possible & __ballot_sync(ALL, u - (passed + (below_own + share)) < 0.0);
        if (enough) return first + lowest(enough);
        passed += all;
        found = first + 31 - (u32)__clz((int)possible);
    }
    return found;
}

__device__ __forceinline__ u32 draw_parents(const Partitions& o, const Chain& c, u32 v, double u) {
    return draw_set(o, v, c.before[v], c.part[v] ? c.last[v] : ANY, current(o, c, v), u);
}
