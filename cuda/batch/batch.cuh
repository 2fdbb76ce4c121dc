// Structs of tables of cases by records, for batch.cu and counts.cu; jtgpu/backends/gpu/batch repeats the layouts.
#include "common/types.cuh"

struct Axis { u32 variable, inner, card, weight; };
struct Factor { u32 cell, n, table, axes, n_axes, to; };   // `to`: its first cell in a case's arena
struct Answer { u32 cell, card, at; };

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

// Evidence of a chunk as rows; generated kernels (lane.cuh) use it, too.
struct Rows {
    const int* states;        // (n_cases, V), -1: not observed
    const double* weights;    // (n_cases, n_weights)
    int* state;               // (V, n_cases)
    double* weight;           // (n_weights, n_cases)
    u32 n_cases, n_variables, n_weights, pad;
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
    const int* state;         // (V, n_cases), -1: not observed
    const double* weight;     // (rows, n_cases)
    const u32* weight_row;    // (V,) the first row of a variable's weights; NONE: it has none
    const Answer* answers;
    const u32* roots;         // cell, table, whether shared
    double* posterior;        // (n_out, n_cases)
    double* log_evidence;     // (n_cases,), -inf: impossible
    u32 n_cases, n_factors, n_answers, n_roots, n_cells, n_tables;
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
