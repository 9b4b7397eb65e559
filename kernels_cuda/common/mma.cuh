/* mma.cuh: mma.sync of every dtype as types that a kernel takes as a parameter, their fragments, and random operands.
   Shapes     A: M x K, rows of k; B: 8 x K, rows of k ("col" of the instruction); D: M x 8; D = A B^T + D
   Fragment   lane l, g = l / 4, t = l % 4, words of 4 bytes (fp64: 8). A register r: row g + 8 (r % 2), word 4 (r / 2) + t;
              B register r: row g, word 4 r + t; D element i: row g + 8 (i / 2), column 2 t + i % 2
   Operands   random_operand: normal values rounded to the dtype (int8: uniform), with the exact value of each
   Limits     Fp8* need sm_89, Fp64K16 needs sm_90: elsewhere mma() does nothing and the host leaves them out; see refresh()
   Reference  PTX ISA, "Warp level matrix instructions", mma.sync */
#pragma once
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <type_traits>

#include "tilesight.cuh"

namespace ts {

// ---------------------------------------------------------------- host: operands and reference

struct Operand { std::vector<unsigned char> raw; std::vector<double> value; };

// dtype: bf16, fp16, tf32, fp8 (e4m3), fp8_e5m2, int8, fp64
inline Operand random_operand(const std::string& dtype, size_t count, uint64_t seed) {
  Operand o;
  o.value.resize(count);
  auto fill = [&](auto convert) {
    using T = decltype(convert(0.0f, size_t()));
    o.raw.resize(count * sizeof(T));
    for (size_t i = 0; i < count; ++i) {
      T x = convert(normal_at(i, seed), i);
      std::memcpy(&o.raw[i * sizeof(T)], &x, sizeof(T));
      o.value[i] = (double)x;
    }
  };
  if (dtype == "fp16") fill([](float v, size_t) { return __half(v); });
  else if (dtype == "fp8") fill([](float v, size_t) { return __nv_fp8_e4m3(v); });
  else if (dtype == "fp8_e5m2") fill([](float v, size_t) { return __nv_fp8_e5m2(v); });
  else if (dtype == "int8") fill([&](float, size_t i) { return (signed char)(hash32(i + (seed << 40)) & 0xFF); });
  else if (dtype == "fp64") fill([&](float v, size_t i) { return v + 1e-8 * normal_at(i, seed + 1000); });
  else if (dtype == "bf16") fill([](float v, size_t) { return __nv_bfloat16(v); });
  else if (dtype == "tf32") fill([](float v, size_t) {  // the lower 13 bits are not read: none are set
    uint32_t u;
    std::memcpy(&u, &v, 4);
    u &= 0xFFFFE000u;
    std::memcpy(&v, &u, 4);
    return v;
  });
  else require(false, "no dtype " + dtype);
  return o;
}

template <class T> T* upload(const std::vector<unsigned char>& raw) {
  T* p = (T*)device_alloc<unsigned char>(raw.size());
  CHECK(cudaMemcpy(p, raw.data(), raw.size(), cudaMemcpyHostToDevice));
  return p;
}

// A B^T in float64; a: m rows, b: n rows, both of k values, k contiguous. Exact for int8.
inline std::vector<double> product(const double* a, const double* b, int m, int n, int k) {
  std::vector<double> d((size_t)m * n);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double s = 0;
      for (int x = 0; x < k; ++x) s += a[(size_t)i * k + x] * b[(size_t)j * k + x];
      d[(size_t)i * n + j] = s;
    }
  return d;
}
// |got - want| / |want|; NaN stays NaN.
inline double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  double err = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) err += (got[i] - want[i]) * (got[i] - want[i]), norm += want[i] * want[i];
  return std::sqrt(err / norm);
}
// What a right kernel stays below: fp16 sums round to 11 bits, fp8 sums of Hopper keep about 14, int8 is exact.
inline double tolerance(const std::string& dtype, const std::string& accumulator) {
  if (dtype == "int8") return 1e-300;
  if (dtype == "fp64") return 1e-13;
  return dtype.compare(0, 3, "fp8") == 0 ? 1e-2 : accumulator == "fp16" ? 5e-3 : 1e-4;
}

// ---------------------------------------------------------------- device: D += A B^T by one warp

template <class IN, class ACC, int M_, int K_, int A_, int B_, int D_> struct MmaShape {
  using In = IN;
  using Acc = ACC;
  static constexpr int M = M_, N = 8, K = K_, A = A_, B = B_, D = D_;  // A, B, D: registers a lane
  static constexpr int WORDS = 4 * B;                                  // of a row of A or B
};

// clang-format off
#define TS_D4A4B2 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#define TS_D4A2B1 " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
#define TS_D2A4B2 " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
#define TS_D2A2B1 " {%0,%1}, {%2,%3}, {%4}, {%0,%1};"
#define TS_IO_D4(c) c(d[0]), c(d[1]), c(d[2]), c(d[3])
#define TS_IO_D2(c) c(d[0]), c(d[1])
#define TS_F(x) "+f"(x)
#define TS_R(x) "+r"(x)
#define TS_IN_A4B2 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])
#define TS_IN_A2B1 "r"(a[0]), "r"(a[1]), "r"(b[0])
// D_LIST and C: registers of D and their constraint; AB: registers of A and B
#define TS_MMA(NAME, DTYPE, ACCUMULATOR, ACC, M, K, A, B, D, AB, C, TYPES)                                             \
  struct NAME : MmaShape<uint32_t, ACC, M, K, A, B, D> {                                                               \
    static constexpr const char *dtype = DTYPE, *accumulator = ACCUMULATOR;                                            \
    static __device__ __forceinline__ void mma(ACC* d, const uint32_t* a, const uint32_t* b) {                         \
      asm volatile("mma.sync.aligned.m" #M "n8k" #K ".row.col." TYPES TS_D##D##AB : TS_IO_D##D(C) : TS_IN_##AB);       \
    }                                                                                                                  \
  };
TS_MMA(Bf16K8, "bf16", "fp32", float, 16, 8, 2, 1, 4, A2B1, TS_F, "f32.bf16.bf16.f32")
TS_MMA(Bf16K16, "bf16", "fp32", float, 16, 16, 4, 2, 4, A4B2, TS_F, "f32.bf16.bf16.f32")
TS_MMA(Fp16K8, "fp16", "fp32", float, 16, 8, 2, 1, 4, A2B1, TS_F, "f32.f16.f16.f32")
TS_MMA(Fp16K16, "fp16", "fp32", float, 16, 16, 4, 2, 4, A4B2, TS_F, "f32.f16.f16.f32")
TS_MMA(Fp16K8Half, "fp16", "fp16", uint32_t, 16, 8, 2, 1, 2, A2B1, TS_R, "f16.f16.f16.f16")
TS_MMA(Fp16K16Half, "fp16", "fp16", uint32_t, 16, 16, 4, 2, 2, A4B2, TS_R, "f16.f16.f16.f16")
TS_MMA(Tf32K4, "tf32", "fp32", float, 16, 4, 2, 1, 4, A2B1, TS_F, "f32.tf32.tf32.f32")
TS_MMA(Tf32K8, "tf32", "fp32", float, 16, 8, 4, 2, 4, A4B2, TS_F, "f32.tf32.tf32.f32")
TS_MMA(Int8K16, "int8", "int32", int, 16, 16, 2, 1, 4, A2B1, TS_R, "s32.s8.s8.s32")
TS_MMA(Int8K32, "int8", "int32", int, 16, 32, 4, 2, 4, A4B2, TS_R, "s32.s8.s8.s32")
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
TS_MMA(Fp8K32, "fp8", "fp32", float, 16, 32, 4, 2, 4, A4B2, TS_F, "f32.e4m3.e4m3.f32")
TS_MMA(Fp8E5m2K32, "fp8_e5m2", "fp32", float, 16, 32, 4, 2, 4, A4B2, TS_F, "f32.e5m2.e5m2.f32")
#else
struct Fp8K32 : Bf16K16 { static __device__ void mma(float*, const uint32_t*, const uint32_t*) {} };
struct Fp8E5m2K32 : Bf16K16 { static __device__ void mma(float*, const uint32_t*, const uint32_t*) {} };
#endif
// clang-format on
struct Fp64K4 : MmaShape<double, double, 8, 4, 1, 1, 2> {
  static constexpr const char *dtype = "fp64", *accumulator = "fp64";
  static __device__ __forceinline__ void mma(double* d, const double* a, const double* b) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(d[0]), "+d"(d[1]) : "d"(a[0]), "d"(b[0]));
  }
};
struct Fp64K16 : MmaShape<double, double, 16, 16, 8, 4, 4> {
  static constexpr const char *dtype = "fp64", *accumulator = "fp64";
  static __device__ __forceinline__ void mma(double* d, const double* a, const double* b) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7,%8,%9,%10,%11}, "
                 "{%12,%13,%14,%15}, {%0,%1,%2,%3};"
                 : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]),
                   "d"(b[1]), "d"(b[2]), "d"(b[3]));
#endif
  }
};

// ---------------------------------------------------------------- device: fragments from and to global memory

// sm_90 and sm_100 have no fp8 mma.sync: the compiler unpacks to fp16, and would form the product of two unchanged
// fragments once and add it in every step. With `zero` = 0 at run time the fragment is the same, but not to the compiler.
template <class T> constexpr bool FRESH = T::K == 32 && std::is_same_v<typename T::Acc, float>;
template <class T, class In, int TILES, int REGISTERS>
__device__ __forceinline__ void refresh(In (&fragment)[TILES][REGISTERS], uint32_t zero) {
  if constexpr (FRESH<T>)
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
      for (int r = 0; r < REGISTERS; ++r) fragment[i][r] += zero;
}

template <class T> __device__ __forceinline__ void load_a(typename T::In* fragment, const typename T::In* tile, int lane) {
#pragma unroll
  for (int r = 0; r < T::A; ++r) {
    const int half = T::M == 16 ? r % 2 : 0, step = T::M == 16 ? r / 2 : r;
    fragment[r] = tile[(lane / 4 + 8 * half) * T::WORDS + 4 * step + lane % 4];
  }
}
template <class T> __device__ __forceinline__ void load_b(typename T::In* fragment, const typename T::In* tile, int lane) {
#pragma unroll
  for (int r = 0; r < T::B; ++r) fragment[r] = tile[lane / 4 * T::WORDS + 4 * r + lane % 4];
}
// Volatile: the compiler would form these doubles in the loop before.
__device__ __forceinline__ double widen(float x) {
  double v;
  asm volatile("cvt.f64.f32 %0, %1;" : "=d"(v) : "f"(x));
  return v;
}
__device__ __forceinline__ double widen(int x) {
  double v;
  asm volatile("cvt.rn.f64.s32 %0, %1;" : "=d"(v) : "r"(x));
  return v;
}
__device__ __forceinline__ double widen(double x) { return x; }
// tile: M x 8 values
template <class T> __device__ __forceinline__ void store_d(double* tile, const typename T::Acc* d, int lane) {
#pragma unroll
  for (int r = 0; r < T::M / 4; ++r) {
    double v;
    if constexpr (std::is_same_v<typename T::Acc, uint32_t>)  // two fp16 a register
      v = widen(__half2float(__ushort_as_half((unsigned short)(d[r / 2] >> 16 * (r % 2)))));
    else v = widen(d[r]);
    tile[(lane / 4 + 8 * (r / 2)) * 8 + 2 * (lane % 4) + r % 2] = v;
  }
}

}  // namespace ts
