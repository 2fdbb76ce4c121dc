// The state and the steps of a chain over orders; a relocation of a variable evaluates all positions at once: lanes are
// positions, the weights of the positions are prefix sums.
// jtgpu/learn/dags/chains/gpu_chains.py repeats the layout of Orders.
#include "learn/outer_sets.cuh"

#define NONE 255u  // in `bits`: no possible parent

struct Orders {
    const u8* bits;        // (n, n) [v, u]: the bit of u among the possible parents of v, or NONE
    const double* sums;    // (n, 2**k)
    const double* hits;    // (n, k, 2**(k - 1))
    const int* candidates; // (n, m) possible parents, the candidates first, or -1
    const u64* outer_masks;  // of `corrected_order_steps`, as in Partitions
    const u64* outer_counts;
    const u32* outer_ends;
    const double* outer_units;
    const double* outer_totals;
    u16* orders;           // (chains, n) the state, updated
    u64* arcs;             // (groups, n, n)
    double* trace;         // (chains,) ln weight at the last sample
    u64 seed, first;       // number of the first step
    double share;          // of swaps
    u32 n, k, n_steps, thin, first_chain, n_chains, group;  // group: chains whose arcs are added
    u32 m, n_outer, n_segments, n_full, pad;  // n_full: relocations by the full weights for each sample
};

struct Chain {  // in shared memory
    double *values, *other, *weights;
    u32 *masks, *prefix;
    u16 *order, *position;
};

// Doubles of a chain: three arrays, one of two masks, one of two u16 arrays.
__device__ __forceinline__ u32 chain_words(u32 n) { return 5 * n + (n & 1); }

__device__ __forceinline__ Chain chain_at(double* at, u32 n) {
    Chain c;
    c.values = at;
    c.other = at + n;
    c.weights = at + 2 * n;
    c.masks = (u32*)(at + 3 * n);
    c.prefix = c.masks + n;
    c.order = (u16*)(at + 4 * n);
    c.position = c.order + n;
    return c;
}

// The bit of u among the candidates of v, or 0.
__device__ __forceinline__ u32 bit_of(const Orders& o, u32 v, u32 u) {
    const u32 bit = o.bits[v * o.n + u];
    return bit < o.k ? 1u << bit : 0u;
}

__device__ __forceinline__ double look_up(const Orders& o, u32 v, u32 mask) { return o.sums[((u64)v << o.k) + mask]; }

__device__ __forceinline__ void start(const Orders& o, const Chain& c, const u16* order) {
    const u32 lane = threadIdx.x % 32;
    for (u32 i = lane; i < o.n; i += 32) {
        c.order[i] = order[i];
        c.position[order[i]] = i;
    }
    __syncwarp();
    for (u32 v = lane; v < o.n; v += 32) {
        u32 mask = 0;
        for (u32 i = 0; i < c.position[v]; i++) mask |= bit_of(o, v, c.order[i]);
        c.masks[v] = mask;
        c.values[v] = look_up(o, v, mask);
    }
    __syncwarp();
}

// Exchange the variables at positions i and i + 1, or leave them.
__device__ __forceinline__ void swap(const Orders& o, const Chain& c, u32 i, double u) {
    const u32 a = c.order[i], b = c.order[i + 1];
    const u32 mask_a = c.masks[a] | bit_of(o, a, b), mask_b = c.masks[b] & ~bit_of(o, b, a);
    const double new_a = look_up(o, a, mask_a), new_b = look_up(o, b, mask_b);
    const bool rejected = log(u) >= new_a + new_b - c.values[a] - c.values[b];
    __syncwarp();
    if (!rejected && threadIdx.x % 32 == 0) {
        c.masks[a] = mask_a;
        c.masks[b] = mask_b;
        c.values[a] = new_a;
        c.values[b] = new_b;
        c.order[i] = b;
        c.order[i + 1] = a;
        c.position[a] = i + 1;
        c.position[b] = i;
    }
    __syncwarp();
}

// Move v to a position that is drawn from all positions by their weights.
__device__ __forceinline__ void relocate(const Orders& o, const Chain& c, u32 v, double u) {
    const u32 lane = threadIdx.x % 32, n = o.n, old = c.position[v];
    double gained = 0.0, most = -infinity();
    u32 mask = 0;
    for (u32 first = 0; first < n; first += 32) {  // lane: a position of v, and the variable there without v
        const u32 p = first + lane;
        double gain = 0.0;
        u32 own = 0;
        if (p + 1 < n) {
            const u32 w = c.order[p < old ? p : p + 1], bit = bit_of(o, w, v), now = c.masks[w];
            const double value = c.values[w];
            const double changed = bit ? look_up(o, w, p < old ? now | bit : now & ~bit) : value;
            c.other[p] = changed;
            gain = p < old ? value - changed : changed - value;  // when v comes after w
            own = bit_of(o, v, w);
        }
        double all;
        u32 joined;
        const double before = gained + sum_below(gain, all);
        const u32 own_mask = mask | union_below(own, joined);
        gained += all;
        mask |= joined;
        if (p < n) {
            const double weight = before + look_up(o, v, own_mask);
            c.prefix[p] = own_mask;
            c.weights[p] = weight;
            most = weight > most ? weight : most;
        }
    }
    for (u32 bit = 16; bit; bit >>= 1) {
        const double other = __shfl_xor_sync(ALL, most, bit);
        most = other > most ? other : most;
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
    const u32 low = to < old ? to : old, high = to < old ? old : to;  // v leaves one end and comes to the other
    const u32 chunks = (high - low + 31) / 32;
    for (u32 j = 0; j < chunks; j++) {
        const u32 chunk = to > old ? j : chunks - 1 - j;
        const u32 i = low + chunk * 32 + lane;  // rest index
        const bool moves = i < high;
        u32 w = 0;
        if (moves) w = c.order[to > old ? i + 1 : i];
        __syncwarp();
        if (moves) {
            const u32 at = to > old ? i : i + 1;
            c.order[at] = w;
            c.position[w] = at;
            c.masks[w] ^= bit_of(o, w, v);
            c.values[w] = c.other[i];
        }
        __syncwarp();
    }
    if (lane == 0) {
        c.order[to] = v;
        c.position[v] = to;
        c.masks[v] = c.prefix[to];
        c.values[v] = look_up(o, v, c.prefix[to]);
    }
    __syncwarp();
}

// One step with the random numbers of its number.
__device__ __forceinline__ void step(const Orders& o, const Chain& c, u64 number, u32 chain) {
    u32 w[4];
    philox(o.seed, number, chain, 0, w);
    if (uniform(w[1]) < o.share) swap(o, c, below(w[0], o.n - 1), uniform(w[2]));
    else relocate(o, c, below(w[0], o.n), uniform(w[2]));
}
