/* atomics: rate and latency of atomic additions in L2 and in shared memory.
   Shapes     cells: 32-bit words; int: unsigned 32-bit, float: fp32, half2: two fp16 in one word (one operation a lane)
   Launch     grid SMs, one CTA an SM (forced by shared memory), block 1024; latency: one thread
   On chip    shared: 4 KiB static; dynamic smem reserved, not used; registers as printed by ptxas (record .toml)
   Parts      throughput  `ops` operations a thread, at most 4 of a thread in its instruction window, no result (returns = 0:
                          red) or the old value (returns = 1: atom)
              latency     each operation's address depends on the old value of the one before
   Patterns   one       all threads of the chip (shared: of the CTA) on one word
              warp      a word a warp, on a line of its own (shared: on a bank of its own)
              distinct  a word a thread, lanes next to each other; global: 8 words a thread in turn, 8 * threads apart
   Traffic    L2 or shared memory only
   Work       one addition an operation (half2: two)          Bound  atomic units of L2, of the SM
   Rate       global: operations of the chip over the cycles of the slowest SM (all begin behind one barrier, end behind a
              fence); shared: operations of a CTA over its cycles, median SM
   Checked    every word exactly, behind every launch. Values are 1 (all sums below 2^24, half2: 2^11), but half2 on one word:
              +1 and -1 in neighbouring lanes, where the odd lanes of warp 0 add 0; exact for the order of 1024 threads with 4
              operations each, so global half2 on one word is checked with one CTA and only for being finite with all of them
   Model      none yet: reductions across CTAs (split-k with atomics)
   Reference  PTX ISA, "atom", "red"
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v atomics.cu -o atomics
   Run        ./atomics --repeats 9                            one JSON line a point */
#include <cuda_fp16.h>

#include "../common/memory.cuh"
using namespace ts;

constexpr int THREADS = 1024, UNROLL = 4, ROTATED = 8, CHAIN = 256;
enum Op { INT, FLOAT, HALF2 };
const char* const OP_NAME[] = {"int", "float", "half2"};
enum Pattern { ONE, WARP, DISTINCT };
const char* const PATTERN_NAME[] = {"one", "warp", "distinct"};

__host__ __device__ inline uint32_t bits_of(int op, int value) {
  if (op == INT) return (uint32_t)value;
  if (op == FLOAT) {
    float f = (float)value;
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
  }
  uint32_t h = __half_as_ushort(__float2half((float)value));
  return h | (h << 16);
}

template <int OP>
__device__ __forceinline__ uint32_t atom_global(uint32_t* p, uint32_t v) {
  uint32_t old;
  if (OP == INT) asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  if (OP == HALF2) asm volatile("atom.global.add.noftz.f16x2 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  if (OP == FLOAT) {
    float f;
    asm volatile("atom.global.add.f32 %0, [%1], %2;" : "=f"(f) : "l"(p), "f"(__uint_as_float(v)) : "memory");
    old = __float_as_uint(f);
  }
  return old;
}
template <int OP>
__device__ __forceinline__ void red_global(uint32_t* p, uint32_t v) {
  if (OP == INT) asm volatile("red.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
  if (OP == FLOAT) asm volatile("red.global.add.f32 [%0], %1;" ::"l"(p), "f"(__uint_as_float(v)) : "memory");
  if (OP == HALF2) asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
template <int OP>
__device__ __forceinline__ uint32_t atom_shared(uint32_t p, uint32_t v) {
  uint32_t old;
  if (OP == INT) asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(old) : "r"(p), "r"(v) : "memory");
  if (OP == HALF2) asm volatile("atom.shared.add.noftz.f16x2 %0, [%1], %2;" : "=r"(old) : "r"(p), "r"(v) : "memory");
  if (OP == FLOAT) {
    float f;
    asm volatile("atom.shared.add.f32 %0, [%1], %2;" : "=f"(f) : "r"(p), "f"(__uint_as_float(v)) : "memory");
    old = __float_as_uint(f);
  }
  return old;
}
template <int OP>
__device__ __forceinline__ void red_shared(uint32_t p, uint32_t v) {
  if (OP == INT) asm volatile("red.shared.add.u32 [%0], %1;" ::"r"(p), "r"(v) : "memory");
  if (OP == FLOAT) asm volatile("red.shared.add.f32 [%0], %1;" ::"r"(p), "f"(__uint_as_float(v)) : "memory");
  if (OP == HALF2) asm volatile("red.shared.add.noftz.f16x2 [%0], %1;" ::"r"(p), "r"(v) : "memory");
}

// What thread t of a CTA adds, each time.
__host__ __device__ inline int value_of(int op, int pattern, int t) {
  if (op != HALF2 || pattern != ONE || t % 2 == 0) return 1;
  return t < 32 ? 0 : -1;
}

// ops % ROTATED == 0, or ops == UNROLL with a pattern that does not rotate
template <int OP, bool RETURNS>
__global__ void __launch_bounds__(THREADS, 1) rate_global(uint32_t* cells, int pattern, int ops, unsigned* arrived, Stamp* stamps,
                                                          uint32_t* sink) {
  const uint32_t thread = blockIdx.x * THREADS + threadIdx.x;
  uint32_t* p = cells + (pattern == ONE ? 0 : pattern == WARP ? thread / 32 * 32 : thread);
  const size_t apart = pattern == DISTINCT ? (size_t)gridDim.x * THREADS : 0;
  const uint32_t v = bits_of(OP, value_of(OP, pattern, threadIdx.x));
  uint32_t seen = 0;
  grid_barrier(arrived);
  Stamp s = stamp_begin();
#pragma unroll 1
  for (int i = 0; i < ops; i += UNROLL) {
    uint32_t* q = p + (i & (ROTATED - 1)) * apart;
    uint32_t old[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (RETURNS) old[u] = atom_global<OP>(q + u * apart, v);
      else red_global<OP>(q + u * apart, v);
    }
    if (RETURNS)
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) seen ^= old[u];
  }
  __threadfence();
  stamp_end(s, stamps);
  if (RETURNS) sink[thread] = seen;
}

template <int OP, bool RETURNS>
__global__ void __launch_bounds__(THREADS, 1) rate_shared(uint32_t* cells, int pattern, int ops, unsigned* arrived, Stamp* stamps,
                                                          uint32_t* sink) {
  __shared__ uint32_t own[THREADS];
  own[threadIdx.x] = 0;
  const uint32_t p = smem_u32(own + (pattern == ONE ? 0 : pattern == WARP ? threadIdx.x / 32 : threadIdx.x));
  const uint32_t v = bits_of(OP, value_of(OP, pattern, threadIdx.x));
  uint32_t seen = 0;
  grid_barrier(arrived);
  Stamp s = stamp_begin();
#pragma unroll 1
  for (int i = 0; i < ops; i += UNROLL) {
    uint32_t old[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (RETURNS) old[u] = atom_shared<OP>(p, v);
      else red_shared<OP>(p, v);
    }
    if (RETURNS)
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) seen ^= old[u];
  }
  __threadfence_block();
  stamp_end(s, stamps);
  if (RETURNS) sink[blockIdx.x * THREADS + threadIdx.x] = seen;
  cells[blockIdx.x * THREADS + threadIdx.x] = own[threadIdx.x];  // behind the barrier of stamp_end
}

// One thread; mask = 0. out: cycles, exclusive or of the old values.
template <int OP, bool SHARED>
__global__ void latency_kernel(uint32_t* cells, uint32_t mask, long long* out) {
  __shared__ uint32_t own;
  own = 0;
  __syncthreads();
  const uint32_t p = smem_u32(&own), v = bits_of(OP, 1);
  uint32_t old = 0, seen = 0;
  long long t = cycles();
#pragma unroll 4
  for (int i = 0; i < CHAIN; ++i) {
    old = SHARED ? atom_shared<OP>(p + (old & mask), v) : atom_global<OP>(cells + (old & mask), v);
    seen ^= old;
  }
  out[1] = seen;  // the store waits for the last operation
  out[0] = cycles() - t;
  if (SHARED) cells[0] = own;
}

using Rate_kernel = void (*)(uint32_t*, int, int, unsigned*, Stamp*, uint32_t*);
using Latency_kernel = void (*)(uint32_t*, uint32_t, long long*);
template <int OP> Rate_kernel rate_kernel(bool shared, bool returns) {
  if (shared) return returns ? rate_shared<OP, true> : rate_shared<OP, false>;
  return returns ? rate_global<OP, true> : rate_global<OP, false>;
}
template <int OP> Latency_kernel latency_of(bool shared) { return shared ? latency_kernel<OP, true> : latency_kernel<OP, false>; }

struct Buffers { uint32_t *cells, *sink; unsigned* arrived; Stamp* stamps; long long* out; };

// Operations a thread.
int ops_of(bool shared, int op, int pattern) {
  if (pattern == DISTINCT) return 1024;
  if (pattern == WARP) return op == HALF2 ? 64 : shared ? 256 : 512;
  return shared ? (op == HALF2 ? 4 : 64) : 16;
}

// One launch; all words are compared with what was added to them.
std::vector<Stamp> launch(const Buffers& b, Rate_kernel kernel, bool shared, int op, int pattern, int grid, int ops) {
  const size_t words = (size_t)grid * THREADS * (shared || pattern != DISTINCT ? 1 : ROTATED);
  CHECK(cudaMemset(b.cells, shared ? 0xFF : 0, words * 4));  // shared words are zeroed by the kernel and copied out
  CHECK(cudaMemset(b.arrived, 0, sizeof(unsigned)));
  kernel<<<grid, THREADS, one_cta_smem()>>>(b.cells, pattern, ops, b.arrived, b.stamps, b.sink);
  CHECK_LAUNCH();
  std::vector<int> want(words, 0);
  const int touched = !shared && pattern == DISTINCT ? std::min(ops, ROTATED) : 1;
  for (size_t t = 0; t < (size_t)grid * THREADS; ++t) {
    size_t base = shared ? t / THREADS * THREADS : 0, own = shared ? t % THREADS : t;
    size_t at = base + (pattern == ONE ? 0 : pattern == WARP ? (shared ? own / 32 : own / 32 * 32) : own);
    for (int r = 0; r < touched; ++r) want[at + r * (size_t)grid * THREADS] += value_of(op, pattern, (int)(t % THREADS)) * (ops / touched);
  }
  auto got = to_host(b.cells, words);
  const bool exact = !(op == HALF2 && pattern == ONE && !shared && grid > 1);
  int last = 0;
  uint32_t bits = bits_of(op, last);
  for (size_t i = 0; i < words; ++i) {
    if (want[i] != last) bits = bits_of(op, last = want[i]);
    bool right = exact ? got[i] == bits : (got[i] & 0x7C00) != 0x7C00 && (got[i] & 0x7C000000) != 0x7C000000;
    if (!right) require(false, std::string("atomics: ") + OP_NAME[op] + " " + PATTERN_NAME[pattern] + ", word " + std::to_string(i));
  }
  return to_host(b.stamps, grid);
}

void throughput(const Buffers& b, Rate_kernel kernel, bool shared, int op, int pattern, bool returns, int repeats) {
  const int sms = sm_count(), ops = ops_of(shared, op, pattern);
  allow_smem(kernel, one_cta_smem());
  launch(b, kernel, shared, op, pattern, 1, pattern == DISTINCT ? 2 * ROTATED : UNROLL);
  std::vector<double> per_cycle, clock;
  for (int r = 0; r < repeats + 1; ++r) {
    auto stamps = launch(b, kernel, shared, op, pattern, sms, ops);
    Rate x = rate_of(stamps, (double)ops * THREADS);
    std::vector<double> of_sm;
    for (const Stamp& s : stamps) of_sm.push_back((double)ops * THREADS / (s.cycles_end - s.cycles_begin));
    if (r == 0) continue;
    per_cycle.push_back(shared ? median(of_sm) : (double)ops * THREADS * sms / x.cycles_most);
    if (x.seconds > 200e-6) clock.push_back(x.clock_hz);  // the global timer may be coarse
  }
  Json j("atomics");
  j.put("part", "throughput").put("space", shared ? "shared" : "global").put("op", OP_NAME[op]);
  j.put("pattern", PATTERN_NAME[pattern]).put("returns", (int)returns).put("ops_per_thread", ops).put("sms", sms);
  if (!shared) j.put("ops_per_cycle", median(per_cycle));
  j.put("ops_per_cycle_per_sm", median(per_cycle) / (shared ? 1 : sms)).put("clock_hz", median(clock));
  j.put("spread", spread(per_cycle)).put("repeats", repeats).emit();
}

void latency(const Buffers& b, Latency_kernel kernel, bool shared, int op, int repeats) {
  std::vector<double> per_op;
  uint32_t seen = 0;
  for (int i = 0; i < CHAIN; ++i) seen ^= bits_of(op, i);
  for (int r = 0; r < repeats + 1; ++r) {
    CHECK(cudaMemset(b.cells, shared ? 0xFF : 0, 4));
    kernel<<<1, 1>>>(b.cells, 0, b.out);
    CHECK_LAUNCH();
    auto out = to_host(b.out, 2);
    require(to_host(b.cells, 1)[0] == bits_of(op, CHAIN) && (uint32_t)out[1] == seen, std::string("atomics: chain, ") + OP_NAME[op]);
    if (r) per_op.push_back((double)out[0] / CHAIN);
  }
  Json j("atomics");
  j.put("part", "latency").put("space", shared ? "shared" : "global").put("op", OP_NAME[op]).put("cycles", median(per_op));
  j.put("spread", spread(per_op)).put("repeats", repeats).emit();
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9), sms = sm_count();
  const size_t threads = (size_t)sms * THREADS;
  Buffers b{device_alloc<uint32_t>(threads * ROTATED), device_alloc<uint32_t>(threads), device_alloc<unsigned>(1),
            device_alloc<Stamp>(sms), device_alloc<long long>(2)};
  const Rate_kernel rates[3][2][2] = {
      {{rate_kernel<INT>(0, 0), rate_kernel<INT>(0, 1)}, {rate_kernel<INT>(1, 0), rate_kernel<INT>(1, 1)}},
      {{rate_kernel<FLOAT>(0, 0), rate_kernel<FLOAT>(0, 1)}, {rate_kernel<FLOAT>(1, 0), rate_kernel<FLOAT>(1, 1)}},
      {{rate_kernel<HALF2>(0, 0), rate_kernel<HALF2>(0, 1)}, {rate_kernel<HALF2>(1, 0), rate_kernel<HALF2>(1, 1)}}};
  const Latency_kernel latencies[3][2] = {{latency_of<INT>(0), latency_of<INT>(1)}, {latency_of<FLOAT>(0), latency_of<FLOAT>(1)},
                                          {latency_of<HALF2>(0), latency_of<HALF2>(1)}};
  warm_up_clock(0.1);
  for (int shared : {0, 1})
    for (int op : {INT, FLOAT, HALF2}) {
      latency(b, latencies[op][shared], shared, op, repeats);
      for (int pattern : {ONE, WARP, DISTINCT})
        for (int returns : {0, 1}) throughput(b, rates[op][shared][returns], shared, op, pattern, returns, repeats);
    }
  return 0;
}
