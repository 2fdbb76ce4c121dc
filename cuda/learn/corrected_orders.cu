// Markov chains over orders whose weights include outer sets, a warp a chain: the steps of `corrected_order_steps` in
// jtgpu/learn/dags/loops/outer_sets.py, of which the functions here have the names.
//
// Steps look up the sums over candidates. After each sample's steps, the new order is accepted by the weight of the outer
// sets, or the old one restored; then some variables are relocated by the full weights. Lanes are sets of a list.
#include "learn/orders.cuh"

#define CORRECTION 1  // last word of the counter of the random numbers; more are for relocations

struct Full {  // in shared memory: the chain by its full weights
    double *totals, *own;
    u64* before;
    u16* old;
};

__device__ __forceinline__ u64 parent_bit(const Orders& o, u32 v, u32 u) {
    const u32 bit = o.bits[v * o.n + u];
    return bit == NONE ? 0ull : 1ull << bit;
}

__device__ __forceinline__ double total_of(const Orders& o, u32 v, u64 before) {
    return with_outer(o, v, before, ANY, all_sets(o, v, before));
}

__device__ __forceinline__ void totals_of_order(const Orders& o, const Chain& c, const Full& f) {
    const u32 lane = lane_number();
    for (u32 v = lane; v < o.n; v += 32) {
        u64 before = 0;
        for (u32 i = 0; i < c.position[v]; i++) before |= parent_bit(o, v, c.order[i]);
        f.before[v] = before;
    }
    __syncwarp();
    for (u32 v = 0; v < o.n; v++) {
        const double x = total_of(o, v, f.before[v]);
        if (lane == 0) f.totals[v] = x;
    }
    __syncwarp();
}

__device__ __forceinline__ double sum_of(const double* values, u32 n) {
    double sum = 0.0;
    for (u32 v = lane_number(); v < n; v += 32) sum += values[v];
    return sum_of_warp(sum);
}

// Move v to a position that is drawn by the full weights; c.masks and c.values are not updated.
__device__ __forceinline__ void relocate_fully(const Orders& o, const Chain& c, const Full& f, u32 v, double u) {
    const u32 lane = lane_number(), n = o.n, now = c.position[v];
    double base = 0.0, own = total_of(o, v, 0), most = -infinity();
    u64 mask = 0;
    for (u32 i = 0; i + 1 < n; i++) {  // totals of the others on the other side of v
        const u32 w = c.order[i < now ? i : i + 1];
        const u64 bit = parent_bit(o, w, v);
        const double x = bit ? total_of(o, w, f.before[w] ^ bit) : f.totals[w];
        base += i < now ? x : f.totals[w];
        __syncwarp();
        if (lane == 0) c.other[i] = x;
        __syncwarp();
    }
    for (u32 p = 0; p < n; p++) {
        if (p) {
            const u32 w = c.order[p <= now ? p - 1 : p];
            base += p <= now ? f.totals[w] - c.other[p - 1] : c.other[p - 1] - f.totals[w];
            const u64 bit = parent_bit(o, v, w);
            if (bit) {
                mask |= bit;
                own = total_of(o, v, mask);
            }
        }
        most = base + own > most ? base + own : most;
        __syncwarp();
        if (lane == 0) {
            f.own[p] = own;
            c.weights[p] = base + own;
        }
        __syncwarp();
    }
    double total = 0.0;
    for (u32 first = 0; first < n; first += 32) {
        const u32 p = first + lane;
        double share = 0.0, all;
        if (p < n) {
            const double x = c.weights[p] - most;
            share = exponential(x > NEGLIGIBLE ? x : NEGLIGIBLE);
        }
        const double before = total + sum_below(share, all);
        if (p < n) c.weights[p] = before + share;
        total += all;
    }
    const double target = u * total;
    u32 to = 0;
    for (u32 first = 0; first < n; first += 32) {
        const u32 p = first + lane;
        to += __popc(__ballot_sync(ALL, p < n && c.weights[p] <= target));
    }
    to = to < n - 1 ? to : n - 1;
    __syncwarp();
    if (lane == 0) {
        for (u32 i = now; i != to;) {
            const u32 next = to > now ? i + 1 : i - 1, w = c.order[next];
            const u64 bit = parent_bit(o, w, v);
            c.order[i] = (u16)w;
            c.position[w] = (u16)i;
            if (bit) {
                f.before[w] ^= bit;
                f.totals[w] = c.other[to > now ? i : next];
            }
            i = next;
        }
        c.order[to] = (u16)v;
        c.position[v] = (u16)to;
        f.totals[v] = f.own[to];
        u64 before = 0;
        for (u32 i = 0; i < to; i++) before |= parent_bit(o, v, c.order[i]);
        f.before[v] = before;
    }
    __syncwarp();
}

__device__ __forceinline__ double share_of(double log_share) {
    const double x = log_share > NEGLIGIBLE ? log_share : NEGLIGIBLE;
    return exponential(x < 0.0 ? x : 0.0);
}

// Add the probabilities of the possible parents of v, given the order, as multiples of 2^-32; lanes are parents.
__device__ __forceinline__ void add_shares(const Orders& o, u32 v, u64 before, double total, u64* arcs) {
    const u32 lane = lane_number();
    double shares[2];
    for (u32 i = 0; i < 2; i++) {
        const u32 j = lane + 32 * i;
        shares[i] = j < o.k && before >> j & 1 ? share_of(hit(o, v, j, before) - total) : 0.0;
    }
    const u64* masks = o.outer_masks + (u64)v * o.n_outer;
    const u64* counts = o.outer_counts + (u64)v * o.n_outer;
    const u32* ends = o.outer_ends + v * (o.n_segments + 1);
    for (u32 s = 0; s < o.n_segments; s++) {
        if (o.outer_totals[v * o.n_segments + s] <= total + NEGLIGIBLE_REST) break;
        const double unit = o.outer_units[v * o.n_segments + s] - total;
        for (u32 first = ends[s]; first < ends[s + 1]; first += 32) {  // lanes are sets, then again parents
            const u32 i = first + lane;
            const u64 mask = i < ends[s + 1] ? masks[i] : ANY;
            const bool allowed = i < ends[s + 1] && !(mask & ~before);
            const double x = allowed ? share_of(unit + log((double)counts[i])) : 0.0;
            for (u32 left = __ballot_sync(ALL, allowed); left; left &= left - 1) {
                const u32 from = lowest(left);
                const double y = __shfl_sync(ALL, x, from);
                const u64 set = (u64)__double_as_longlong(__shfl_sync(ALL, __longlong_as_double((long long)mask), from));
                for (u32 b = 0; b < 2; b++)
                    if (set >> (lane + 32 * b) & 1) shares[b] += y;
            }
        }
    }
    for (u32 i = 0; i < 2; i++) {
        const u32 j = lane + 32 * i;
        if (j >= o.m || !(before >> j & 1)) continue;
        const u64 share = (u64)((shares[i] < 1.0 ? shares[i] : 1.0) * 4294967296.0 + 0.5);
        if (share) atomicAdd(&arcs[(u64)o.candidates[v * o.m + j] * o.n + v], share);
    }
}

extern "C" __global__ void __launch_bounds__(128) corrected_order_steps(GRID_CONSTANT Orders o) {
    const u32 at = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = lane_number(), n = o.n;
    if (at >= o.n_chains) return;
    const u32 number = o.first_chain + at, own_words = (n + 3) / 4;
    double* memory = chain_memory + (u64)(threadIdx.x / 32) * (chain_words(n) + 3 * n + own_words);
    const Chain c = chain_at(memory, n);
    memory += chain_words(n);
    const Full f = {memory, memory + n, (u64*)(memory + 2 * n), (u16*)(memory + 3 * n)};
    start(o, c, o.orders + (u64)at * n);
    totals_of_order(o, c, f);
    for (u32 t = 0; t + o.thin <= o.n_steps; t += o.thin) {
        for (u32 i = lane; i < n; i += 32) f.old[i] = c.order[i];
        __syncwarp();
        const double excess = sum_of(f.totals, n) - sum_of(c.values, n);
        for (u32 i = 0; i < o.thin; i++) step(o, c, o.first + t + i, number);
        totals_of_order(o, c, f);
        const u64 last = o.first + t + o.thin - 1;
        u32 w[4];
        philox(o.seed, last, number, CORRECTION, w);
        if (!(log(uniform(w[0])) < sum_of(f.totals, n) - sum_of(c.values, n) - excess)) {
            for (u32 i = lane; i < n; i += 32) {
                c.order[i] = f.old[i];
                c.position[f.old[i]] = (u16)i;
            }
            __syncwarp();
            totals_of_order(o, c, f);
        }
        for (u32 r = 0; r < o.n_full; r++) {
            philox(o.seed, last, number, CORRECTION + 1 + r, w);
            relocate_fully(o, c, f, below(w[0], n), uniform(w[1]));
        }
        start(o, c, c.order);
        if (t + 2 * o.thin > o.n_steps) {
            const double sum = sum_of(f.totals, n);
            if (lane == 0) o.trace[at] = sum;
        }
        u64* arcs = o.arcs + (u64)(at / o.group) * n * n;
        for (u32 v = 0; v < n; v++) add_shares(o, v, f.before[v], f.totals[v], arcs);
    }
    for (u32 i = lane; i < n; i += 32) o.orders[(u64)at * n + i] = c.order[i];
}
