/* tilesight.cuh: what every microbenchmark shares. Host: arguments, JSON lines, medians, timing with events and graphs,
   random and poisoned buffers, checksums, tensor maps. Device: clocks, mbarriers, cp.async, bulk and tensor copies,
   fences, wgmma descriptors.
   Units      seconds, bytes, cycles of the SM clock; a name says which
   Waits      mbar_wait traps after WAIT_LIMIT_CYCLES, so that a wrong byte count ends the run instead of hanging it
   Build      header only; nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a (no -lcuda)
   Reference  CUDA C++ Programming Guide, "Asynchronous Data Copies"; PTX ISA, "Tensors", "wgmma" */
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace ts {

// ---------------------------------------------------------------- host: errors, arguments, output

inline void check(cudaError_t code, const char* file, int line) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s (%s)\n", file, line, cudaGetErrorString(code), cudaGetErrorName(code));
  std::exit(1);
}
#define CHECK(call) ::ts::check((call), __FILE__, __LINE__)
#define CHECK_LAUNCH() ::ts::check(cudaGetLastError(), __FILE__, __LINE__)

// Ends the run when a result is wrong: a timing of a wrong kernel is worth nothing.
inline void require(bool ok, const std::string& what) {
  if (ok) return;
  std::fprintf(stderr, "check failed: %s\n", what.c_str());
  std::exit(1);
}

struct Args {
  std::vector<std::string> words;
  Args(int argc, char** argv) : words(argv + 1, argv + argc) {}
  const std::string* find(const std::string& key) const {
    for (size_t i = 0; i + 1 < words.size(); ++i)
      if (words[i] == key) return &words[i + 1];
    return nullptr;
  }
  int get(const std::string& key, int fallback) const { auto* w = find(key); return w ? std::stoi(*w) : fallback; }
  double get(const std::string& key, double fallback) const { auto* w = find(key); return w ? std::stod(*w) : fallback; }
  std::string get(const std::string& key, const char* fallback) const { auto* w = find(key); return w ? *w : fallback; }
  // "1,33,132" -> {1, 33, 132}
  std::vector<int> list(const std::string& key, const char* fallback) const {
    std::vector<int> out;
    std::stringstream s(get(key, fallback));
    for (std::string part; std::getline(s, part, ',');) out.push_back(std::stoi(part));
    return out;
  }
};

// One measured point, one line: Json j("dram_read"); j.put("n", 64); j.put("cycles", 32.1); j.emit();
class Json {
  std::ostringstream s_;
  std::ostringstream& key(const char* k) { s_ << ", \"" << k << "\": "; return s_; }

 public:
  explicit Json(const char* bench) { s_.precision(9); s_ << "{\"bench\": \"" << bench << "\""; }
  Json& put(const char* k, double v) {
    if (std::isfinite(v)) key(k) << v; else key(k) << "null";
    return *this;
  }
  Json& put(const char* k, int v) { key(k) << v; return *this; }
  Json& put(const char* k, long long v) { key(k) << v; return *this; }
  Json& put(const char* k, size_t v) { key(k) << v; return *this; }
  Json& put(const char* k, const char* v) { key(k) << '"' << v << '"'; return *this; }
  Json& put(const char* k, const std::string& v) { return put(k, v.c_str()); }
  void emit() { std::printf("%s}\n", s_.str().c_str()); std::fflush(stdout); }
};

// ---------------------------------------------------------------- host: statistics and timing

template <class T>
double quantile(std::vector<T> v, double q) {
  if (v.empty()) return NAN;
  std::sort(v.begin(), v.end());
  double at = q * (v.size() - 1);
  size_t lo = (size_t)at, hi = std::min(lo + 1, v.size() - 1);
  return v[lo] + (at - lo) * ((double)v[hi] - (double)v[lo]);
}
template <class T> double median(const std::vector<T>& v) { return quantile(v, 0.5); }
// (p90 - p10) / median
template <class T> double spread(const std::vector<T>& v) {
  return (quantile(v, 0.9) - quantile(v, 0.1)) / std::max(1e-30, std::fabs(median(v)));
}

// Seconds of each call of fn() between two events of the default stream (one launch each: contains the event cost).
template <class F>
std::vector<float> time_launches(F fn, int warmup = 3, int repeats = 20) {
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  std::vector<float> out;
  for (int i = 0; i < warmup + repeats; ++i) {
    CHECK(cudaEventRecord(a));
    fn();
    CHECK(cudaEventRecord(b));
    CHECK_LAUNCH();
    CHECK(cudaEventSynchronize(b));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, a, b));
    if (i >= warmup) out.push_back(ms * 1e-3f);
  }
  CHECK(cudaEventDestroy(a));
  CHECK(cudaEventDestroy(b));
  return out;
}

// Seconds per node of a graph in which fn(stream) was captured `nodes` times, one value a replay.
// fn may enqueue several kernels; the value is per call of fn.
template <class F>
std::vector<float> time_graph(F fn, int nodes, int replays, int warmup = 2) {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < nodes; ++i) fn(stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  std::vector<float> out;
  for (int i = 0; i < warmup + replays; ++i) {
    CHECK(cudaEventRecord(a, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(b, stream));
    CHECK(cudaEventSynchronize(b));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, a, b));
    if (i >= warmup) out.push_back(ms * 1e-3f / nodes);
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaEventDestroy(a));
  CHECK(cudaEventDestroy(b));
  CHECK(cudaStreamDestroy(stream));
  return out;
}

static __global__ void spin_kernel(long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
}
// Keeps every SM busy for about the given time, so that the SM clock has left its idle value before timing begins.
inline void warm_up_clock(double seconds = 0.3) {
  for (int i = 0; i < (int)std::ceil(seconds / 0.01); ++i) spin_kernel<<<1056, 128>>>(10000000ll);
  CHECK_LAUNCH();
  CHECK(cudaDeviceSynchronize());
}

inline int sm_count() {
  int n = 0;
  CHECK(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
  return n;
}
template <class K>
void allow_smem(K kernel, size_t bytes) {
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}

// ---------------------------------------------------------------- device and host: buffers and their contents

__host__ __device__ inline uint32_t hash32(uint64_t x) {  // splitmix64, upper half
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return (uint32_t)((x ^ (x >> 31)) >> 32);
}
__host__ __device__ inline float normal_at(uint64_t i, uint64_t seed) {  // Box-Muller
  float u = (hash32(2 * i + (seed << 40)) + 1.0f) * (1.0f / 4294967808.0f);
  float v = hash32(2 * i + 1 + (seed << 40)) * (1.0f / 4294967296.0f);
  return sqrtf(-2.0f * logf(u)) * cosf(6.28318530718f * v);
}
__device__ __host__ inline void store_as(float* p, float v) { *p = v; }
__device__ __host__ inline void store_as(__nv_bfloat16* p, float v) { *p = __float2bfloat16(v); }
template <class T>
__global__ void fill_normal_kernel(T* p, size_t n, uint64_t seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    store_as(p + i, normal_at(i, seed));
}
inline void fill_normal_bf16(__nv_bfloat16* p, size_t n, uint64_t seed) {
  fill_normal_kernel<<<1056, 256>>>(p, n, seed);
  CHECK_LAUNCH();
}
inline void fill_normal_f32(float* p, size_t n, uint64_t seed) {
  fill_normal_kernel<<<1056, 256>>>(p, n, seed);
  CHECK_LAUNCH();
}
static __global__ void fill_words_kernel(uint32_t* p, size_t words, uint64_t seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
    p[i] = hash32(i + (seed << 40));
}
inline void fill_words(void* p, size_t bytes, uint64_t seed) {  // random 32-bit words
  fill_words_kernel<<<1056, 256>>>((uint32_t*)p, bytes / 4, seed);
  CHECK_LAUNCH();
}
inline void poison(void* p, size_t bytes) { CHECK(cudaMemset(p, 0xFF, bytes)); }  // NaN in bf16 and f32
template <class T>
T* device_alloc(size_t count) {
  T* p = nullptr;
  CHECK(cudaMalloc(&p, count * sizeof(T)));
  return p;
}

// Sum of all 32-bit words modulo 2^64: independent of order, so any traversal can be compared with it.
static __global__ void checksum_kernel(const uint32_t* p, size_t words, unsigned long long* sum) {
  unsigned long long s = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x) s += p[i];
  atomicAdd(sum, s);
}
inline unsigned long long checksum(const void* p, size_t bytes) {
  unsigned long long *d = device_alloc<unsigned long long>(1), h = 0;
  CHECK(cudaMemset(d, 0, sizeof h));
  checksum_kernel<<<1056, 256>>>((const uint32_t*)p, bytes / 4, d);
  CHECK_LAUNCH();
  CHECK(cudaMemcpy(&h, d, sizeof h, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(d));
  return h;
}
template <class T>
std::vector<T> to_host(const T* p, size_t count) {
  std::vector<T> h(count);
  CHECK(cudaMemcpy(h.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost));
  return h;
}

// ---------------------------------------------------------------- host: tensor maps (TMA)

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                                 const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
inline EncodeTiled encode_tiled() {
  static EncodeTiled fn = nullptr;
  if (fn) return fn;
  void* p = nullptr;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault, &found));
  require(p != nullptr && found == cudaDriverEntryPointSuccess, "driver has cuTensorMapEncodeTiled");
  return fn = (EncodeTiled)p;
}
// Row-major bf16 matrix (rows, cols), `pitch` elements between rows (pitch * 2 bytes is a multiple of 16);
// boxes of box_rows x box_cols elements (box_cols * 2 <= 128 with the 128-byte swizzle). Coordinates are {col, row}.
inline CUtensorMap tensor_map_bf16(const void* base, uint64_t rows, uint64_t cols, uint64_t pitch, uint32_t box_rows,
                                   uint32_t box_cols, CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                                   CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B) {
  CUtensorMap map;
  cuuint64_t dims[2] = {cols, rows}, strides[1] = {pitch * 2};
  cuuint32_t box[2] = {box_cols, box_rows}, step[2] = {1, 1};
  CUresult r = encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(base), dims, strides, box, step,
                              CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(r == CUDA_SUCCESS, "tensor map encodes (error " + std::to_string((int)r) + ")");
  return map;
}

// ---------------------------------------------------------------- device: clocks and places

constexpr long long WAIT_LIMIT_CYCLES = 2000000000ll;  // about one second

__device__ __forceinline__ unsigned long long globaltimer_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}
__device__ __forceinline__ long long cycles() {
  long long t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
  return t;
}
__device__ __forceinline__ uint32_t smid() {
  uint32_t id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}
__device__ __forceinline__ uint32_t smem_u32(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
// Dynamic shared memory starts 16-byte aligned only; the 128-byte swizzle needs 1024.
__device__ __forceinline__ unsigned char* align_1024(unsigned char* p) {
  return p + ((1024 - (smem_u32(p) & 1023)) & 1023);
}

// Adds `mine` of every thread of the CTA to *total, with one atomic a CTA. All threads call it; block <= 1024.
__device__ inline void block_add(unsigned long long* total, unsigned long long mine) {
  __shared__ unsigned long long partial[32];
  for (int lane = 16; lane; lane /= 2) mine += __shfl_xor_sync(~0u, mine, lane);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned w = 1; w < (blockDim.x + 31) / 32; ++w) mine += partial[w];
    atomicAdd(total, mine);
  }
}
__device__ __forceinline__ unsigned long long sum_words(uint4 v) { return (unsigned long long)v.x + v.y + v.z + v.w; }

// ---------------------------------------------------------------- device: mbarriers (addresses in shared memory)

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
// After mbar_init, by the same thread; then __syncthreads().
__device__ __forceinline__ void mbar_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {  // arrive once and expect bytes
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ bool mbar_try(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  return done;
}
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  if (mbar_try(bar, parity)) return;
  long long start = cycles();
  while (!mbar_try(bar, parity))
    if (cycles() - start > WAIT_LIMIT_CYCLES) __trap();
}

// ---------------------------------------------------------------- device: copies into and out of shared memory

__device__ __forceinline__ void cp_async16(uint32_t dst, const void* src) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
// Contiguous bytes, a multiple of 16, both ends 16-byte aligned; completes on `bar` (see mbar_expect).
__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst), "l"(src),
               "r"(bytes), "r"(bar) : "memory");
}
__device__ __forceinline__ void bulk_store(void* dst, uint32_t src, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes) : "memory");
}
__device__ __forceinline__ void tma_load_2d(uint32_t dst, const CUtensorMap* map, int col, int row, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
      "l"(map), "r"(col), "r"(row), "r"(bar) : "memory");
}
__device__ __forceinline__ void tma_store_2d(const CUtensorMap* map, int col, int row, uint32_t src) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(col),
               "r"(row), "r"(src) : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void bulk_wait() {  // writes are visible
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}
template <int PENDING> __device__ __forceinline__ void bulk_wait_read() {  // sources may be reused
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Before the copy engine or the tensor cores read what ordinary stores wrote to shared memory.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---------------------------------------------------------------- device: wgmma operands and order

// Operand tile in shared memory, K-major (rows of 64 bf16 = 128 B), 128-byte swizzle, 1024-byte aligned, 8-row groups
// `stride_bytes` apart (1024 when rows are packed). One k16 step further is +32 bytes on the address.
__device__ __forceinline__ uint64_t wgmma_desc_128b(uint32_t smem_address, uint32_t stride_bytes = 1024) {
  return (uint64_t)((smem_address & 0x3FFFF) >> 4) | ((uint64_t)1 << 16) | ((uint64_t)(stride_bytes >> 4) << 32) | ((uint64_t)1 << 62);
}
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

}  // namespace ts
