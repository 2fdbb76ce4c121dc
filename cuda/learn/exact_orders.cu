// The exact posterior under the order-modular prior (Koivisto and Sood, 2004), and the graph of the highest weight
// (Silander and Myllymaki, 2006), from tables of sums, or maxima, over the parent sets of each variable.
//
// Sets of variables are taken level by level: a warp has the sets that differ in their five lowest variables, and a
// launch those of as many other variables. What a set needs of the higher variables is from launches before, and of the
// lower ones from other lanes. No cell is written twice.
// jtgpu/learn/dags/gpu_exact_orders.py fills the structs.
#include "learn/wide.cuh"

#define ALL 0xffffffffu
#define THREADS 256
#define LOW 5

struct OrderSums {
    const double* sums;  // (n, 2**(n - 1)) by the set of predecessors as squeezed bits
    double* forward;     // (2**n,) of the orders of each set, as the first variables
    double* backward;    // as the last ones; unused by `best_level`
    double* table;       // (2**(n - 1),) of one variable: by its predecessors
    const double* log_weights;  // (n_sets,) of this variable
    const long long* masks;     // (n_sets,)
    double* families;    // (n_sets,) posterior probabilities
    int* order;          // (n,)
    const double* u;     // (n, n_draws) uniform random numbers
    long long* before;   // (n, n_draws) predecessors of each variable in each drawn order, squeezed
    double* totals;      // (n, n_draws) their entries of `sums`
    double log_total;
    u32 n, level, v, n_sets, n_draws, pad;
};

__device__ __forceinline__ u64 at(const OrderSums& o, u32 v, u32 before) { return ((u64)v << (o.n - 1)) + squeezed(before, v); }

// Sets of `level` variables beyond the lowest five.
template <bool IS_BEST>
__device__ __forceinline__ void take_level(const OrderSums& o) {
    const u32 low = o.n < LOW ? o.n : LOW, lane = threadIdx.x % 32;
    const u32 high = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, every = (1u << o.n) - 1;
    if (high >> (o.n - low) || (u32)__popc(high) != o.level) return;
    const bool is_set = !(lane >> low);
    const u32 s = high << low | (is_set ? lane : 0), absent = every & ~s;
    Wide first = zero(), last = zero();
    double best = -infinity();
    for (u32 left = high << low; left; left &= left - 1) {
        const u32 v = (u32)__popc((left & (0u - left)) - 1), others = s & ~(1u << v);
        const double x = o.sums[at(o, v, others)] + o.forward[others];
        if (IS_BEST) {
            best = x > best ? x : best;
        } else {
            add(first, split(x));
            add(last, split(o.sums[at(o, v, absent)] + o.backward[others]));
        }
    }
    double of_first = 0.0, of_last = 0.0;
    for (u32 count = 0; count <= low; count++) {
        const bool now = is_set && (u32)__popc(lane) == count;
        for (u32 v = 0; v < low; v++) {
            const double x = __shfl_xor_sync(ALL, of_first, 1u << v), y = __shfl_xor_sync(ALL, of_last, 1u << v);
            if (!now || !(lane >> v & 1)) continue;
            const double whole = o.sums[at(o, v, s & ~(1u << v))] + x;
            if (IS_BEST) {
                best = whole > best ? whole : best;
            } else {
                add(first, split(whole));
                add(last, split(o.sums[at(o, v, absent)] + y));
            }
        }
        if (now) {
            of_first = !s ? 0.0 : IS_BEST ? best : log_of(first);
            of_last = !s || IS_BEST ? 0.0 : log_of(last);
        }
    }
    if (!is_set) return;
    o.forward[s] = of_first;
    if (!IS_BEST) o.backward[s] = of_last;
}

extern "C" __global__ void __launch_bounds__(THREADS) order_level(GRID_CONSTANT OrderSums o) { take_level<false>(o); }
extern "C" __global__ void __launch_bounds__(THREADS) best_level(GRID_CONSTANT OrderSums o) { take_level<true>(o); }

// The share of the orders in which exactly these variables precede v.
extern "C" __global__ void __launch_bounds__(THREADS) predecessors(GRID_CONSTANT OrderSums o) {
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >> (o.n - 1)) return;
    const u32 before = expanded((u32)i, o.v), after = ((1u << o.n) - 1) & ~before & ~(1u << o.v);
    o.table[i] = o.forward[before] + o.backward[after] - o.log_total;
}

extern "C" __global__ void __launch_bounds__(THREADS) order_families(GRID_CONSTANT OrderSums o) {
    const u32 i = blockIdx.x * THREADS + threadIdx.x;
    if (i < o.n_sets) o.families[i] = exp(o.log_weights[i] + o.table[o.masks[i]]);
}

__device__ __forceinline__ double most_of_warp(double x) {
    for (u32 bit = 16; bit; bit >>= 1) {
        const double y = __shfl_xor_sync(ALL, x, bit);
        x = y > x ? y : x;
    }
    return x;
}

// Order of the best graph, one warp: the first variable of the highest value is the last one of the order.
extern "C" __global__ void __launch_bounds__(32) best_order(GRID_CONSTANT OrderSums o) {
    const u32 v = threadIdx.x;
    u32 left = (1u << o.n) - 1;
    for (int position = (int)o.n - 1; position >= 0; position--) {
        const u32 others = left & ~(1u << v);
        const double x = v < o.n && left >> v & 1 ? o.sums[at(o, v, others)] + o.forward[others] : -infinity();
        const double most = most_of_warp(x);
        const u32 chosen = (u32)__ffs((int)__ballot_sync(ALL, v < o.n && left >> v & 1 && x == most)) - 1;
        if (v == 0) o.order[position] = (int)chosen;
        left &= ~(1u << chosen);
    }
}

// Draw orders, a warp each: the last variable first, by the terms of the sums.
extern "C" __global__ void __launch_bounds__(THREADS) draw_orders(GRID_CONSTANT OrderSums o) {
    const u32 draw = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, v = threadIdx.x % 32;
    if (draw >= o.n_draws) return;
    u32 left = (1u << o.n) - 1;
    for (int position = (int)o.n - 1; position >= 0; position--) {
        const bool is_left = v < o.n && left >> v & 1;
        const u32 others = left & ~(1u << v);
        const double of_sets = is_left ? o.sums[at(o, v, others)] : 0.0;
        const double x = is_left ? of_sets + o.forward[others] : -infinity();
        const double most = most_of_warp(x);
        double share = x == -infinity() ? 0.0 : exp(x - most);
        for (u32 by = 1; by < 32; by *= 2) {
            const double y = __shfl_up_sync(ALL, share, by);
            if (v >= by) share += y;
        }
        const double target = o.u[(u64)position * o.n_draws + draw] * __shfl_sync(ALL, share, o.n - 1);
        u32 chosen = (u32)__popc(__ballot_sync(ALL, v < o.n && share <= target));
        chosen = chosen < o.n ? chosen : o.n - 1;
        if (v == chosen) {
            o.before[(u64)v * o.n_draws + draw] = squeezed(others, v);
            o.totals[(u64)v * o.n_draws + draw] = of_sets;
        }
        left &= ~(1u << chosen);
    }
}
