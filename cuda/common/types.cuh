// What the host writes and the kernels of the GPU backend read: a plan as records, one record a contraction.
//
// All tables are in one arena of reals (JT_REAL: double or float). A contraction is out[s] = sum_r A[r, s] B[r, s]; s
// runs over the digits of the output (mixed radix), r over `n_steps` precomputed pairs of offsets. A table's entries
// stand for entry * 2^exponent (Slot), the exponent an exact integer, so nothing underflows and nothing is rounded.
//
// jtgpu/device/structs.py reads these layouts.
#ifndef JT_REAL
#define JT_REAL double
#endif
typedef JT_REAL real;
typedef unsigned int u32;
typedef unsigned long long u64;

#define WARPS 8              // warps of a block of the level kernels
#define NONE 0xffffffffu     // no contraction: an idle warp

// By what a reader scales a table. A double is left alone if the table's largest entry is within 2^+-128, where nothing
// is lost. A float table's largest entry is scaled to 2^39 to 2^40: then products of two largest entries, 2^31 of them
// added up, are still below 2^112, and entries count from 2^-206 of that on, where the smallest normal float is.
template <class T> struct Range;
template <> struct Range<double> {
    static const int SAFE = 128, PLACE = 0, MOST_SHIFT = 1000;  // of one multiplication: 2^1000 is a normal double
};
template <> struct Range<float> {
    static const int SAFE = 0, PLACE = 40, MOST_SHIFT = 126;
};

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
    int top;      // word_of the largest entry: of numbers >= 0 the order is that of their bits
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

#define INLINE_DIGITS 6   // digits that are part of the record: one round trip fetches all of it

struct Op {      // 256 bytes
    u32 a, b, out;                 // first cells in the arena
    u32 slot_a, slot_b, slot_out;  // tables
    u32 n_tiles;                   // threads' tiles of outputs
    u32 n_steps, steps;            // summed configurations; the first in Program.steps
    u32 digits, n_digits;          // those after the first INLINE_DIGITS in Program.digits; all
    u32 shape;                     // tile: elements on side M * 8 + elements on side N
    u32 log_lanes;                 // log2 of the lanes that share a tile's sum
    u32 wide;                      // 0: warps work alone. 1: the block's warps share the sums
    u32 splits;                    // wide: blocks that share a sum
    u32 scratch, counter;          // splits > 1: cells of partial sums, and their counters
    u32 out_m, out_n;              // from one element of a side to the next, in the output
    u32 pad;
    Side m, n;                     // side M: axes of A and the output; side N: of B and the output
    Digit first[INLINE_DIGITS];    // the first digits; the others in Program.digits
};

struct Task { u32 op, unit; };     // of one warp

struct Program {
    real* arena;
    Slot* slots;
    const Op* ops;
    const Digit* digits;
    const uint2* steps;
    const Task* tasks;
    real* scratch;
    u32* counters;
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

// The same after `known` has been computed (cells, none of them NONE), which the compiler would defer otherwise.
__device__ __forceinline__ void wait_for_previous_with(u32 known) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0xffffffff;\n@p griddepcontrol.wait;\n}"
                 ::"r"(known) : "memory");
#else
    (void)known;
#endif
}

// The high word of a double, all of a float.
__device__ __forceinline__ int word_of(double x) { return __double2hiint(x); }
__device__ __forceinline__ int word_of(float x) { return __float_as_int(x); }

// e with x in [2^(e-1), 2^e), from `word_of` x.
template <class T = real>
__device__ __forceinline__ int exponent_of(int word) {
    return sizeof(T) == 8 ? ((word >> 20) & 0x7ff) - 1022 : ((word >> 23) & 0xff) - 126;
}

// The power of two that a reader takes out of a table, from its Slot's top: 0 where none is needed.
template <class T = real>
__device__ __forceinline__ int shift_of(int top) {
    const int most = Range<T>::MOST_SHIFT, e = exponent_of<T>(top) - Range<T>::PLACE;
    if (e <= Range<T>::SAFE && e >= -Range<T>::SAFE) return 0;
    return e > most ? most : e < -most ? -most : e;
}

__device__ __forceinline__ void set_power_of_two(int e, double& x) { x = __hiloint2double((1023 + e) << 20, 0); }
__device__ __forceinline__ void set_power_of_two(int e, float& x) { x = __int_as_float((127 + e) << 23); }

template <class T = real>
__device__ __forceinline__ T power_of_two(int e) {  // |e| <= Range<T>::MOST_SHIFT
    T x;
    set_power_of_two(e, x);
    return x;
}
