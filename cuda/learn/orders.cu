// Markov chains over orders of the variables, a warp a chain: the steps of jtgpu/learn/dags/loops/orders.py.
//
// Random numbers are functions of the seed, the step and the chain's number. Probabilities of arcs are added as integers,
// so their sums depend neither on blocks nor on devices.
#include "learn/orders.cuh"

// Add the probabilities of all arcs, given the order, as multiples of 2^-32.
__device__ __forceinline__ void add_arcs(const Orders& o, const Chain& c, u64* arcs) {
    const u64 half = 1ull << (o.k - 1);
    for (u32 i = threadIdx.x % 32; i < o.n * o.k; i += 32) {
        const u32 v = i / o.k, j = i % o.k, mask = c.masks[v];
        if (!(mask >> j & 1)) continue;
        const u32 low = (1u << j) - 1, squeezed = (mask & low) | mask >> (j + 1) << j;
        double x = o.hits[i * half + squeezed] - c.values[v];
        x = x > NEGLIGIBLE ? x : NEGLIGIBLE;
        const u64 share = (u64)(exponential(x < 0.0 ? x : 0.0) * 4294967296.0 + 0.5);
        if (share) atomicAdd(&arcs[(u64)o.candidates[i] * o.n + v], share);
    }
}

extern "C" __global__ void __launch_bounds__(128) order_steps(GRID_CONSTANT Orders o) {
    const u32 at = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (at >= o.n_chains) return;
    const u32 number = o.first_chain + at;
    const Chain c = chain_at(chain_memory + (u64)(threadIdx.x / 32) * chain_words(o.n), o.n);
    start(o, c, o.orders + (u64)at * o.n);
    for (u32 t = 0; t < o.n_steps; t++) {
        step(o, c, o.first + t, number);
        if ((t + 1) % o.thin == 0) {
            if (t + o.thin >= o.n_steps) {
                double sum = 0.0;
                for (u32 v = lane; v < o.n; v += 32) sum += c.values[v];
                sum = sum_of_warp(sum);
                if (lane == 0) o.trace[at] = sum;
            }
            if (o.hits) add_arcs(o, c, o.arcs + (u64)(at / o.group) * o.n * o.n);
        }
    }
    for (u32 i = lane; i < o.n; i += 32) o.orders[(u64)at * o.n + i] = c.order[i];
}
