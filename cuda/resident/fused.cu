// A whole network in one block: every table, record and message in shared memory, one kernel a propagation.
//
// For networks whose arena and records fit the 227 KB of shared memory that a block may take. The block copies the
// records and the factors in, multiplies the evidence into the factors on the way, and runs level after level with a
// barrier between them (0.05 us instead of the 0.9 us from one kernel to the next). A warp takes a contraction's unit
// as in single.cu, with the same code. Wins by far below some thousand cells; loses as soon as one SM's arithmetic,
// and not the hand-over, is what takes the time.
#include "resident/tile.cuh"

#define FUSED_THREADS 512
#define FUSED_WARPS (FUSED_THREADS / 32)

#ifdef __CUDACC__
#define SHARED_MEMORY extern __shared__ double memory[];
#else
static double* host_memory;
#define SHARED_MEMORY double* memory = host_memory;
#endif

struct Factor { u32 cell, n, table, known, n_known; };
struct Known { u32 variable, inner, card, weight; };
struct Answer { u32 cell, card, at; };

struct Fused {
    const double* image;      // what shared memory holds at the start: the arena, then the records
    const int* state;         // host: (V,) -1 not known, -2 weights, else the state
    const double* weights;    // host
    double* posterior;        // host
    double* root;             // host
    int* exponent;            // host
    u32 n_image;              // cells; the states follow
    u32 slots, ops, digits, steps, tasks, levels, factors, known, answers, roots;  // first cells of the records
    u32 n_levels, n_factors, n_answers, n_roots, n_variables;
};

// What a warp needs for its next unit and can know before the tables are there: fetched ahead of the barrier.
struct Turn {
    bool real, first;
    u32 a, b, out, slot_a, slot_b, slot_out, log, k, n_steps;
    const uint2* steps;
};

__device__ __forceinline__ Turn turn_of(const Program& p, u32 t, u32 lane) {
    const Task task = p.tasks[t];
    const Op& op = p.ops[task.op];
    const u32 tile = task.unit * (32u >> op.log_lanes) + (lane >> op.log_lanes);
    const Place at = place_of(op, p.digits, tile < op.n_tiles ? tile : op.n_tiles - 1);
    Turn r;
    r.log = op.log_lanes;
    r.k = lane & ((1u << r.log) - 1);
    r.real = tile < op.n_tiles;
    r.first = task.unit == 0 && lane == 0;
    r.a = op.a + at.a;
    r.b = op.b + at.b;
    r.out = op.out + at.out;
    r.slot_a = op.slot_a;
    r.slot_b = op.slot_b;
    r.slot_out = op.slot_out;
    r.n_steps = op.n_steps;
    r.steps = p.steps + op.steps;
    return r;
}

__device__ __forceinline__ void run_turn(const Program& p, const Turn& r, u32 lane) {
    const Scales scale = scales_of(p.slots[r.slot_a], p.slots[r.slot_b]);
    double sum = 0.0;
#pragma unroll 4
    for (u32 k = r.k; k < r.n_steps; k += 1u << r.log) {
        const uint2 s = r.steps[k];
        sum += (p.arena[r.a + s.x] * scale.a) * (p.arena[r.b + s.y] * scale.b);
    }
    u32 unused = 0;
    Fold<1>::run(&sum, lane, r.log, unused);
    if (r.real && r.k == 0) p.arena[r.out] = sum;
    if (r.first) p.slots[r.slot_out].exponent = scale.exponent;
    publish(p.slots + r.slot_out, r.real ? sum : 0.0, lane);
}

extern "C" __global__ void __launch_bounds__(FUSED_THREADS) fused(Fused f) {
    SHARED_MEMORY
    const u32 thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
    int* states = (int*)(memory + f.n_image);
    for (u32 v = thread; v < f.n_variables; v += FUSED_THREADS) states[v] = f.state[v];
#pragma unroll 8
    for (u32 i = thread; i < f.n_image; i += FUSED_THREADS) memory[i] = f.image[i];
    __syncthreads();
    Program p;
    p.arena = memory;
    p.slots = (Slot*)(memory + f.slots);
    p.ops = (const Op*)(memory + f.ops);
    p.digits = (const Digit*)(memory + f.digits);
    p.steps = (const uint2*)(memory + f.steps);
    p.tasks = (const Task*)(memory + f.tasks);
    p.scratch = 0;
    p.counters = 0;
    const Factor* factors = (const Factor*)(memory + f.factors);
    const Known* known = (const Known*)(memory + f.known);
    for (u32 i = warp; i < f.n_factors; i += FUSED_WARPS) {  // evidence: a warp a factor
        const Factor factor = factors[i];
        bool given = false;
        for (u32 v = lane; v < factor.n_known; v += 32) given |= states[known[factor.known + v].variable] != -1;
        if (!warp_max((int)given)) continue;
        double top = 0.0;
        for (u32 e = lane; e < factor.n; e += 32) {
            double value = memory[factor.cell + e];
            for (u32 v = 0; v < factor.n_known; v++) {
                const Known axis = known[factor.known + v];
                const int state = states[axis.variable];
                const u32 at = e / axis.inner % axis.card;
                if (state != -1) value *= state == -2 ? f.weights[axis.weight + at] : (double)(state == (int)at);
            }
            memory[factor.cell + e] = value;
            top = value > top ? value : top;
        }
        int high = warp_max(__double2hiint(top));
        if (lane == 0) p.slots[factor.table].top = high;
    }
    const u32* levels = (const u32*)(memory + f.levels);
    Turn next;
    if (levels[0] + warp < levels[1]) next = turn_of(p, levels[0] + warp, lane);
    __syncthreads();
    for (u32 l = 0; l < f.n_levels; l++) {
        const u32 first = levels[l] + warp, stop = levels[l + 1];
        if (first < stop) run_turn(p, next, lane);
        for (u32 t = first + FUSED_WARPS; t < stop; t += FUSED_WARPS) run_turn(p, turn_of(p, t, lane), lane);
        if (l + 1 < f.n_levels && stop + warp < levels[l + 2]) next = turn_of(p, stop + warp, lane);
        __syncthreads();
    }
    const Answer* answers = (const Answer*)(memory + f.answers);
    for (u32 v = warp; v < f.n_answers; v += FUSED_WARPS) {
        const Answer a = answers[v];
        double total = 0.0;
        for (u32 i = lane; i < a.card; i += 32) total += memory[a.cell + i];
        for (u32 bit = 16; bit; bit >>= 1) total += __shfl_xor_sync(0xffffffffu, total, bit);
        for (u32 i = lane; i < a.card; i += 32) f.posterior[a.at + i] = total > 0.0 ? memory[a.cell + i] / total : 0.0;
    }
    const u32* roots = (const u32*)(memory + f.roots);
    for (u32 i = thread; i < f.n_roots; i += FUSED_THREADS) {
        f.root[i] = memory[roots[2 * i]];
        f.exponent[i] = p.slots[roots[2 * i + 1]].exponent;
    }
}
