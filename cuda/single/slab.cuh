// What many contractions make of a few states of the variables that all their tables have in common: a slab. For each
// of these states what happens is a propagation of its own, small enough for an SM's shared memory: a block loads its
// parts of the tables that come in, goes through all contractions, and adds what goes out to its own sums; `slab_sum`
// adds the blocks' sums up, in order. jtgpu/backends/gpu/single/specialised/slab_code.py writes the kernel `slab` behind this header.
//
// Entries are not scaled within a slab. What comes in is at most 1: a table whose largest entry is above 1, or below
// 2^-25, is brought to [1/2, 1) on its way. So a product is never larger than one of its factors, and what fell below
// 2^-1022 and lost digits there is not raised again, but by being added up over states: by 2^128 at most, as slab_code.py
// sees to. That keeps what is lost below 2^-1074 times 2^128 and the number of additions, and everything else below 2^128.
// Where the largest entry of a table that goes out is at least 2^-766 (LEAST_TOP in slab_code.py), what was lost is less
// than 2^-150 of it; where it is smaller, `finish` in single.cu tells the host, which asks another engine.
//
// A contraction whose sides are short is done as in shape.cuh, a thread a tile of outputs; one whose sides are long in
// blocks for the tensor cores, with a quarter of the instructions.
//
// Where it wins: tables of many megabytes that several contractions share; they never reach device memory.
// Where it loses: small tables, and those with too little in common.
#include "single/blocks.cuh"
#include "single/shape.cuh"

#ifdef __CUDACC__
#define SLAB_MEMORY extern __shared__ real memory[];
#else
#define SLAB_MEMORY static real memory[1 << 15];  // blocks run one after the other
#endif

struct Slab {
    const u32* first;    // (blocks + 1,) each block's first slice
    const uint4* flags;  // (slices,) bits: tables to load before it; sums that it adds to; sums that end with it; 0
    const u32* runs;     // (slices, outputs) where a sum that ends goes, in sums of its table
    real* sums;          // of all blocks
};

#define SLAB_ONE 0x3ff00000  // word_of 1; its low word is not known, but 2^-20 more does not matter
#define SLAB_SAFE 24  // down to 2^-25 a table comes in as it is: copied, through no register

// The power of two that is taken out of a table on its way in: most often none. A table of zeros stays one. Beyond
// MOST_SHIFT there are only small ones: a contraction reads what is within 2^+-128 and writes 2^256 times its states.
__device__ __forceinline__ int slab_shift(const Slot& slot) {
    const int e = exponent_of(slot.top), most = Range<real>::MOST_SHIFT;
    return slot.top <= SLAB_ONE && e >= -SLAB_SAFE ? 0 : e > most ? most : e < -most ? -most : e;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// On its way while the thread goes on, until `slab_loaded`.
__device__ __forceinline__ void slab_fetch(real* to, const real* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}
__device__ __forceinline__ void slab_fetch(u32* to, const u32* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}
__device__ __forceinline__ void slab_loaded() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
template <class T>
__device__ __forceinline__ void slab_fetch(T* to, const T* from) { *to = *from; }
__device__ __forceinline__ void slab_loaded() {}
#endif

// One part of a table: its axes as Axis<extent, stride in shared memory, stride in the arena, 0>. `scaled`: whether its
// entries are multiplied by `scale`. The thread that begins is FIRST: small tables are loaded side by side.
template <class Axes, u32 THREADS, u32 FIRST>
__device__ __forceinline__ void slab_load(real* to, const real* from, bool scaled, const real& scale, u32 thread) {
#pragma unroll 1
    for (u32 i = (thread + THREADS - FIRST) % THREADS; i < Axes::SIZE; i += THREADS) {
        const Offsets at = Axes::at(i);
        if (scaled)
            to[at.out] = from[at.a] * scale;
        else
            slab_fetch(to + at.out, from + at.a);
    }
}

template <u32 CELLS, u32 THREADS, u32 FIRST>
__device__ __forceinline__ void slab_store(real* to, const real* from, u32 thread) {
#pragma unroll 2
    for (u32 i = (thread + THREADS - FIRST) % THREADS; i < CELLS; i += THREADS) to[i] = from[i];
}

template <class X>
struct Inner;
template <class X, class... Rest>
struct Inner<Nest<X, Rest...>> { static constexpr u32 SIZE = Nest<Rest...>::SIZE; };  // of all axes but the first
template <>
struct Inner<Nest<>> { static constexpr u32 SIZE = 1; };

// Entries of UNROLL steps of a sum over several axes. Lanes that share it take turns by batches, and a batch goes through
// all axes but the first as often as it does: then the next one is always as far, and no step has to be divided.
template <class C, u32 WAYS,
          bool = (Inner<typename C::Sum>::SIZE > 1 && C::UNROLL % Inner<typename C::Sum>::SIZE == 0 && Steady<C, WAYS>::EVEN)>
struct Batches : Steady<C, WAYS> {};
template <class C, u32 WAYS>
struct Batches<C, WAYS, true> : Steady<C, WAYS> {
    __device__ __forceinline__ void load(const real* a, const real* b, u32 way, u32 batch) {
        const u32 turn = batch * WAYS + way;
        const real *at_a = a + turn * C::Sum::at(C::UNROLL).a, *at_b = b + turn * C::Sum::at(C::UNROLL).b;
#pragma unroll
        for (u32 u = 0; u < C::UNROLL; u++) {
            const Offsets step = C::Sum::at(u);  // immediates, as all that follows
#pragma unroll
            for (u32 v = 0; v < C::V::SIZE; v++) {
#pragma unroll
                for (u32 m = 0; m < C::M::SIZE; m++)
                    this->x[u][m * C::V::SIZE + v] = at_a[step.a + C::M::at(m).a + C::V::at(v).a];
#pragma unroll
                for (u32 n = 0; n < C::N::SIZE; n++)
                    this->y[u][n * C::V::SIZE + v] = C::TWO ? at_b[step.b + C::N::at(n).b + C::V::at(v).b] : real(1);
            }
        }
    }
};

// A contraction by all warps of the block, beginning with warp FIRST. ADD: where `more`, outputs are added to.
template <class C, u32 WARPS_, u32 FIRST, bool ADD>
__device__ __forceinline__ void slab_contract(real* out, const real* a, const real* b, u32 warp, u32 lane, bool more) {
    constexpr u32 PER_WARP = 32 >> C::LOG, TILES = C::Tiles::SIZE, CELLS = C::Cells::SIZE, HELD = held(CELLS, C::LOG);
    using Loads = Batches<C, 1u << C::LOG>;
    const u32 my_way = lane / PER_WARP, my_tile = lane % PER_WARP;
#pragma unroll 1
    for (u32 base = (warp + WARPS_ - FIRST) % WARPS_ * PER_WARP; base < TILES; base += WARPS_ * PER_WARP) {
        const u32 tile = base + my_tile;
        const bool there = TILES % PER_WARP == 0 || tile < TILES;
        const Offsets at = C::Tiles::at(there ? tile : TILES - 1);
        const real *from_a = a + at.a, *from_b = b + at.b;
        real* to = out + at.out;
        real sum[CELLS];
#pragma unroll
        for (u32 e = 0; e < CELLS; e++) sum[e] = 0;
        Loads steps;
#pragma unroll 1
        for (u32 batch = 0; batch < Loads::BATCHES; batch++) {
            steps.load(from_a, from_b, my_way, batch);
            steps.add_to(sum, {real(1), real(1), 0});
        }
        u32 first = 0;
        fold<CELLS, C::LOG, 5 - C::LOG>(sum, lane, first);
        if (there) {
#pragma unroll
            for (u32 e = 0; e < HELD; e++) {
                real* mine = to + C::Cells::at(first + e).out;
                *mine = ADD && more ? *mine + sum[e] : sum[e];
            }
        }
    }
}

// A contraction in blocks of 8 x 8 outputs, for the tensor cores. Rows_: the axes that A and the output have, Columns_: B
// and the output, Same_: all three. A warp's unit is BM x BN blocks of one configuration of Same_. The product of the
// extents of all axes but the first divides 8, of a sum's 4: so the next block is always as far.
template <class Rows_, class Columns_, class Same_, class Sum_, u32 BM_, u32 BN_, u32 UNROLL_>
struct Blocks {
    using Rows = Rows_;
    using Columns = Columns_;
    using Same = Same_;
    using Sum = Sum_;
    static constexpr u32 BM = BM_, BN = BN_, UNROLL = UNROLL_;
};

// Line `line` of block `block`, the last line there is where there are not so many.
template <class X>
__device__ __forceinline__ Offsets line_of(u32 block, u32 line) {
    if constexpr (X::SIZE % 8 == 0) {
        const Offsets next = X::at(8), at = X::at(line);
        return {block * next.out + at.out, block * next.a + at.a, block * next.b + at.b};
    } else {
        const u32 i = block * 8 + line;
        return X::at(i < X::SIZE ? i : X::SIZE - 1);
    }
}

// As `slab_contract`, by `multiply_blocks`: a lane loads an entry of A and one of B for eight products.
template <class C, u32 WARPS_, u32 FIRST, bool ADD>
__device__ __forceinline__ void slab_blocks(real* out, const real* a, const real* b, u32 warp, u32 lane, bool more) {
    using Rows = typename C::Rows;
    using Columns = typename C::Columns;
    using Sum = typename C::Sum;
    constexpr u32 BM = C::BM, BN = C::BN, ROWS = (Rows::SIZE + 7) / 8 / BM, COLUMNS = (Columns::SIZE + 7) / 8 / BN;
    constexpr u32 UNITS = ROWS * COLUMNS * C::Same::SIZE, STEPS = Sum::SIZE / 4;  // whole ones
    static_assert(ROWS * BM == (Rows::SIZE + 7) / 8 && COLUMNS * BN == (Columns::SIZE + 7) / 8, "units of whole blocks");
    const u32 line = lane >> 2, mine = lane & 3;
#pragma unroll 1
    for (u32 unit = (warp + WARPS_ - FIRST) % WARPS_; unit < UNITS; unit += WARPS_) {
        const u32 same = unit / (ROWS * COLUMNS), rest = unit % (ROWS * COLUMNS);
        const u32 row = rest / COLUMNS * BM, column = rest % COLUMNS * BN;  // blocks
        const Offsets base = C::Same::at(same), step = Sum::at(mine);
        const real *at_a[BM], *at_b[BN];
        at_a[0] = a + (base.a + step.a + line_of<Rows>(row, line).a);
        at_b[0] = b + (base.b + step.b + line_of<Columns>(column, line).b);
#pragma unroll
        for (u32 i = 1; i < BM; i++)  // where it can be, as an immediate
            at_a[i] = Rows::SIZE % 8 == 0 ? at_a[0] + i * Rows::at(8).a
                                          : a + (base.a + step.a + line_of<Rows>(row + i, line).a);
#pragma unroll
        for (u32 j = 1; j < BN; j++)
            at_b[j] = Columns::SIZE % 8 == 0 ? at_b[0] + j * Columns::at(8).b
                                             : b + (base.b + step.b + line_of<Columns>(column + j, line).b);
        real* const to = out + (base.out + line_of<Rows>(row, line).out);
        real sum[BM][BN][2];
#pragma unroll
        for (u32 i = 0; i < BM; i++)
#pragma unroll
            for (u32 j = 0; j < BN; j++) sum[i][j][0] = sum[i][j][1] = 0;
#pragma unroll(C::UNROLL)
        for (u32 k = 0; k < STEPS; k++) {
            const u32 next_a = k * Sum::at(4).a, next_b = k * Sum::at(4).b;
            real x[BM], y[BN];
#pragma unroll
            for (u32 i = 0; i < BM; i++) x[i] = at_a[i][next_a];
#pragma unroll
            for (u32 j = 0; j < BN; j++) y[j] = at_b[j][next_b];
#pragma unroll
            for (u32 i = 0; i < BM; i++)
#pragma unroll
                for (u32 j = 0; j < BN; j++) multiply_blocks(sum[i][j], x[i], y[j]);
        }
        if constexpr (Sum::SIZE % 4 != 0) {
            const bool there = mine < Sum::SIZE % 4;
            const Offsets last = Sum::at(there ? STEPS * 4 + mine : 0);
            const int back_a = (int)last.a - (int)step.a, back_b = (int)last.b - (int)step.b;
            real x[BM];
#pragma unroll
            for (u32 i = 0; i < BM; i++) x[i] = there ? at_a[i][back_a] : real(0);
#pragma unroll
            for (u32 j = 0; j < BN; j++) {
                const real y = at_b[j][back_b];
#pragma unroll
                for (u32 i = 0; i < BM; i++) multiply_blocks(sum[i][j], x[i], y);
            }
        }
#pragma unroll
        for (u32 e = 0; e < 2; e++) {
            const u32 place = 2 * mine + e;
            real* mine_of = to + line_of<Columns>(column, place).out;
#pragma unroll
            for (u32 i = 0; i < BM; i++)
#pragma unroll
                for (u32 j = 0; j < BN; j++) {
                    if ((Rows::SIZE % 8 != 0 && (row + i) * 8 + line >= Rows::SIZE) ||
                        (Columns::SIZE % 8 != 0 && (column + j) * 8 + place >= Columns::SIZE))
                        continue;
                    real* at = mine_of + (i * Rows::at(8).out + j * Columns::at(8).out);
                    *at = ADD && more ? *at + sum[i][j][e] : sum[i][j][e];
                }
        }
    }
}

struct SlabOutput {        // a table that goes out
    u32 cell, table;       // first cell in the arena; number
    u32 local, n_cells;    // entries of a slice; all
    u32 sums;              // first cell of its sums
    u32 first_of;          // in `places`: where each slice's entries begin in the table, then where each entry lies
    u32 runs;              // in `lists`: the first sum of each slice of it, and the end
    u32 leaves, n_leaves;  // in `lists`: tables that came in and that it is a product of
    u32 first_block;
    u32 wide, pad;         // whether a block's warps share its sums
};
static_assert(sizeof(SlabOutput) == 48, "as SLAB_OUTPUT in jtgpu/backends/gpu/program/structs.py");

struct SlabSum {
    const SlabOutput* outputs;
    const u32* of_block;   // (blocks,)
    const u32 *places, *lists;
    const real* sums;
};

extern "C" __global__ void __launch_bounds__(256) slab_sum(Program p, SlabSum f) {
    __shared__ real parts[256];
    const u32 which = f.of_block[blockIdx.x];
    const SlabOutput o = f.outputs[which];
    const u32 ways = o.wide ? 8 : 1, per_block = 256 / ways, way = threadIdx.x / per_block;
    const u32 i = (blockIdx.x - o.first_block) * per_block + threadIdx.x % per_block;  // cell, slice by slice
    const u32 slice = i < o.n_cells ? i / o.local : 0, entry = i < o.n_cells ? i - slice * o.local : 0;
    const u32 begin = f.lists[o.runs + slice], end = f.lists[o.runs + slice + 1];
    const u32* at = f.places + o.first_of;
    const u32 cell = o.cell + at[slice] + at[o.n_cells / o.local + entry];
    int top = 0;
    let_next_start();
    wait_for_previous();
    const real* from = f.sums + o.sums + entry;
    real total = 0;
    if (i < o.n_cells) {
#pragma unroll 8
        for (u32 r = begin + way; r < end; r += ways) total += from[r * o.local];
    }
    if (o.wide) {  // uniform
        parts[threadIdx.x] = total;
        __syncthreads();
        for (u32 w = 1; w < 8 && way == 0; w++) total += parts[w * 32 + threadIdx.x];
    }
    if (i < o.n_cells && way == 0) {
        p.arena[cell] = total;
        top = word_of(total);
    }
    if (i == 0 && way == 0) {
        int exponent = 0;
        for (u32 k = 0; k < o.n_leaves; k++) {
            const Slot slot = p.slots[f.lists[o.leaves + k]];
            exponent += slot.exponent + slab_shift(slot);
        }
        p.slots[o.table].exponent = exponent;
    }
    top = warp_max(top);
    if ((threadIdx.x & 31) == 0 && top > 0) atomicMax(&p.slots[o.table].top, top);
}
