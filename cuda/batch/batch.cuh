// Structs of tables of cases by records, for batch.cu and counts.cu; jtgpu/device/structs.py reads the layouts.
#include "common/types.cuh"

#define SINGLE (sizeof(real) == 4)

struct Axis { u32 variable, inner, card, pad; };
struct Factor {  // up to 32 entries of an evidence factor, the first of which is its entry `from`
    u32 cell, from, table, axes, n_axes;
    u32 to;              // cell of the first one in a case's arena
    u32 used;            // bit i: entry i is stored; the others stay zero
    u32 pad;
};
struct Answer { u32 cell, card, at, pad; };

#define A_SHARED 16u  // bits of a tile's kind, above its shape: all cases share A, or B; first tile of a contraction
#define B_SHARED 32u
#define FIRST 64u

struct Tile {    // 112 bytes
    u32 steps, n_steps;  // what is summed
    u32 mask;            // outputs that are stored
    u32 kind;
    u32 slot_a, slot_b, slot_out;
    u32 pad;
    u32 at[20];          // cells in A, in B; in the output by A's cells, and the offsets that B's cells add
};

// Evidence as columns, of some variables; the rows of the others in `state` are -1 from the beginning.
struct Columns {
    const void* codes;        // (n_columns, n_cases), integers of `width` bytes
    const u32* variables;     // (n_columns,)
    int* state;               // (V, n_cases)
    u32 n_cases, n_columns, width, pad;
};

struct Answers {
    const double* columns;    // (n_out, n_cases)
    double* rows;             // (n_cases, n_out)
    u32 n_cases, n_out;
};

struct Batch {
    real* arena;              // (groups, n_cells, 32)
    const real* shared;       // the factors
    Slot* slots;              // (groups, T, 32)
    const Slot* shared_slots; // (T,) of the factors
    const Tile* tiles;
    const uint2* steps;       // offsets that are added to a tile's cells in A and B
    const Factor* factors;
    const Axis* axes;
    const int* state;         // (V, stride), -1: not observed
    const double* weight;     // (rows, stride)
    const u32* weight_row;    // (V,) the first row of a variable's weights; NONE: it has none
    const Answer* answers;
    const u32* roots;         // cell, table, whether shared
    double* posterior;        // (n_out, stride)
    double* log_evidence;     // (stride,), -inf: impossible
    u32 n_cases, n_factors, n_answers, n_roots, n_cells, n_tables;
    u32 stride, pad;          // stride: cases that the chunk has memory for
};

// Cells and slots of one group, from its lane on: cell c is at c * 32.
struct Group {
    real* cells;
    Slot* slots;
};

__device__ __forceinline__ Group group_of(const Batch& b, u32 group, u32 lane) {
    Group g = {b.arena + (u64)group * b.n_cells * 32 + lane, b.slots + (u64)group * b.n_tables * 32 + lane};
    return g;
}

// Publish the largest entry of a case's table, by its `word_of`. Of doubles to within 2^64, so that later tiles need not
// write. `before`: what was there, or an earlier value.
__device__ __forceinline__ void publish_case(Slot* slot, int word, int before) {
    const int coarse = SINGLE ? word : word | 0x03ffffff;
    if (word > 0 && coarse > before) atomicMax(&slot->top, coarse);
}

// Store the sums of `mask`, in doubles times 2^-(a + b); the largest of these, by its `word_of`.
template <int HIGH, int WIDE>
__device__ __forceinline__ int store_sums(
    real* cells, u32 mask, const u32* out_m, const u32* out_n, real* sum, int a, int b) {
    u32 m[HIGH], n[WIDE];  // all of them before the first store, after which the compiler would read them again
#pragma unroll
    for (int i = 0; i < HIGH; i++) m[i] = out_m[i];
#pragma unroll
    for (int j = 0; j < WIDE; j++) n[j] = out_n[j];
    if (!SINGLE && (a || b)) {
        const real by_a = power_of_two(-a), by_b = power_of_two(-b);
#pragma unroll
        for (int e = 0; e < HIGH * WIDE; e++) sum[e] = sum[e] * by_a * by_b;
    }
    int top = 0;
#pragma unroll
    for (int e = 0; e < HIGH * WIDE; e++) {
        if (!(mask >> e & 1)) continue;
        cells[(u64)(m[e / WIDE] + n[e % WIDE]) * 32] = sum[e];
        const int word = word_of(sum[e]);
        top = word > top ? word : top;
    }
    return top;
}

// Transposes a tile of 32 x 32 of a matrix; the odd row length puts its columns into different banks.
template <class T>
__device__ __forceinline__ void transpose_tile(const T* from, T* to, u32 n_rows, u32 n_columns, u32 row, u32 column) {
    __shared__ T tile[32][33];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (u32 i = warp; i < 32; i += 8)
        if (row + i < n_rows && column + lane < n_columns) tile[i][lane] = from[(u64)(row + i) * n_columns + column + lane];
    __syncthreads();
    for (u32 i = warp; i < 32; i += 8)
        if (column + i < n_columns && row + lane < n_rows) to[(u64)(column + i) * n_rows + row + lane] = tile[lane][i];
}
