/* wgmma.cuh: the m64nNk16 bf16 matrix instruction of sm_90a with fp32 accumulators, and what a kernel around it needs:
   operand descriptors for both orders of B, the swizzles that copies and tensor cores share, stmatrix, named barriers,
   two-CTA clusters.
   Shapes     A: 64 x 16 (rows of k), B: N x 16 ("k-major", rows of k) or 16 x N ("n-major"), D: 64 x N
   Fragment   warp w, lane l of the warpgroup hold D[16 w + l/4 + 8 (i/2 % 2)][8 (i/4) + 2 (l%4) + i%2] in d[i], i < N/2
   Reference  PTX ISA, "Asynchronous warpgroup level matrix instructions" */
#pragma once
#include "tilesight.cuh"

namespace ts {

// ---------------------------------------------------------------- addresses

// The 128-, 64- and 32-byte swizzles of tensor copies exchange 16-byte chunks within rows of that many bytes.
// `offset` counts from a 1024-byte-aligned base. row_bytes below 32 has no swizzle.
template <int ROW_BYTES> __host__ __device__ constexpr uint32_t swizzled(uint32_t offset) {
  return offset ^ ((offset >> 3) & (ROW_BYTES == 128 ? 0x70u : ROW_BYTES == 64 ? 0x30u : ROW_BYTES == 32 ? 0x10u : 0u));
}

// n-major B in shared memory: blocks of 64 columns, each 128-byte rows of one k, 128-byte swizzle, `block_bytes` apart.
// One k16 step further is +2048 bytes on the address.
__device__ __forceinline__ uint64_t wgmma_desc_n_major(uint32_t smem_address, uint32_t block_bytes) {
  return (uint64_t)((smem_address & 0x3FFFF) >> 4) | ((uint64_t)(block_bytes >> 4) << 16) | ((uint64_t)(1024 >> 4) << 32) |
         ((uint64_t)1 << 62);
}

// ---------------------------------------------------------------- D += A B, one asynchronous instruction

template <int N> struct Wgmma;  // mma(): A and B from shared memory; mma_a_regs(): A from registers

// clang-format off
#define TS_REGS_8 "%0,%1,%2,%3"
#define TS_REGS_16 TS_REGS_8 \
  "," "%4,%5,%6,%7"
#define TS_REGS_24 TS_REGS_16 \
  "," "%8,%9,%10,%11"
#define TS_REGS_32 TS_REGS_24 \
  "," "%12,%13,%14,%15"
#define TS_REGS_48 TS_REGS_32 \
  "," "%16,%17,%18,%19,%20,%21,%22,%23"
#define TS_REGS_64 TS_REGS_48 \
  "," "%24,%25,%26,%27,%28,%29,%30,%31"
#define TS_REGS_80 TS_REGS_64 \
  "," "%32,%33,%34,%35,%36,%37,%38,%39"
#define TS_REGS_96 TS_REGS_80 \
  "," "%40,%41,%42,%43,%44,%45,%46,%47"
#define TS_REGS_128 TS_REGS_96 \
  "," "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TS_REGS_160 TS_REGS_128 \
  "," "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define TS_REGS_192 TS_REGS_160 \
  "," "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define TS_REGS_256 TS_REGS_192 \
  "," "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113," \
  "%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define TS_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TS_D16(i) TS_D4(i), TS_D4(i + 4), TS_D4(i + 8), TS_D4(i + 12)
#define TS_OUT_8 TS_D4(0)
#define TS_OUT_16 TS_D4(0), TS_D4(4)
#define TS_OUT_24 TS_D4(0), TS_D4(4), TS_D4(8)
#define TS_OUT_32 TS_D16(0)
#define TS_OUT_48 TS_D16(0), TS_D4(16), TS_D4(20)
#define TS_OUT_64 TS_D16(0), TS_D16(16)
#define TS_OUT_80 TS_D16(0), TS_D16(16), TS_D4(32), TS_D4(36)
#define TS_OUT_96 TS_D16(0), TS_D16(16), TS_D16(32)
#define TS_OUT_128 TS_D16(0), TS_D16(16), TS_D16(32), TS_D16(48)
#define TS_OUT_160 TS_D16(0), TS_D16(16), TS_D16(32), TS_D16(48), TS_D16(64)
#define TS_OUT_192 TS_D16(0), TS_D16(16), TS_D16(32), TS_D16(48), TS_D16(64), TS_D16(80)
#define TS_OUT_256 TS_D16(0), TS_D16(16), TS_D16(32), TS_D16(48), TS_D16(64), TS_D16(80), TS_D16(96), TS_D16(112)

#define TS_WGMMA(N, I0, I1, I2, J0, J1, J2, J3)                                                                      \
  template <> struct Wgmma<N> {                                                                                     \
    template <int N_MAJOR_B = 0>                                                                                    \
    static __device__ __forceinline__ void mma(float* d, uint64_t a, uint64_t b, int accumulate) {                 \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #I2 ", 0;\n"                                               \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" TS_REGS_##N "}, %" #I0 ", %" #I1  \
                   ", p, 1, 1, 0, %" #J0 ";\n}" : TS_OUT_##N : "l"(a), "l"(b), "r"(accumulate), "n"(N_MAJOR_B));   \
    }                                                                                                               \
    template <int N_MAJOR_B = 0>                                                                                    \
    static __device__ __forceinline__ void mma_a_regs(float* d, const uint32_t* a, uint64_t b, int accumulate) {   \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #J2 ", 0;\n"                                               \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" TS_REGS_##N "}, {%" #I0 ",%" #I1  \
                   ",%" #I2 ",%" #J0 "}, %" #J1 ", p, 1, 1, %" #J3 ";\n}" : TS_OUT_##N                             \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(N_MAJOR_B));         \
    }                                                                                                               \
  };
TS_WGMMA(8, 4, 5, 6, 7, 8, 9, 10)
TS_WGMMA(16, 8, 9, 10, 11, 12, 13, 14)
TS_WGMMA(24, 12, 13, 14, 15, 16, 17, 18)
TS_WGMMA(32, 16, 17, 18, 19, 20, 21, 22)
TS_WGMMA(48, 24, 25, 26, 27, 28, 29, 30)
TS_WGMMA(64, 32, 33, 34, 35, 36, 37, 38)
TS_WGMMA(80, 40, 41, 42, 43, 44, 45, 46)
TS_WGMMA(96, 48, 49, 50, 51, 52, 53, 54)
TS_WGMMA(128, 64, 65, 66, 67, 68, 69, 70)
TS_WGMMA(160, 80, 81, 82, 83, 84, 85, 86)
TS_WGMMA(192, 96, 97, 98, 99, 100, 101, 102)
TS_WGMMA(256, 128, 129, 130, 131, 132, 133, 134)
#undef TS_WGMMA
// clang-format on

// ---------------------------------------------------------------- results into shared memory, barriers of a part of the CTA

// Four (two) 8 x 8 bf16 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ void stmatrix_x2(uint32_t at, uint32_t a, uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(at), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<uint32_t*>(&v);
}
// Whether the phase is complete, without waiting for it.
__device__ __forceinline__ bool mbar_test(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  return done;
}
// One lane of a converged warp, the same each time: what it issues keeps its operands in uniform registers.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected)::"memory");
  return elected;
}
// The same value, computed once: without it the compiler forms the address of a barrier anew in each turn of a loop.
__device__ __forceinline__ uint32_t once(uint32_t x) {
  uint32_t y;
  asm volatile("mov.u32 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
__device__ __forceinline__ void named_barrier(int id, int threads) {  // id 1..15; 0 is __syncthreads
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---------------------------------------------------------------- clusters

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Arrive on the barrier at the same shared address in CTA `rank` of the cluster.
__device__ __forceinline__ void mbar_arrive_at(uint32_t bar, uint32_t rank) {
  asm volatile("{\n.reg .b32 r;\nmapa.shared::cluster.u32 r, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [r];\n}" ::"r"(bar),
               "r"(rank) : "memory");
}
// The box lands at `dst` in every CTA of `mask` and completes on `bar` of each.
__device__ __forceinline__ void tma_load_2d_multicast(uint32_t dst, const CUtensorMap* map, int col, int row, uint32_t bar,
                                                      uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(dst), "l"(map), "r"(col), "r"(row), "r"(bar), "h"(mask) : "memory");
}

}  // namespace ts
