// A whole propagation of one case: enter, one kernel a level, finish; queued as one graph with programmatic
// dependent launch.
//
//   enter         multiplies evidence into the factors; touches only factors that have or had evidence
//   level_light   a level of contractions, tiles of up to 4 outputs a thread: 3 blocks an SM
//   level_heavy   the same with tiles of up to 16 outputs: fewer loads, more registers, 2 blocks an SM
//   finish        normalises every posterior, writes the answers to the host's memory, resets the slots
//
// States are read from page-locked host memory, and answers are written straight to it: copies as nodes of the graph
// take 2 us each.
// Versions that were tried: docs/notes.
#include "single/tile.cuh"

#define MAX_AXES 64
#define CHUNK_SHARE 8  // entries of a chunk that a thread computes
#define LIGHT_BLOCKS 3  // of an SM
#define HEAVY_BLOCKS 2

struct Known { u32 variable, inner, card, weight; };  // an axis of an evidence factor

struct Chunk {   // a block's share of one factor
    u32 cell, from, n;          // first cell of the factor in the arena; this chunk's first entry, entries (<= 2048)
    u32 table, known, n_known;
    u32 top, pad;               // word_of the largest entry without evidence
};

struct Entry {
    const Chunk* chunks;
    const Known* known;
    const double* pristine;       // the factors without evidence, at the arena's places
    const int* state;           // host: (V,) -1 not observed, -2 weights, else the state
    const double* weights;      // one vector a variable; on the device, since the compiler loads them early
    u32* dirty;                 // (chunks,) whether it carries evidence of the last run
};

extern "C" __global__ void __launch_bounds__(256) enter(Program p, Entry in) {
    __shared__ int state[MAX_AXES];
    __shared__ Known axes[MAX_AXES];
    let_next_start();
    const Chunk c = in.chunks[blockIdx.x];
    const bool before = in.dirty[blockIdx.x] != 0;
    double value[CHUNK_SHARE];  // loaded while the states come across the bus
#pragma unroll
    for (u32 k = 0; k < CHUNK_SHARE; k++) {
        const u32 i = k * 256 + threadIdx.x;
        value[k] = i < c.n ? in.pristine[c.cell + c.from + i] : 0.0;
    }
    bool seen = false;
    if (threadIdx.x < c.n_known) {
        const Known axis = in.known[c.known + threadIdx.x];
        const int of = in.state[axis.variable];
        axes[threadIdx.x] = axis;
        state[threadIdx.x] = of;
        seen = of != -1;
    }
    const bool now = __syncthreads_or(seen) != 0;
    int* most = &p.slots[c.table].top;  // `finish` left 0
    if (!now && !before) {
        if (threadIdx.x == 0 && (int)c.top > 0) atomicMax(most, (int)c.top);
        return;
    }
    double top = 0.0;
#pragma unroll
    for (u32 k = 0; k < CHUNK_SHARE; k++) {
        const u32 i = k * 256 + threadIdx.x;
        if (i >= c.n) break;
        for (u32 v = 0; v < c.n_known; v++) {
            if (state[v] == -1) continue;
            const u32 at = (c.from + i) / axes[v].inner % axes[v].card;
            if (state[v] == -2)
                value[k] *= in.weights[axes[v].weight + at];
            else if (state[v] != (int)at)
                value[k] = 0.0;
        }
        p.arena[c.cell + c.from + i] = (double)value[k];
        top = value[k] > top ? value[k] : top;
    }
    const int high = warp_max(word_of((double)top));
    if ((threadIdx.x & 31) == 0 && high > 0) atomicMax(most, high);
    if (threadIdx.x == 0) in.dirty[blockIdx.x] = now;
}

extern "C" __global__ void __launch_bounds__(256, LIGHT_BLOCKS) level_light(Program p, u32 first) {
    __shared__ double shared[WARPS * 64 + 1];
    level<false>(p, first, blockIdx.x, shared);
}

extern "C" __global__ void __launch_bounds__(256, HEAVY_BLOCKS) level_heavy(Program p, u32 first) {
    __shared__ double shared[WARPS * 64 + 1];
    level<true>(p, first, blockIdx.x, shared);
}

struct Answer { u32 cell, card, at; };   // a posterior: in the arena, its states, its place in the answers

struct Finish {
    const Answer* answers;
    const u32* roots;        // (2 * n_roots,) cell and table of each component's P(e)
    double* posterior;       // host
    double* root;            // host
    int* exponent;           // host
    const Chunk* chunks;
    u32 n_answers, n_roots, n_factors, n_tables, n_chunks, pad;  // n_tables: the first ones, whose slots are reset
};

extern "C" __global__ void __launch_bounds__(256) finish(Program p, Finish f) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    const u32 all = gridDim.x * blockDim.x;
    wait_for_previous();
    for (u32 v = thread >> 5; v < f.n_answers; v += all >> 5) {
        const Answer a = f.answers[v];
        double total = 0.0;
        for (u32 i = lane; i < a.card; i += 32) total += p.arena[a.cell + i];
        for (u32 bit = 16; bit; bit >>= 1) total += __shfl_xor_sync(0xffffffffu, total, bit);
        for (u32 i = lane; i < a.card; i += 32)
            f.posterior[a.at + i] = total > 0.0 ? p.arena[a.cell + i] / total : 0.0;
    }
    for (u32 i = thread; i < f.n_roots; i += all) {
        f.root[i] = p.arena[f.roots[2 * i]];
        f.exponent[i] = p.slots[f.roots[2 * i + 1]].exponent;
    }
    for (u32 t = f.n_factors + thread; t < f.n_tables; t += all) p.slots[t].top = 0;
    for (u32 c = thread; c < f.n_chunks; c += all) p.slots[f.chunks[c].table].top = 0;  // `enter` writes it
}
