// What a warp or a block does with a case, for warps.cu and warp_tables.cu: evidence, factors, contractions.
#include "batch/warps.cuh"

#define NARROW_THREADS 128
#define WIDE_THREADS 256

// A table of one cell, scaled if that is far from 1.
__device__ __forceinline__ Table one_cell(double value, int exponent) {
    const int by = value > 0.0 ? shift_of<double>(word_of(value)) : 0;
    return Table{by ? value * power_of_two<double>(-by) : value, NONE, exponent + by};
}

// A case of a warp, or, WIDE, of a block, whose warps share the outputs.
template <bool WIDE>
struct Case {
    const u32* seen;         // (n_variables + 1,) number of states that are left, and 2^16 times the observed state
    const double* weights;
    double* cells;
    Table* tables;
    uint4* list;             // of this warp, for `axes_of`
    int* tops;               // (3,) of the block
    u32 lane, warp, warps;
    u32 at, n_products, n_steps;

    __device__ __forceinline__ void meet() const {
        if (WIDE) __syncthreads();
        else __syncwarp();
    }

    // Make room for a table of n cells that takes so many products; false: there is none.
    __device__ __forceinline__ bool begins(const Cases& c, const Axes& x) {
        const u64 products = (u64)x.n_out * x.n_sum + n_products;
        if ((u64)at + x.n_out > c.capacity || products > c.most_products) return false;
        n_products = (u32)products;
        return true;
    }

    // Publish the table at `at`, scaled if its largest cell is far from 1; one of one cell, which the first warp knows.
    __device__ __forceinline__ void ends(u32 table, u32 n, double value, int top, int exponent) {
        const bool first = !lane && !warp;
        if (n == 1) {
            if (first) tables[table] = one_cell(value, exponent);
            return;
        }
        top = warp_max(top);
        if (WIDE) {  // three take turns: one is used, one read by slow warps, one cleared
            int* const most = tops + n_steps % 3;
            n_steps++;
            if (!lane) atomicMax(most, top);
            if (first) tops[n_steps % 3] = 0;
            __syncthreads();
            top = *(volatile int*)most;
        }
        const int by = top ? shift_of<double>(top) : 0;
        if (by) {
            const double scale = power_of_two<double>(-by);
            __syncwarp();
            for (u32 i = 32 * warp + lane; i < n; i += 32 * warps) cells[at + i] *= scale;
        }
        if (first) tables[table] = Table{0.0, at, exponent + by};
        at += n;
    }

    // The cells of a table; the entry itself has the only one.
    __device__ __forceinline__ const double* cells_of(u32 table, const Table& t) const {
        return t.first == NONE ? &tables[table].value : cells + t.first;
    }
};

// What evidence leaves of a factor.
template <bool WIDE>
__device__ __forceinline__ bool enter(const Cases& c, Case<WIDE>& k, u32 f) {
    const Axes x = axes_of<true, WIDE>(c.axes[(u64)(c.n_steps + f) * 32 + k.lane], k.seen, k.list, k.lane);
    if (!k.begins(c, x)) return false;
    const double* const from = c.factors + c.families[f].cell + warp_total(x.state * x.by_a);
    u32 row = NONE, weighed = 0;
    double scale = 1.0;
    if (c.n_weights) {
        if (x.flags & WEIGHED) row = c.weight_row[x.flags & 0xffffu];
        weighed = __ballot_sync(ALL, row != NONE);
        for (u32 left = weighed & ~x.open; left; left &= left - 1) {
            const u32 i = last_of(left & (0 - left));
            scale *= k.weights[__shfl_sync(ALL, row, i) + __shfl_sync(ALL, x.state, i)];
        }
    }
    int top = 0;
    double value = 0.0;
    for (u32 base = 32 * k.warp; base < x.n_out; base += 32 * k.warps) {
        const u32 index = base + k.lane;
        const bool mine = index < x.n_out;
        value = from[cells_at<WIDE>(x, x.open, x.list, mine ? index : 0).x] * scale;
        for (u32 lanes = weighed ? x.open : 0, rest = mine ? index : 0; lanes;) {
            const u32 i = last_of(lanes), extent = __shfl_sync(ALL, x.extent, i);
            const u32 first = __shfl_sync(ALL, row, i);
            if (weighed >> i & 1) value *= k.weights[first + rest % extent];
            rest /= extent;
            lanes ^= 1u << i;
        }
        if (mine && x.n_out > 1) {
            k.cells[k.at + index] = value;
            const int word = word_of(value);
            top = word > top ? word : top;
        }
    }
    k.ends(f, x.n_out, value, top, c.exponents[f]);
    return true;
}

// Lanes share the outputs, and each sum if there are few of these.
template <bool WIDE>
__device__ __forceinline__ bool contract(const Cases& c, Case<WIDE>& k, const Step& s, uint2 axis) {
    const Axes x = axes_of<false, WIDE>(axis, k.seen, k.list, k.lane);
    if (!k.begins(c, x)) return false;
    const bool alone = s.b == NONE;
    const Table a = k.tables[s.a], b = alone ? Table{1.0, NONE, 0} : k.tables[s.b];
    const double *const from_a = k.cells_of(s.a, a), *const from_b = alone ? 0 : k.cells_of(s.b, b);
    u32 log_parts = 0;
    if (x.n_sum > 1 && x.n_out <= 16) log_parts = x.n_out == 1 ? 5 : __clz((int)(x.n_out - 1)) - 27;
    const u32 parts = 1u << log_parts, part = k.lane & (parts - 1), tile = 32 >> log_parts;
    const u32 sums = x.open & ~x.out;
    const uint4* const list = x.list + __popc(x.out);
    u32 inner = 1, step_a = 0, step_b = 0, outer = sums;  // the last summed axis; the others
    if (sums) {
        const u32 i = last_of(sums);
        inner = __shfl_sync(ALL, x.extent, i);
        step_a = __shfl_sync(ALL, x.by_a, i);
        step_b = __shfl_sync(ALL, x.by_b, i);
        outer ^= 1u << i;
    }
    int top = 0;
    double sum = 0.0;
    for (u32 base = tile * k.warp; base < x.n_out; base += tile * k.warps) {
        const u32 index = base + (k.lane >> log_parts);
        const bool mine = index < x.n_out;
        const uint2 at = cells_at<WIDE>(x, x.out, x.list, mine ? index : 0);
        sum = 0.0;
        if (inner >= parts) {
            for (u32 first = 0, i = 0; first < x.n_sum; first += inner, i++) {
                const uint2 by = cells_at<WIDE>(x, outer, list + 1, i);
                const double *p = from_a + at.x + by.x, *q = from_b + at.y + by.y;
#pragma unroll 4
                for (u32 j = part; j < inner; j += parts) sum += p[j * step_a] * (alone ? 1.0 : q[j * step_b]);
            }
        } else {
            for (u32 first = 0; first < x.n_sum; first += parts) {
                const u32 j = first + part;
                const uint2 by = cells_at<WIDE>(x, sums, list, j < x.n_sum ? j : 0);
                const double product = from_a[at.x + by.x] * (alone ? 1.0 : from_b[at.y + by.y]);
                sum += j < x.n_sum ? product : 0.0;
            }
        }
        for (u32 bit = parts >> 1; bit; bit >>= 1) sum += __shfl_xor_sync(ALL, sum, bit);
        if (mine && !part && x.n_out > 1) {
            k.cells[k.at + index] = sum;
            const int word = word_of(sum);
            top = word > top ? word : top;
        }
    }
    k.ends(s.out, x.n_out, sum, top, a.exponent + b.exponent);
    return true;
}

// The cell of a family that a case observes, a lane a family. False: a variable has several states left, or weights.
template <bool WITH_WEIGHTS>
__device__ __forceinline__ bool observes(const Cases& c, const u32* seen, u32 f, const Family& s, u32& cell) {
    bool whole = true;
    cell = s.cell;
    for (u32 i = 0; i < s.n_axes; i++) {
        const uint2 axis = c.scopes[(u64)i * c.n_families + f];
        const u32 what = seen[axis.x & 0xffffu];
        whole &= (what & 0xffffu) == 1;
        cell += (what >> 16) * axis.y;
        if (WITH_WEIGHTS && axis.x & WEIGHED) whole &= c.weight_row[axis.x & 0xffffu] == NONE;
    }
    return whole;
}

template <class T>
__device__ __forceinline__ bool read_codes(const Cases& c, u32 at, u32* seen, u32 lane) {
    const T* const codes = (const T*)c.codes + (u64)at * c.n_variables;
    bool good = true;
    for (u32 v = lane; v < c.n_variables; v += 32) {
        const int code = codes[v];
        const u32 card = c.card[v];
        good &= code < (int)card;
        seen[v] = code < 0 ? card : 1u | (code < (int)card ? (u32)code : 0u) << 16;
    }
    if (!lane) seen[c.n_variables] = 1;  // of axes that are not there
    return !__ballot_sync(ALL, !good);
}

// What the evidence leaves of all factors; false: it is too much.
template <bool WIDE>
__device__ __forceinline__ bool enter_factors(const Cases& c, Case<WIDE>& k) {
    bool fits = true;
    for (u32 first = 0; first < c.n_families && fits; first += 32) {
        const u32 f = first + k.lane;
        bool done = true;
        if (f < c.n_families) {
            u32 cell;
            const Family s = c.families[f];
            done = c.n_weights ? observes<true>(c, k.seen, f, s, cell) : observes<false>(c, k.seen, f, s, cell);
            if (done) k.tables[f] = one_cell(c.factors[cell], c.exponents[f]);
        }
        for (u32 left = __ballot_sync(ALL, !done); left && fits; left &= left - 1)
            fits = enter(c, k, first + __ffs((int)left) - 1);
    }
    return fits;
}

// The contractions of n_levels.
template <bool WIDE>
__device__ __forceinline__ bool contract_levels(const Cases& c, Case<WIDE>& k) {
    bool fits = true;
    for (u32 level = 0; level < c.n_levels && fits; level++) {
        k.meet();
        const u32 end = c.levels[level + 1];
        for (u32 first = c.levels[level]; first < end && fits; first += 32) {
            Step mine = {0, 0, NONE, 0};
            bool done = true;
            if (first + k.lane < end) {
                mine = c.steps[first + k.lane];
                const Table a = k.tables[mine.a], b = mine.b == NONE ? Table{1.0, NONE, 0} : k.tables[mine.b];
                done = a.first == NONE && b.first == NONE;
                if (done) k.tables[mine.out] = one_cell(a.value * b.value, a.exponent + b.exponent);
            }
            u32 left = __ballot_sync(ALL, !done);
            uint2 next = uint2{0, 0};
            if (left) next = c.axes[(u64)(first + __ffs((int)left) - 1) * 32 + k.lane];
            while (left && fits) {
                const u32 i = __ffs((int)left) - 1;
                const uint2 axis = next;
                left &= left - 1;
                if (left) next = c.axes[(u64)(first + __ffs((int)left) - 1) * 32 + k.lane];
                const u32 out = __shfl_sync(ALL, mine.out, i), b = __shfl_sync(ALL, mine.b, i);
                fits = contract(c, k, Step{out, __shfl_sync(ALL, mine.a, i), b, 0}, axis);
            }
        }
    }
    k.meet();
    return fits;
}

__device__ __forceinline__ double log_evidence_of(const Cases& c, const Table* tables, bool good) {
    double sum = good ? 0.0 : -INFINITY;
    for (u32 i = 0; i < c.n_roots; i++) {
        const Table root = tables[c.roots[i]];
        sum += root.value > 0.0 ? log(root.value) + root.exponent * 0.693147180559945309417 : -INFINITY;
    }
    return sum;
}
