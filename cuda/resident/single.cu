// A whole propagation of one case: enter, one kernel a level, finish; queued as one graph with programmatic
// dependent launch.
//
//   enter         multiplies what is known into the factors; touches only factors whose evidence is there or was there
//   level_light   a level of contractions, tiles of up to 4 outputs a thread: 3 blocks an SM
//   level_heavy   the same with tiles of up to 16 outputs: fewer loads, more registers, 2 blocks an SM
//   finish        normalises every posterior, writes the answers to the host's memory, readies the slots for the next run
//
// Answers are written straight to page-locked host memory; the states are copied in by the graph's first node.
// Versions tried, and why this one: see cuda/resident/README.rst.
#include "resident/tile.cuh"

#define MOST_AXES 64

struct Known { u32 variable, inner, card, weight; };  // an axis of a factor that evidence is multiplied into

struct Chunk {   // a block's share of one factor
    u32 cell, from, n;          // first cell of the factor in the arena; this chunk's first entry and entries
    u32 table, known, n_known;
    u32 first, n_chunks;        // of the factor
};

struct Entry {
    const Chunk* chunks;
    const Known* known;
    const double* pristine;     // the factors as they are without evidence, at the arena's places
    const int* state;           // (V,) -1 not known, -2 weights, else the state
    const double* weights;      // one vector a variable
    u32* dirty;                 // (T,) whether a factor carries evidence of the last run
    int* parts;                 // a chunk's largest entry
    u32* counters;
};

__device__ __forceinline__ int block_max(int value, int* shared) {
    value = warp_max(value);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = value;
    __syncthreads();
    int most = shared[0];
    for (u32 w = 1; w < blockDim.x / 32; w++) most = shared[w] > most ? shared[w] : most;
    return most;
}

extern "C" __global__ void __launch_bounds__(256) enter(Program p, Entry in) {
    __shared__ int state[MOST_AXES];
    __shared__ int most[32];
    __shared__ u32 last;
    let_next_start();
    const Chunk c = in.chunks[blockIdx.x];
    bool given = false;
    if (threadIdx.x < c.n_known) {
        state[threadIdx.x] = in.state[in.known[c.known + threadIdx.x].variable];
        given = state[threadIdx.x] != -1;
    }
    const bool now = __syncthreads_or(given) != 0;
    if (!now && !in.dirty[c.table]) return;
    double top = 0.0;
    for (u32 i = c.from + threadIdx.x; i < c.from + c.n; i += blockDim.x) {
        double value = in.pristine[c.cell + i];
        for (u32 v = 0; v < c.n_known; v++) {
            if (state[v] == -1) continue;
            const Known axis = in.known[c.known + v];
            u32 at = i / axis.inner % axis.card;
            value *= state[v] == -2 ? in.weights[axis.weight + at] : (double)(state[v] == (int)at);
        }
        p.arena[c.cell + i] = value;
        top = value > top ? value : top;
    }
    int high = block_max(__double2hiint(top), most);
    if (c.n_chunks == 1) {
        if (threadIdx.x == 0) {
            p.slots[c.table].top = high;
            in.dirty[c.table] = now;
        }
        return;
    }
    if (threadIdx.x == 0) {
        in.parts[blockIdx.x] = high;
        __threadfence();
        last = atomicAdd(in.counters + c.table, 1u) == c.n_chunks - 1;
        if (last) {
            __threadfence();
            const volatile int* parts = in.parts + c.first;
            for (u32 i = 0; i < c.n_chunks; i++) high = parts[i] > high ? parts[i] : high;
            p.slots[c.table].top = high;
            in.dirty[c.table] = now;
            in.counters[c.table] = 0;
        }
    }
}

template <bool HEAVY>
__device__ __forceinline__ void level(const Program& p, u32 first, double* shared) {
    let_next_start();
    const u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const Task task = p.tasks[first + blockIdx.x * WARPS + warp];
    if (task.op == NONE) {
        wait_for_previous();
        return;
    }
    const Op& op = p.ops[task.op];
    switch (op.shape) {
        case 1 * 8 + 1: run_unit<1, 1, 4>(p, op, task.unit, warp, lane, shared, true); break;
        case 4 * 8 + 1: run_unit<4, 1, 2>(p, op, task.unit, warp, lane, shared, true); break;
        case 2 * 8 + 2: run_unit<2, 2, 2>(p, op, task.unit, warp, lane, shared, true); break;
        case 4 * 8 + 2: if (HEAVY) { run_unit<4, 2, 2>(p, op, task.unit, warp, lane, shared, true); break; }
        case 4 * 8 + 4: if (HEAVY) { run_unit<4, 4, 1>(p, op, task.unit, warp, lane, shared, true); break; }
        default: __trap();
    }
}

extern "C" __global__ void __launch_bounds__(256, 3) level_light(Program p, u32 first) {
    __shared__ double shared[WARPS * 64 + 1];
    level<false>(p, first, shared);
}

extern "C" __global__ void __launch_bounds__(256, 2) level_heavy(Program p, u32 first) {
    __shared__ double shared[WARPS * 64 + 1];
    level<true>(p, first, shared);
}

struct Answer { u32 cell, card, at; };   // a posterior: in the arena, its states, its place in the answers

struct Finish {
    const Answer* answers;
    const u32* roots;        // (2 * n_roots,) cell and table of each component's P(e)
    double* posterior;       // host
    double* root;            // host
    int* exponent;           // host
    u32 n_answers, n_roots, n_factors, n_tables;
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
}
