/* cp_async: latency of one group of cp.async, and bytes per cycle of an SM against bytes in flight, L2-resident.
   Shapes     latency: 32 lanes copy 4, 8 or 16 bytes each from consecutive addresses, samples 4224 bytes apart, none read twice;
              ring: every CTA walks a set of at most 16 MiB and a quarter of L2, from its own place
   Launch     latency: grid 1, block 32; ring: grid 1 or SMs, block 32 * warps, no cluster
   On chip    dynamic smem: bytes in flight, and at least half of an SM's, so that one CTA fits; registers as printed by ptxas
   Traffic    latency: 32 * width bytes a sample; ring: 4 MiB an SM and launch from L2, and its reading from shared memory
   Work       one addition a word                             Bound  latency; in flight / latency; L2 to SM; issue (4 bytes)
   Parts      latency: cycles from before cp.async to after wait_group 0; dram: L2 was filled with other lines before
              ring: each thread keeps `stages` groups of one copy in flight and reads what has arrived; no barriers
   Checked    the words that arrived in shared memory, added up, against the host
   Model      fill.latency_l2_cycles, latency_dram_extra_cycles, cp_async_bytes_per_cycle
   Reference  PTX ISA, cp.async; Little's law
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v cp_async.cu -o cp_async
   Run        ./cp_async --repeats 9                           one JSON line a point */
#include "../common/cta_window.cuh"
using namespace ts;
using u64 = unsigned long long;

constexpr int SAMPLES = 256, SAMPLE_STRIDE = 4224, RING_BYTES = 4 << 20;

// ---------------------------------------------------------------- kernels

template <int BYTES, bool CG> __device__ __forceinline__ void copy(uint32_t to, const void* from) {
  if constexpr (CG) cp_async16(to, from);
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
}
template <int BYTES> __device__ __forceinline__ uint32_t sum_at(const unsigned char* at) {
  if constexpr (BYTES == 4) return *(const uint32_t*)at;
  if constexpr (BYTES == 8) return ((const uint2*)at)->x + ((const uint2*)at)->y;
  if constexpr (BYTES == 16) {
    uint4 v = *(const uint4*)at;
    return v.x + v.y + v.z + v.w;
  }
}

template <int BYTES, bool CG>
__global__ void __launch_bounds__(32) latency_kernel(const unsigned char* in, long long* cycle, u64* total) {
  __shared__ __align__(128) unsigned char smem[512];
  unsigned char* mine = smem + threadIdx.x * BYTES;
  u64 sum = 0;
#pragma unroll 1
  for (int i = 0; i < SAMPLES; ++i) {
    const unsigned char* from = in + (size_t)i * SAMPLE_STRIDE + threadIdx.x * BYTES;
    __syncwarp();
    const long long t0 = cycles();
    copy<BYTES, CG>(smem_u32(mine), from);
    cp_async_commit();
    cp_async_wait<0>();
    const long long t1 = cycles();
    sum += sum_at<BYTES>(mine);
    if (threadIdx.x == 0) cycle[i] = t1 - t0;
  }
  block_add(total, sum);
}

// Step s of CTA c: blockDim.x * BYTES bytes at (start of c + s * that) in the set, whose size is a power of two.
template <int BYTES, bool CG, int STAGES>
__global__ void __launch_bounds__(1024)
ring_kernel(const unsigned char* in, uint32_t set, uint32_t first_step, u64* total, Elapsed* elapsed) {
  extern __shared__ __align__(128) unsigned char smem[];
  __shared__ CtaWindow window;
  const uint32_t step = blockDim.x * BYTES;
  const int steps = RING_BYTES / step;
  uint32_t at = blockIdx.x * first_step + threadIdx.x * BYTES, sum = 0;
  unsigned char* mine = smem + threadIdx.x * BYTES;
  auto issue = [&](int stage) {
    copy<BYTES, CG>(smem_u32(mine + stage * step), in + at);
    cp_async_commit();
    at = (at + step) & (set - 1);
  };
  const long long t0 = window_open(window);
#pragma unroll
  for (int s = 0; s < STAGES; ++s) issue(s);
#pragma unroll 1
  for (int s = STAGES; s < steps; s += STAGES)
#pragma unroll
    for (int u = 0; u < STAGES; ++u) {
      cp_async_wait<STAGES - 1>();
      sum += sum_at<BYTES>(mine + u * step);
      issue(u);
    }
  cp_async_wait<0>();
#pragma unroll
  for (int u = 0; u < STAGES; ++u) sum += sum_at<BYTES>(mine + u * step);
  window_close(window, t0, elapsed);
  block_add(total, sum);
}

// Reads everything once: into L2.
__global__ void touch_kernel(const uint4* in, size_t vectors, u64* total) {
  u64 sum = 0;
  const size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < vectors; i += stride) sum += sum_words(__ldcg(in + i));
  block_add(total, sum);
}

// ---------------------------------------------------------------- launcher

struct Buffers {
  unsigned char *in, *flush;
  size_t set, flush_bytes;
  long long* cycle;
  int repeats, sms;
  size_t half_smem;
  u64* total;
  Elapsed* elapsed;
  std::vector<uint32_t> host;  // of in
};

void touch(const Buffers& x, const unsigned char* p, size_t bytes) {
  touch_kernel<<<2 * x.sms, 512>>>((const uint4*)p, bytes / 16, x.total);
  CHECK_LAUNCH();
}
u64 run_and_sum(const Buffers& x, const std::function<void()>& launch) {
  CHECK(cudaMemset(x.total, 0, 8));
  launch();
  CHECK_LAUNCH();
  return to_host(x.total, 1)[0];
}
// The words of one copy, added modulo 2^32.
template <int BYTES> u64 host_sum(const Buffers& x, size_t byte) {
  uint32_t s = 0;
  for (int j = 0; j < BYTES / 4; ++j) s += x.host[byte / 4 + j];
  return s;
}

template <int BYTES, bool CG> void measure_latency(const Buffers& x) {
  u64 want = 0;
  for (size_t i = 0; i < SAMPLES; ++i)
    for (int lane = 0; lane < 32; ++lane) want += host_sum<BYTES>(x, i * SAMPLE_STRIDE + lane * BYTES);
  for (bool dram : {false, true}) {
    std::vector<double> medians, all;
    for (int r = 0; r <= x.repeats; ++r) {
      if (dram) touch(x, x.flush, x.flush_bytes);
      else touch(x, x.in, SAMPLES * SAMPLE_STRIDE);
      poison(x.cycle, SAMPLES * 8);
      u64 sum = run_and_sum(x, [&] { latency_kernel<BYTES, CG><<<1, 32>>>(x.in, x.cycle, x.total); });
      require(sum == want, "cp_async: latency, " + std::to_string(BYTES) + " bytes");
      auto c = to_host(x.cycle, SAMPLES);
      if (r == 0) continue;
      medians.push_back(median(c));
      for (long long v : c) all.push_back((double)v);
    }
    Json j("cp_async");
    j.put("part", "latency").put("bytes_per_thread", BYTES).put("cache", CG ? "cg" : "ca").put("source", dram ? "dram" : "l2");
    j.put("samples", SAMPLES).put("cycles", median(medians));
    j.put("cycles_p10", quantile(all, 0.1)).put("cycles_p90", quantile(all, 0.9));
    j.put("repeats", x.repeats).put("spread", spread(medians)).emit();
  }
}

template <int BYTES, bool CG, int STAGES> void measure_ring(const Buffers& x) {
  auto kernel = ring_kernel<BYTES, CG, STAGES>;
  allow_smem(kernel, std::max<size_t>(64 * 1024, x.half_smem));
  std::vector<u64> before(x.set / BYTES + 1, 0);  // sums of whole copies from the start of the set
  for (size_t i = 0; i < x.set / BYTES; ++i) before[i + 1] = before[i] + host_sum<BYTES>(x, i * BYTES);
  const size_t first_step = x.set / x.sms / 4096 * 4096, copies = x.set / BYTES, length = RING_BYTES / BYTES;
  for (int warps : {1, 2, 4, 8, 16, 32}) {
    const size_t in_flight = (size_t)32 * warps * BYTES * STAGES;
    if (in_flight < 1024 || in_flight > 65536) continue;
    for (int ctas : {1, x.sms}) {
      const size_t smem = std::max(in_flight, x.half_smem);
      auto launch = [&] { kernel<<<ctas, 32 * warps, smem>>>(x.in, (uint32_t)x.set, (uint32_t)first_step, x.total, x.elapsed); };
      u64 want = 0;
      for (int c = 0; c < ctas; ++c) {
        size_t from = c * first_step / BYTES, to = from + length;
        want += to <= copies ? before[to] - before[from] : before[copies] - before[from] + before[to - copies];
      }
      touch(x, x.in, x.set);
      require((uint32_t)run_and_sum(x, launch) == (uint32_t)want,
              "cp_async: ring, " + std::to_string(BYTES) + " bytes, " + std::to_string(warps) + " warps");
      Timing t = time_ctas(launch, x.elapsed, ctas, x.repeats);
      Json j("cp_async");
      j.put("part", "ring").put("bytes_per_thread", BYTES).put("cache", CG ? "cg" : "ca").put("source", "l2").put("sms", ctas);
      j.put("warps", warps).put("stages", STAGES).put("bytes_in_flight_per_sm", in_flight).put("set_bytes", x.set);
      j.put("bytes_per_cycle_per_sm", RING_BYTES / median(t.cycles));
      j.put("repeats", x.repeats).put("spread", spread(t.cycles)).emit();
    }
  }
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  int l2 = 0, per_sm = 0;
  CHECK(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, 0));
  CHECK(cudaDeviceGetAttribute(&per_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor, 0));
  size_t set = (size_t)16 << 20;
  while (set > (size_t)l2 / 4) set /= 2;
  require(set >= (size_t)SAMPLES * SAMPLE_STRIDE + 512 && set >= RING_BYTES, "cp_async: L2 of at least 8 MiB");
  const int sms = sm_count();
  Buffers x{device_alloc<unsigned char>(set), device_alloc<unsigned char>((size_t)4 * l2), set, (size_t)4 * l2,
            device_alloc<long long>(SAMPLES), args.get("--repeats", 9), sms, (size_t)per_sm / 2, device_alloc<u64>(1),
            device_alloc<Elapsed>(sms), {}};
  fill_words(x.in, set, 1);
  fill_words(x.flush, x.flush_bytes, 2);
  x.host = to_host((const uint32_t*)x.in, set / 4);
  warm_up_clock(0.1);
  measure_latency<4, false>(x);
  measure_latency<8, false>(x);
  measure_latency<16, false>(x);
  measure_latency<16, true>(x);
  measure_ring<4, false, 2>(x);
  measure_ring<4, false, 8>(x);
  measure_ring<8, false, 2>(x);
  measure_ring<8, false, 8>(x);
  measure_ring<16, false, 2>(x);
  measure_ring<16, false, 8>(x);
  measure_ring<16, true, 2>(x);
  measure_ring<16, true, 8>(x);
  return 0;
}
