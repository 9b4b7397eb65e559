/* row_data.cuh: 16-byte vectors of a row in memory and as floats: decoding, rounding, stores, copies with a cache hint.
   Types      float (4 a vector) and bf16 (8 a vector) come in; float, bf16 and int8 go out; all arithmetic is in float
   Device     decode, store_vector, bulk_load_hint, l2_policy, store_async_16
   Build      header only; device functions need sm_90 or newer
   Reference  PTX ISA, "cp.async.bulk", "createpolicy", "st.async" */
#pragma once
#include "../common/cluster.cuh"

namespace ts {

using bf16 = __nv_bfloat16;
template <class T> constexpr int VECTOR = 16 / sizeof(T);

inline const char* type_name(float) { return "f32"; }
inline const char* type_name(bf16) { return "bf16"; }

// ---------------------------------------------------------------- device: vectors and floats

__device__ __forceinline__ void decode(uint4 raw, float (&v)[4]) {
  v[0] = __uint_as_float(raw.x), v[1] = __uint_as_float(raw.y), v[2] = __uint_as_float(raw.z), v[3] = __uint_as_float(raw.w);
}
__device__ __forceinline__ void decode(uint4 raw, float (&v)[8]) {  // the lower half of a word comes first
  const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) v[2 * i] = __uint_as_float(word[i] << 16), v[2 * i + 1] = __uint_as_float(word[i] & 0xFFFF0000u);
}
template <class T> union Raw {  // a vector as it lies in memory
  uint4 vector;
  T element[VECTOR<T>];
  __device__ Raw() : vector() {}
};

enum StoreHint { STORE_PLAIN, STORE_STREAM };  // st.global, st.global.cs (evicted from L2 first)

__device__ __forceinline__ void put(uint4* p, uint4 v, int hint) {
  if (hint == STORE_STREAM) __stcs(p, v);
  else *p = v;
}
__device__ __forceinline__ void store_vector(float* p, const float (&v)[4], int hint) {
  put((uint4*)p, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])), hint);
}
__device__ __forceinline__ void store_vector(bf16* p, const float (&v)[8], int hint) {
  put((uint4*)p, make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])), hint);
}
// Rounds to a whole number, half to even: it lies in the low bits of the sum, which is 1.5 * 2^23 + v. Bits of such floats
// order as integers do: what is beyond 127, infinite or no number, ends at -127 or 127.
__device__ __forceinline__ uint32_t rounded(float v) {
  constexpr int ZERO = 0x4B400000;
  return (uint32_t)min(max(__float_as_int(v + 12582912.0f), ZERO - 127), ZERO + 127);
}
__device__ __forceinline__ uint32_t pack_int8(float a, float b, float c, float d) {
  const uint32_t low = __byte_perm(rounded(a), rounded(b), 0x0040);
  return __byte_perm(low, __byte_perm(rounded(c), rounded(d), 0x0040), 0x5410);
}
__device__ __forceinline__ void store_vector(int8_t* p, const float (&v)[4], int hint) {
  const uint32_t word = pack_int8(v[0], v[1], v[2], v[3]);
  if (hint == STORE_STREAM) __stcs((uint32_t*)p, word);
  else *(uint32_t*)p = word;
}
__device__ __forceinline__ void store_vector(int8_t* p, const float (&v)[8], int hint) {
  const uint2 words = make_uint2(pack_int8(v[0], v[1], v[2], v[3]), pack_int8(v[4], v[5], v[6], v[7]));
  if (hint == STORE_STREAM) __stcs((uint2*)p, words);
  else *(uint2*)p = words;
}
__device__ __forceinline__ void store_one(float* p, float v) { *p = v; }
__device__ __forceinline__ void store_one(bf16* p, float v) { *p = __float2bfloat16(v); }
__device__ __forceinline__ void store_one(int8_t* p, float v) { *p = (int8_t)rounded(v); }

// Sum of a vector as a tree.
__device__ __forceinline__ float sum_of(const float (&v)[4]) { return (v[0] + v[1]) + (v[2] + v[3]); }
__device__ __forceinline__ float sum_of(const float (&v)[8]) {
  return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

// ---------------------------------------------------------------- device: copies

enum LoadHint { LOAD_PLAIN, LOAD_EVICT_FIRST };

__device__ __forceinline__ uint64_t l2_policy(int hint) {
  uint64_t normal, first;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  return hint == LOAD_EVICT_FIRST ? first : normal;
}
__device__ __forceinline__ uint4 load_once(const uint4* p, int hint) { return hint == LOAD_EVICT_FIRST ? __ldcs(p) : __ldg(p); }
__device__ __forceinline__ void bulk_load_hint(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(dst),
      "l"(src), "r"(bytes), "r"(bar), "l"(policy) : "memory");
}
// Four words that count their bytes off the mbarrier `bar`; both addresses are in the same CTA (at_rank).
__device__ __forceinline__ void store_async_16(uint32_t at, float4 v, uint32_t bar) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(at),
               "r"(__float_as_uint(v.x)), "r"(__float_as_uint(v.y)), "r"(__float_as_uint(v.z)), "r"(__float_as_uint(v.w)), "r"(bar)
               : "memory");
}
__device__ __forceinline__ void store_remote_16(uint32_t at, float4 v) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

}  // namespace ts
