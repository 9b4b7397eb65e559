/* memory.cuh: what the memory microbenchmarks share: loads that name their cache, one barrier a launch, stamps of each SM
   and rates from them, a cyclic walk over slices, a check that L1 is bypassed, a common moment on all SMs.
   Units      seconds, bytes, cycles of the SM clock; a name says which
   Waits      every wait traps after WAIT_LIMIT_CYCLES
   Residency  grid_barrier and start_together need all CTAs resident together: grid <= SMs, one CTA an SM (one_cta_smem)
   Build      header only
   Reference  PTX ISA, "Cache Operators"; Mills, RFC 5905 (offset of two clocks from a round trip) */
#pragma once
#include "tilesight.cuh"

namespace ts {

using u64 = unsigned long long;

// ---------------------------------------------------------------- device: loads and stores of 16 bytes

__device__ __forceinline__ uint4 load_l2(const uint4* p) {  // L1 bypassed
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ uint4 load_l1(const uint4* p) {  // no cache operator: may hit in L1
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ void store_16(uint4* p, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// ---------------------------------------------------------------- device: waiting for other SMs

__device__ inline void wait_for(const volatile unsigned* p, unsigned at_least) {
  long long start = cycles();
  while (*p < at_least)
    if (cycles() - start > WAIT_LIMIT_CYCLES) __trap();
}
// All CTAs of the launch wait for each other, once a launch; *arrived is 0 before it.
__device__ inline void grid_barrier(unsigned* arrived) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    wait_for(arrived, gridDim.x);
    __threadfence();
  }
  __syncthreads();
}

// ---------------------------------------------------------------- stamps and rates

struct Stamp {
  long long cycles_begin, cycles_end;
  u64 ns_begin, ns_end;
  uint32_t sm;
};
__device__ __forceinline__ Stamp stamp_begin() { return {cycles(), 0, globaltimer_ns(), 0, smid()}; }
// Called by all threads; thread 0 writes when the last one has come.
__device__ __forceinline__ void stamp_end(Stamp s, Stamp* stamps) {
  __syncthreads();
  if (threadIdx.x) return;
  s.cycles_end = cycles();
  s.ns_end = globaltimer_ns();
  stamps[blockIdx.x] = s;
}

struct Rate {
  double per_cycle;       // sum over SMs of amount / own cycles
  double seconds;         // last end - first begin, global timer
  double clock_hz;        // of all SMs together; the global timer may be coarse, so only of windows >= 200 us
  double cycles_sum, ns_sum;  // over SMs, for a clock from several short windows
  long long cycles_most;  // of the slowest SM
  int sms;                // distinct SMs that worked
};
inline Rate rate_of(const std::vector<Stamp>& stamps, double amount_per_cta) {
  Rate r{};
  std::vector<char> seen(4096, 0);
  u64 first = ~0ull, last = 0;
  for (const Stamp& s : stamps) {
    long long c = s.cycles_end - s.cycles_begin;
    require(c > 0 && s.ns_end >= s.ns_begin && s.sm < seen.size(), "stamps run forwards");
    r.per_cycle += amount_per_cta / c;
    r.cycles_most = std::max(r.cycles_most, c);
    r.sms += !seen[s.sm];
    seen[s.sm] = 1;
    first = std::min(first, s.ns_begin);
    last = std::max(last, s.ns_end);
    r.cycles_sum += c;
    r.ns_sum += s.ns_end - s.ns_begin;
  }
  require(r.sms == (int)stamps.size(), "one CTA an SM");
  r.seconds = (last - first) * 1e-9;
  r.clock_hz = r.cycles_sum / (r.ns_sum * 1e-9);
  return r;
}

inline int device_attribute(cudaDeviceAttr which) {
  int v = 0;
  CHECK(cudaDeviceGetAttribute(&v, which, 0));
  return v;
}
// Dynamic shared memory of which only one CTA fits on an SM.
inline size_t one_cta_smem() { return (size_t)device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) * 3 / 5 / 1024 * 1024; }

// ---------------------------------------------------------------- device: cyclic walk over slices

// The vectors (16 B) that one thread of an SM takes of the SM's sequence: `length` vectors of its slice, then the slice
// again (or the next slice, when rotating), and so on without a seam: thread t takes elements t, t + block, ...
struct SliceWalk {
  uint32_t slice, at, slices, length, step, step_slices, wrap_slices;
  __device__ SliceWalk(uint32_t first, uint32_t slices, uint32_t length, bool rotating)
      : slice((first + (rotating ? threadIdx.x / length : 0)) % slices), at(threadIdx.x % length), slices(slices), length(length),
        step(blockDim.x % length), step_slices(rotating ? blockDim.x / length % slices : 0), wrap_slices(rotating) {}
  __device__ __forceinline__ uint32_t next() {  // index of the vector, then one element further
    uint32_t v = slice * length + at;
    at += step;
    slice += step_slices;
    if (at >= length) {
      at -= length;
      slice += wrap_slices;
    }
    if (slice >= slices) slice -= slices;
    return v;
  }
};

// ---------------------------------------------------------------- does L1 serve?

template <bool L1>
__global__ void repeat_load_kernel(const uint4* p, uint32_t mask, int loads, long long* out) {
  uint32_t at = 0;
  long long t = 0;
  for (int round = 0; round < 2; ++round) {  // the first one warms
    t = cycles();
    for (int i = 0; i < loads; ++i) at = (L1 ? load_l1(p + (at & mask)) : load_l2(p + (at & mask))).x;
    out[1] = at;
    t = cycles() - t;
  }
  out[0] = t;
}
// Cycles of a load of one address, again and again by one thread, each waiting for the one before.
template <bool L1>
double repeat_load_cycles(const void* p) {
  auto* out = device_alloc<long long>(2);
  repeat_load_kernel<L1><<<1, 1>>>((const uint4*)p, 0, 256, out);
  CHECK_LAUNCH();
  auto seen = to_host(out, 2);
  require((uint32_t)seen[1] == to_host((const uint32_t*)p, 1)[0], "repeated load: value");
  CHECK(cudaFree(out));
  return seen[0] / 256.0;
}
// An L1 hit takes 30 to 50 cycles, an L2 hit more than 150.
inline double require_l1_bypassed(const void* p, const char* bench) {
  double c = repeat_load_cycles<false>(p);
  require(c > 100, std::string(bench) + ": ld.global.cg bypasses L1 (" + std::to_string(c) + " cycles)");
  return c;
}

// ---------------------------------------------------------------- a common moment on all SMs

// The global timer is too coarse to say how late it is, but it steps at the same moment for all SMs: the first reading that
// is not below `at_ns` is taken just behind such a step. Returns the SM's clock at that reading.
__device__ inline long long wait_for_step(u64 at_ns) {
  long long start = cycles(), now;
  do {
    u64 ns = globaltimer_ns();
    now = cycles();
    if (ns >= at_ns) return now;
  } while (now - start < WAIT_LIMIT_CYCLES);
  __trap();
  return 0;
}
__device__ inline u64 wait_nonzero(const volatile u64* p) {
  long long start = cycles();
  u64 v;
  while ((v = *p) == 0)
    if (cycles() - start > WAIT_LIMIT_CYCLES) __trap();
  return v;
}

struct CommonStart {
  unsigned* arrived;     // 0 before the launch
  volatile u64* at_ns;   // 0 before the launch
  long long* step;       // clock of each CTA at the common moment
};
// All CTAs of the launch begin at one common moment plus their own delay. All threads call it.
__device__ inline void start_together(const CommonStart& s, int delay_cycles) {
  constexpr u64 MARGIN_NS = 10000;  // longer than it takes every CTA to read *at_ns
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(s.arrived, 1u);
    if (blockIdx.x == 0) {
      wait_for(s.arrived, gridDim.x);
      *s.at_ns = globaltimer_ns() + MARGIN_NS;
    }
    long long step = wait_for_step(wait_nonzero(s.at_ns));
    s.step[blockIdx.x] = step;
    while (cycles() - step < delay_cycles) {}
  }
  __syncthreads();
}

// How good is that moment? CTA 0 asks each other CTA in turn, PINGS times, then both wait for one step of the timer. The
// shortest round trip tells the offset of the two clocks on its own: seen - (sent + back) / 2.
constexpr int PINGS = 64;
struct Pinged { long long sent[PINGS], seen[PINGS], back[PINGS], step_first, step_other; };

// Words of `asked` and `answered` lie 128 bytes apart, those of `at_ns` too; all are 0 before the launch.
static __global__ void ping_kernel(volatile unsigned* asked, volatile unsigned* answered, volatile u64* at_ns, Pinged* pinged) {
  const unsigned first = blockIdx.x ? blockIdx.x : 1, end = blockIdx.x ? blockIdx.x + 1 : gridDim.x;
  for (unsigned other = first; other < end; ++other) {
    Pinged& p = pinged[other];
    for (int i = 0; i < PINGS; ++i)
      if (blockIdx.x == 0) {
        p.sent[i] = cycles();
        asked[other * 32] = i + 1;
        wait_for(answered + other * 32, i + 1);
        p.back[i] = cycles();
      } else {
        wait_for(asked + other * 32, i + 1);
        p.seen[i] = cycles();
        answered[other * 32] = i + 1;
      }
    if (blockIdx.x == 0) at_ns[other * 16] = globaltimer_ns() + 5000;
    long long step = wait_for_step(wait_nonzero(at_ns + other * 16));
    if (blockIdx.x == 0) p.step_first = step;
    else p.step_other = step;
  }
}
struct TimeBase {
  double round_trip_cycles;  // shortest round trip, median over SMs
  double error_cycles;       // |offset by the step - offset by round trip|, median over SMs
  double error_p90_cycles;
};
inline TimeBase measure_time_base() {
  const int sms = sm_count();
  const size_t smem = one_cta_smem(), flag_bytes = (size_t)sms * 128;
  auto* flags = device_alloc<unsigned char>(3 * flag_bytes);
  auto* pinged = device_alloc<Pinged>(sms);
  allow_smem(ping_kernel, smem);
  CHECK(cudaMemset(flags, 0, 3 * flag_bytes));
  ping_kernel<<<sms, 1, smem>>>((unsigned*)flags, (unsigned*)(flags + flag_bytes), (u64*)(flags + 2 * flag_bytes), pinged);
  CHECK_LAUNCH();
  const auto all = to_host(pinged, sms);
  TimeBase base{};
  std::vector<double> trips, errors;
  for (int c = 1; c < sms; ++c) {
    const Pinged& p = all[c];
    int best = 0;
    for (int i = 1; i < PINGS; ++i)
      if (p.back[i] - p.sent[i] < p.back[best] - p.sent[best]) best = i;
    const long long trip = p.back[best] - p.sent[best];
    const long long offset = p.seen[best] - p.sent[best] - trip / 2;
    trips.push_back((double)trip);
    errors.push_back(std::fabs((double)(p.step_other - p.step_first - offset)));
  }
  base.round_trip_cycles = median(trips);
  base.error_cycles = median(errors);
  base.error_p90_cycles = quantile(errors, 0.9);
  CHECK(cudaFree(flags));
  CHECK(cudaFree(pinged));
  return base;
}

}  // namespace ts
