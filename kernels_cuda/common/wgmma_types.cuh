/* wgmma_types.cuh: the m64nN matrix instruction of sm_90a for every dtype, A from shared memory or registers.
   Shapes     A: 64 x 32 bytes of k, B: N x 32 bytes of k (both rows of k), D: 64 x N; N one of 8 16 32 64 96 128 192 256
   Operands   tiles of 128-byte rows, 128-byte swizzle, descriptors as wgmma_desc_128b; one instruction further: +32 bytes
   Fragment   D as in wgmma.cuh; A register r of lane l of warp w: row 16 w + l / 4 + 8 (r % 2), word l % 4 + 4 (r / 2)
   Reference  PTX ISA, "Asynchronous warpgroup level matrix instructions" */
#pragma once
#include "wgmma.cuh"

namespace ts {

#define TS_TYPE(NAME, DTYPE, ACC, K_) \
  struct NAME { using Acc = ACC; static constexpr const char* dtype = DTYPE; static constexpr int K = K_; };
TS_TYPE(WgBf16, "bf16", float, 16)
TS_TYPE(WgFp16, "fp16", float, 16)
TS_TYPE(WgTf32, "tf32", float, 8)
TS_TYPE(WgFp8, "fp8", float, 32)
TS_TYPE(WgFp8E5m2, "fp8_e5m2", float, 32)
TS_TYPE(WgInt8, "int8", int, 32)
#undef TS_TYPE

// One move an accumulator: copies of one zero would stand in the loop, and the compiler would serialise it.
__device__ __forceinline__ void wgmma_zero(float& x) { asm volatile("mov.f32 %0, 0f00000000;" : "=f"(x)); }
__device__ __forceinline__ void wgmma_zero(int& x) { asm volatile("mov.b32 %0, 0;" : "=r"(x)); }

template <class T, int N> struct WgmmaOf;  // from_smem(), from_registers(): D = A B^T + (accumulate ? D : 0)

// clang-format off
// S_TAIL, R_TAIL: scales and transpositions that the dtype has, A from shared memory and from registers
#define TS_WG_N(T, TYPES, S_TAIL, R_TAIL, N, I0, I1, I2, I3, I4, I5)                                                       \
  template <> struct WgmmaOf<T, N> {                                                                                        \
    static __device__ __forceinline__ void from_smem(T::Acc* d, uint64_t a, uint64_t b, int accumulate) {                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #I2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N TYPES             \
                   " {" TS_REGS_##N "}, %" #I0 ", %" #I1 ", p" S_TAIL ";\n}"                                               \
                   : TS_OUT_##N : "l"(a), "l"(b), "r"(accumulate));                                                        \
    }                                                                                                                      \
    static __device__ __forceinline__ void from_registers(T::Acc* d, const uint32_t* a, uint64_t b, int accumulate) {      \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #I5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N TYPES             \
                   " {" TS_REGS_##N "}, {%" #I0 ",%" #I1 ",%" #I2 ",%" #I3 "}, %" #I4 ", p" R_TAIL ";\n}"                  \
                   : TS_OUT_##N : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                    \
    }                                                                                                                      \
  };
#define TS_WG(T, TYPES, S_TAIL, R_TAIL)                                  \
  TS_WG_N(T, TYPES, S_TAIL, R_TAIL, 8, 4, 5, 6, 7, 8, 9)                 \
  TS_WG_N(T, TYPES, S_TAIL, R_TAIL, 16, 8, 9, 10, 11, 12, 13)            \
  TS_WG_N(T, TYPES, S_TAIL, R_TAIL, 32, 16, 17, 18, 19, 20, 21)          \
  TS_WG_N(T, TYPES, S_TAIL, R_TAIL, 64, 32, 33, 34, 35, 36, 37)          \
  TS_WG_N(T, TYPES, S_TAIL, R_TAIL, 96, 48, 49, 50, 51, 52, 53)          \
  TS_WG_N(T, TYPES, S_TAIL, R_TAIL, 128, 64, 65, 66, 67, 68, 69)         \
  TS_WG_N(T, TYPES, S_TAIL, R_TAIL, 192, 96, 97, 98, 99, 100, 101)       \
  TS_WG_N(T, TYPES, S_TAIL, R_TAIL, 256, 128, 129, 130, 131, 132, 133)
TS_WG(WgBf16, "k16.f32.bf16.bf16", ", 1, 1, 0, 0", ", 1, 1, 0")
TS_WG(WgFp16, "k16.f32.f16.f16", ", 1, 1, 0, 0", ", 1, 1, 0")
TS_WG(WgTf32, "k8.f32.tf32.tf32", ", 1, 1", ", 1, 1")
TS_WG(WgFp8, "k32.f32.e4m3.e4m3", ", 1, 1", ", 1, 1")
TS_WG(WgFp8E5m2, "k32.f32.e5m2.e5m2", ", 1, 1", ", 1, 1")
// The lists of accumulators in wgmma.cuh are made of TS_D4: here they are integers.
#undef TS_D4
#define TS_D4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
TS_WG(WgInt8, "k32.s32.s8.s8", "", "")
#undef TS_D4
#define TS_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#undef TS_WG
#undef TS_WG_N
// clang-format on

}  // namespace ts
