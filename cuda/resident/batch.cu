// Many cases at once: a lane a case, every table case-minor ([cell][case]), one kernel a level for a chunk of cases.
//
//   batch_turn    evidence as it comes, case after case, into case-minor order
//   batch_enter   evidence factors of every case: observed states, and weights where the caller has some
//   batch_level   a warp takes one tile of outputs for 32 cases, then for the next 32: the record is the same for all
//                 lanes and cases, loads are 256 contiguous bytes; factors without evidence are read from the one copy
//                 that all cases share; where most products are always zero, a list of the others instead of a tile
//   batch_finish  posteriors and ln P(e), case-major, and the slots readied for the next chunk
//
// Wins wherever there are at least some hundred cases. Neighbouring warps take the same outputs for neighbouring cases,
// so that they share records; neighbouring outputs for the same cases was tried and was not faster. Loses to long sums,
// for a warp has nobody to share one with (batch_sums.py cuts them).
#include "resident/tile.cuh"

struct Known { u32 variable, inner, card, weight; };
struct Factor { u32 cell, n, table, known, n_known, to; };   // `to`: its place in the cases' arena
struct Answer { u32 cell, card, at; };

// What a chunk brings along, of either kind of batch kernel (batch_code.py makes the other).
struct Rows {
    const int* states;        // (n_cases, V), -1: not known
    const double* weights;    // (n_cases, n_weights)
    int* state;               // (V, n_cases)
    double* weight;           // (n_weights, n_cases)
    u32 n_cases, n_variables, n_weights, pad;
};

struct Batch {
    double* arena;            // (cells, n_cases)
    const double* shared;     // the factors
    Slot* slots;              // (T, n_cases)
    const Slot* shared_slots; // (T,) of the factors
    const Op* ops;            // pad: bit 0: A is shared by all cases, bit 1: B is
    const Digit* digits;
    const uint2* steps;
    const Task* tasks;        // unit: the tile
    const uint2* rows;        // of lists: the output's cell, its first term; one more at the end of each list
    const uint2* terms;       // of lists: cells of A and B
    const Factor* factors;
    const Known* known;
    const int* state;         // (V, n_cases), -1: not known
    const double* weight;     // (rows, n_cases)
    const u32* weight_row;    // (V,) the first row of a variable's weights; NONE: it has none
    const Answer* answers;
    const u32* roots;         // cell, table, whether shared
    double* posterior;        // (n_cases, n_out)
    double* log_evidence;     // (n_cases,), -inf: impossible
    u32 n_cases, n_factors, n_answers, n_roots, n_out, n_tables;
};

struct CaseCell {
    u64 stride;
    u32 lane;
    __device__ __forceinline__ u64 operator()(u32 cell) const { return cell * stride + lane; }
};

extern "C" __global__ void __launch_bounds__(256) batch_turn(Rows r) {
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u32 what = (u32)(thread / r.n_cases), at = (u32)(thread % r.n_cases);
    if (what < r.n_variables) r.state[(u64)what * r.n_cases + at] = r.states[(u64)at * r.n_variables + what];
    else if (what - r.n_variables < r.n_weights) {
        const u32 row = what - r.n_variables;
        r.weight[(u64)row * r.n_cases + at] = r.weights[(u64)at * r.n_weights + row];
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) batch_enter(Batch b) {
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31, groups = b.n_cases / 32;
    if (warp >= b.n_factors * groups) return;
    const Factor f = b.factors[warp / groups];
    const u32 at = warp % groups * 32 + lane;
    double top = 0.0;
    for (u32 e = 0; e < f.n; e++) {
        double value = b.shared[f.cell + e];
        for (u32 v = 0; v < f.n_known; v++) {
            const Known axis = b.known[f.known + v];
            const u32 row = b.weight_row[axis.variable], digit = e / axis.inner % axis.card;
            const int state = b.state[(u64)axis.variable * b.n_cases + at];
            if (state != -1 && state != (int)digit) value = 0.0;
            if (row != NONE) value *= b.weight[(u64)(row + digit) * b.n_cases + at];
        }
        b.arena[(u64)(f.to + e) * b.n_cases + at] = value;
        top = value > top ? value : top;
    }
    Slot* slot = b.slots + (u64)f.table * b.n_cases + at;
    slot->top = __double2hiint(top);
    slot->exponent = b.shared_slots[f.table].exponent;
}

// Tell readers how large a case's table is, to within 2^64: once the first tile has, the others need not.
__device__ __forceinline__ void publish_case(Slot* slot, double top) {
    const int high = __double2hiint(top);
    if (high <= 0) return;
    const int coarse = high | 0x03ffffff;
    if (coarse > *(volatile int*)&slot->top) atomicMax(&slot->top, coarse);
}

// Where a warp's inputs are, for the group of cases that it is at.
struct Inputs {
    Slot slot_a, slot_b;
    const double *a, *b;
    CaseCell cell_a, cell_b;
};

__device__ __forceinline__ Inputs inputs_of(const Batch& b, const Op& op, u32 at) {
    const bool shared_a = op.pad & 1, shared_b = op.pad & 2;
    const CaseCell cases = {b.n_cases, at}, one = {1, 0};
    Inputs in;
    in.slot_a = shared_a ? b.shared_slots[op.slot_a] : b.slots[(u64)op.slot_a * b.n_cases + at];
    in.slot_b = shared_b ? b.shared_slots[op.slot_b] : b.slots[(u64)op.slot_b * b.n_cases + at];
    in.a = shared_a ? b.shared + op.a : b.arena + (u64)op.a * b.n_cases;
    in.b = shared_b ? b.shared + op.b : b.arena + (u64)op.b * b.n_cases;
    in.cell_a = shared_a ? one : cases;
    in.cell_b = shared_b ? one : cases;
    return in;
}

// A tile of outputs, for one group of cases after another: what the record says is worked out once. Inputs are scaled
// after the sum: a table's largest entry lies within 2^+-400 whatever was read to make it.
template <int TM, int TN, int UNROLL>
__device__ __forceinline__ void run_tile(const Batch& b, const Op& op, u32 tile, u32 at, u32 end) {
    const Place place = place_of(op, b.digits, tile);
    u32 at_a[TM], at_b[TN];
    side_offsets<TM>(op.m, place.m_index, place.a, at_a);
    side_offsets<TN>(op.n, place.n_index, place.b, at_b);
    for (; at < end; at += 32) {
        const Inputs in = inputs_of(b, op, at);
        const Scales scale = scales_of(in.slot_a, in.slot_b);
        double sum[TM * TN];
#pragma unroll
        for (int e = 0; e < TM * TN; e++) sum[e] = 0.0;
        Steps<UNROLL> ready;
        ready.fetch(b.steps + op.steps, 0, op.n_steps, 1);
        accumulate<TM, TN, UNROLL>(sum, ready, in.a, in.b, in.cell_a, in.cell_b, at_a, at_b, b.steps + op.steps, 0,
                                   op.n_steps, 1, 1.0, 1.0);
        double top = 0.0;
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) {
                bool there = (i == 0 || place.m_index + i * op.m.step < op.m.extent) &&
                             (j == 0 || place.n_index + j * op.n.step < op.n.extent);
                if (!there) continue;
                u32 cell = op.out + place.out + i * op.out_m + j * op.out_n;
                double value = sum[i * TN + j] * scale.a * scale.b;
                b.arena[(u64)cell * b.n_cases + at] = value;
                top = value > top ? value : top;
            }
        Slot* slot = b.slots + (u64)op.slot_out * b.n_cases + at;
        publish_case(slot, top);
        if (tile == 0) slot->exponent = scale.exponent;
    }
}

// One output as the sum over a list of what is never zero: pairs of cells of A and B.
__device__ __forceinline__ void run_list(const Batch& b, const Op& op, u32 row, u32 at, u32 end) {
    const uint2 here = b.rows[op.digits + row];
    const uint2 *first = b.terms + here.y, *last = b.terms + b.rows[op.digits + row + 1].y;
    for (; at < end; at += 32) {
        const Inputs in = inputs_of(b, op, at);
        const Scales scale = scales_of(in.slot_a, in.slot_b);
        double sum = 0.0;
#pragma unroll 8
        for (const uint2* term = first; term < last; term++) sum += in.a[in.cell_a(term->x)] * in.b[in.cell_b(term->y)];
        const double value = sum * scale.a * scale.b;
        b.arena[(u64)(op.out + here.x) * b.n_cases + at] = value;
        Slot* slot = b.slots + (u64)op.slot_out * b.n_cases + at;
        publish_case(slot, value);
        if (row == 0) slot->exponent = scale.exponent;
    }
}

// `span`: groups of cases that a warp takes one after another.
extern "C" __global__ void __launch_bounds__(256, 2) batch_level(Batch b, u32 first, u32 n_tasks, u32 span) {
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31, groups = b.n_cases / 32;
    const u32 spans = (groups + span - 1) / span;
    if (warp / spans >= n_tasks) return;
    const Task task = b.tasks[first + warp / spans];
    const Op& op = b.ops[task.op];
    const u32 group = warp % spans * span, at = group * 32 + lane;
    const u32 end = (group + span < groups ? group + span : groups) * 32;
    switch (op.shape) {
        case 0: run_list(b, op, task.unit, at, end); break;
        case 1 * 8 + 1: run_tile<1, 1, 4>(b, op, task.unit, at, end); break;
        case 4 * 8 + 1: run_tile<4, 1, 2>(b, op, task.unit, at, end); break;
        case 2 * 8 + 2: run_tile<2, 2, 2>(b, op, task.unit, at, end); break;
        case 4 * 8 + 2: run_tile<4, 2, 1>(b, op, task.unit, at, end); break;
        case 4 * 8 + 4: run_tile<4, 4, 1>(b, op, task.unit, at, end); break;
        default: __trap();
    }
}

extern "C" __global__ void __launch_bounds__(256) batch_finish(Batch b) {
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31, groups = b.n_cases / 32;
    const u32 at = warp % groups * 32 + lane, what = warp / groups;
    if (what < b.n_answers) {
        const Answer a = b.answers[what];
        double total = 0.0;
        for (u32 i = 0; i < a.card; i++) total += b.arena[(u64)(a.cell + i) * b.n_cases + at];
        for (u32 i = 0; i < a.card; i++)
            b.posterior[(u64)at * b.n_out + a.at + i] =
                total > 0.0 ? b.arena[(u64)(a.cell + i) * b.n_cases + at] / total : 0.0;
    } else if (what == b.n_answers) {
        double log_evidence = 0.0;
        for (u32 i = 0; i < b.n_roots; i++) {
            const u32 cell = b.roots[3 * i], table = b.roots[3 * i + 1];
            const bool shared = b.roots[3 * i + 2] != 0;
            double value = shared ? b.shared[cell] : b.arena[(u64)cell * b.n_cases + at];
            int exponent = shared ? b.shared_slots[table].exponent : b.slots[(u64)table * b.n_cases + at].exponent;
            log_evidence += value > 0.0 ? log(value) + exponent * 0.693147180559945309417 : -INFINITY;
        }
        b.log_evidence[at] = log_evidence;
        for (u32 t = 0; t < b.n_tables; t++) b.slots[(u64)t * b.n_cases + at].top = 0;
    }
}
