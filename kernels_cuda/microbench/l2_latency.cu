/* l2_latency: cycles of one load that waits for the one before, against footprint, through L1 and past it.
   Shapes     chain: lines of 128 bytes; the first 8 bytes of a line hold the address of the next one in a random cycle through
              all lines of the footprint (Sattolo); 4 KiB to 4 times the L2 size, two footprints an octave
   Launch     1 CTA of 1024 threads: all warm, then one thread follows the chain and the others have left
   On chip    smem 0 B, the whole of it as L1; registers as printed by ptxas (record .toml)
   Parts      ca  ld.global, cached in L1 by default (L1, then L2, then DRAM)       cg  ld.global.cg (L1 bypassed)
   Traffic    one pass over all lines in address order by the same SM, with the same kind of load, before each chase; the
              chase takes whole cycles of small footprints, and --steps lines of larger ones, another part each repeat
   Work       none                                            Bound  latency of L1, L2 or DRAM, and of address translation
   Checked    the cycle visits every line once (host); the last address of every chase against the host's walk
   Model      fill.latency_l2_s, fill.latency_dram_extra_s; cycles_per_load between the plateaus = mix by residency
   Reference  Sattolo, Inf. Proc. Letters 22 (1986); Saavedra and Smith, IEEE Trans. Computers 44 (1995)
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v l2_latency.cu -o l2_latency
   Run        ./l2_latency --steps 8192 --repeats 9            one JSON line a point */
#include "../common/memory.cuh"
using namespace ts;

constexpr int LINE = 128, THREADS = 1024;

// Line i of the cycle is followed by line next[i]; one cycle through all lines.
std::vector<uint32_t> random_cycle(uint32_t lines, uint64_t seed) {
  std::vector<uint32_t> next(lines);
  for (uint32_t i = 0; i < lines; ++i) next[i] = i;
  for (uint32_t i = lines - 1; i > 0; --i) std::swap(next[i], next[hash32(i + (seed << 40)) % i]);
  return next;
}
bool is_one_cycle(const std::vector<uint32_t>& next) {
  size_t steps = 0;
  for (uint32_t at = 0; steps == 0 || at != 0; at = next[at])
    if (++steps > next.size()) return false;
  return steps == next.size();
}
__global__ void write_chain(unsigned char* base, const uint32_t* next, uint32_t lines) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < lines; i += gridDim.x * blockDim.x)
    *(u64*)(base + (size_t)i * LINE) = (u64)(base + (size_t)next[i] * LINE);
}

struct Result { u64 last, sum; long long cycles; u64 ns; };

template <bool L1>
__device__ __forceinline__ u64 follow(u64 p) {
  u64 next;
  if (L1) asm volatile("ld.global.u64 %0, [%1];" : "=l"(next) : "l"(p) : "memory");
  else asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(next) : "l"(p) : "memory");
  return next;
}
// steps % 8 == 0
template <bool L1>
__global__ void __launch_bounds__(THREADS, 1) chase(const unsigned char* base, size_t bytes, u64 start, int steps, Result* result) {
  constexpr int UNROLL = 8;
  const uint4* in = (const uint4*)base;
  const size_t vectors = bytes / 16;
  u64 sum = 0;
  for (size_t i = threadIdx.x; i < vectors; i += UNROLL * THREADS) {
    uint4 v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      v[u] = make_uint4(0, 0, 0, 0);
      if (i + u * THREADS < vectors) v[u] = L1 ? load_l1(in + i + u * THREADS) : load_l2(in + i + u * THREADS);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) sum += sum_words(v[u]);
  }
  block_add(&result->sum, sum);
  __syncthreads();
  if (threadIdx.x) return;
  u64 p = start, ns = globaltimer_ns();
  long long t = cycles();
#pragma unroll 1
  for (int i = 0; i < steps; i += 8) {
#pragma unroll
    for (int u = 0; u < 8; ++u) p = follow<L1>(p);
  }
  result->last = p;  // the store waits for the last load, and the clock is read behind it
  result->cycles = cycles() - t;
  result->ns = globaltimer_ns() - ns;
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9), few = std::max(8, args.get("--steps", 8192) / 8 * 8);
  const size_t l2_bytes = device_attribute(cudaDevAttrL2CacheSize), most = 4 * l2_bytes;
  auto* base = device_alloc<unsigned char>(most);
  auto* next_device = device_alloc<uint32_t>(most / LINE);
  auto* result = device_alloc<Result>(1);
  for (auto kernel : {chase<false>, chase<true>})
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxL1));
  fill_words(base, most, 14);
  warm_up_clock(0.1);
  require_l1_bypassed(base, "l2_latency");
  for (int i = 0; 4096 * std::pow(2.0, i / 2.0) <= (double)most; ++i) {
    const uint32_t lines = (uint32_t)std::llround(4096 * std::pow(2.0, i / 2.0) / LINE);
    const size_t bytes = (size_t)lines * LINE;
    auto next = random_cycle(lines, 15);
    require(is_one_cycle(next), "l2_latency: one cycle through all lines");
    CHECK(cudaMemcpy(next_device, next.data(), lines * sizeof(uint32_t), cudaMemcpyHostToDevice));
    write_chain<<<1056, 256>>>(base, next_device, lines);
    CHECK_LAUNCH();
    const u64 whole = checksum(base, bytes);
    // Whole cycles (times 8, for the unrolled loop) where the footprint is small.
    const int steps = lines >= (uint32_t)few ? few : (int)((few + 8 * lines - 1) / (8 * lines) * 8 * lines);
    for (bool l1 : {true, false}) {
      uint32_t at = 0;
      std::vector<double> per_load, clock;
      for (int r = 0; r < repeats + 1; ++r) {
        uint32_t last = at;
        for (int s = 0; s < steps; ++s) last = next[last];
        CHECK(cudaMemset(result, 0, sizeof(Result)));
        const u64 start = (u64)(base + (size_t)at * LINE);
        if (l1) chase<true><<<1, THREADS>>>(base, bytes, start, steps, result);
        else chase<false><<<1, THREADS>>>(base, bytes, start, steps, result);
        CHECK_LAUNCH();
        Result x = to_host(result, 1)[0];
        require(x.sum == whole, "l2_latency: warm pass reads all lines");
        require(x.last == (u64)(base + (size_t)last * LINE), "l2_latency: end of the chase");
        at = last;
        if (r == 0) continue;
        per_load.push_back((double)x.cycles / steps);
        if (x.ns >= 200000) clock.push_back(x.cycles / (x.ns * 1e-9));  // the global timer may be coarse
      }
      Json j("l2_latency");
      j.put("part", l1 ? "ca" : "cg").put("footprint_bytes", bytes).put("l2_bytes", l2_bytes).put("steps", steps);
      j.put("cycles_per_load", median(per_load)).put("clock_hz", median(clock));
      j.put("spread", spread(per_load)).put("repeats", repeats).emit();
    }
  }
  return 0;
}
