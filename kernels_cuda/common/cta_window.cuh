/* cta_window.cuh: cycles that one CTA spends in a loop, from its first warp's start to its last warp's end.
   Use        long long t0 = window_open(w); LOOP; window_close(w, t0, elapsed);   by all threads, w in shared memory
   Units      cycles of the SM clock, ns of the global timer
   Host       time_ctas repeats a launch; a repeat is the median over CTAs. The clock is given only for windows of at least
              200 us: the global timer steps by up to 1 us
   Reference  PTX ISA, %clock64, %globaltimer */
#pragma once
#include "tilesight.cuh"

namespace ts {

struct Elapsed { long long cycles, clock_cycles, ns; };  // of one CTA; the last two span a little more than the first
struct CtaWindow { long long begin[32], end[32], clock; unsigned long long ns; };

// A barrier, then the clock.
__device__ __forceinline__ long long window_open(CtaWindow& w) {
  if (threadIdx.x == 0) w.ns = globaltimer_ns(), w.clock = cycles();
  __syncthreads();
  return cycles();
}
// Warps with counted = false wait at the end, but the window does not depend on them.
__device__ __forceinline__ void window_close(CtaWindow& w, long long begin, Elapsed* elapsed, bool counted = true) {
  const long long end = cycles();
  if (threadIdx.x % 32 == 0) {
    w.begin[threadIdx.x / 32] = counted ? begin : INT64_MAX;
    w.end[threadIdx.x / 32] = counted ? end : INT64_MIN;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  long long from = INT64_MAX, to = INT64_MIN;
#pragma unroll 1
  for (unsigned i = 0; i < blockDim.x / 32; ++i) {
    from = w.begin[i] < from ? w.begin[i] : from;
    to = w.end[i] > to ? w.end[i] : to;
  }
  elapsed[blockIdx.x] = {to - from, cycles() - w.clock, (long long)(globaltimer_ns() - w.ns)};
}

struct Timing { std::vector<double> cycles; double clock_hz; };  // one value a repeat; NAN when the window is too short

// launch() starts `ctas` CTAs that write elapsed[cta]. One launch more than `repeats`: the first is not counted.
template <class F> Timing time_ctas(F launch, const Elapsed* elapsed, int ctas, int repeats) {
  Timing t{{}, NAN};
  std::vector<double> clock;
  for (int r = 0; r <= repeats; ++r) {
    launch();
    CHECK_LAUNCH();
    std::vector<double> cycle, hz;
    for (const Elapsed& e : to_host(elapsed, ctas)) {
      cycle.push_back((double)e.cycles);
      if (e.ns >= 200000) hz.push_back(e.clock_cycles * 1e9 / e.ns);
    }
    if (r == 0) continue;
    t.cycles.push_back(median(cycle));
    if (!hz.empty()) clock.push_back(median(hz));
  }
  t.clock_hz = median(clock);
  return t;
}

// 90 for compute capability 9.0
inline int compute_capability() {
  int major = 0, minor = 0;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  return 10 * major + minor;
}

}  // namespace ts
