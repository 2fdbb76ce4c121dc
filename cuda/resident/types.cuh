// What the host writes and the kernels of the resident engine read: a plan as records, one record a contraction.
//
// All tables lie in one arena of doubles. A contraction is out[s] = sum_r A[r, s] B[r, s]; s runs over the digits of
// the output (mixed radix), r over `n_steps` precomputed pairs of offsets. A table's entries stand for
// entry * 2^exponent (Slot), the exponent an exact integer, so nothing underflows and nothing is rounded.
//
// The layouts are repeated in jtgpu/backends/gpu/records.py; tests hold the two together.
typedef unsigned int u32;
typedef unsigned long long u64;

#define WARPS 8              // warps of a block of the level kernels
#define NONE 0xffffffffu     // no contraction: this warp has nothing to do
#define SAFE_EXPONENT 128    // a table whose largest entry lies within 2^+-128 is multiplied as it is
#define MOST_SHIFT 1000      // what is applied at once: 2^1000 is a normal double

// Largest int of a warp; sm_75 has no instruction for it.
__device__ __forceinline__ int warp_max(int value) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, value);
#else
    for (u32 bit = 16; bit; bit >>= 1) {
        const int other = __shfl_xor_sync(0xffffffffu, value, bit);
        value = other > value ? other : value;
    }
    return value;
#endif
}

struct Slot {    // 8 bytes, one a table
    int top;      // high word of the largest entry: of doubles >= 0 the order is that of their bits
    int exponent;
};

struct Digit {   // 24 bytes; the first digit of a contraction is the fastest
    u32 extent, magic, shift;  // n / extent = umulhi(n, magic) >> shift for n < 2^31
    u32 out, a, b;             // strides
};

struct Side {    // 16 bytes: the axis on which a thread has several outputs: element i is index + i * step
    u32 digit;    // the digit that counts `index`; NONE: no such axis
    u32 extent;   // length of the axis
    u32 step;     // ceil(extent / elements)
    u32 stride;   // in the input that has this axis
};

#define INLINE_DIGITS 6   // digits that lie in the record itself: one round trip fetches all of it

struct Op {      // 256 bytes
    u32 a, b, out;                 // first cells in the arena
    u32 slot_a, slot_b, slot_out;  // tables
    u32 n_tiles;                   // threads' tiles of outputs
    u32 n_steps, steps;            // summed configurations; the first in Program.steps; of a list in Program.rounds
    u32 digits, n_digits;          // those after the first INLINE_DIGITS in Program.digits; all
    u32 shape;                     // tile: elements on side M * 8 + elements on side N; 0: `n_tiles` rounds of a list
    u32 log_lanes;                 // log2 of the lanes that share a tile's sum
    u32 wide;                      // 0: warps work alone. 1: the block's warps share the sums
    u32 splits;                    // wide: blocks that share a sum
    u32 scratch, counter;          // splits > 1: cells for partial sums, and who counts them
    u32 out_m, out_n;              // from one element of a side to the next, in the output
    u32 pad;
    Side m, n;                     // side M: axes of A and the output; side N: of B and the output
    Digit first[INLINE_DIGITS];    // the first digits; the others in Program.digits
};

struct Task { u32 op, unit; };     // of one warp

struct Program {
    double* arena;
    Slot* slots;
    const Op* ops;
    const Digit* digits;
    const uint2* steps;
    const Task* tasks;
    double* scratch;
    u32* counters;
    const uint2* rounds;  // of lists: first row, products of a lane | log2 of the lanes that share an output << 16
    const uint2* rows;    // 32 lanes each: a round's outputs (NONE: no output), then the cells of a product's entries
};

// Programmatic dependent launch: a kernel starts while the one before still runs, reads its records, and waits.
__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The power of two that a reader takes out of a table, from the largest entry's high word: 0 where none is needed.
__device__ __forceinline__ int shift_of(int top) {
    int e = ((top >> 20) & 0x7ff) - 1022;
    if (e <= SAFE_EXPONENT && e >= -SAFE_EXPONENT) return 0;
    return e > MOST_SHIFT ? MOST_SHIFT : e < -MOST_SHIFT ? -MOST_SHIFT : e;
}

__device__ __forceinline__ double power_of_two(int e) {  // |e| <= MOST_SHIFT
    return __hiloint2double((1023 + e) << 20, 0);
}
