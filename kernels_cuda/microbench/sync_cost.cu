/* sync_cost: cycles of barriers, mbarriers and fences inside a CTA, by number of warps.
   Shapes     none; a round is one barrier, one exchange or one fence
   Launch     grid 1, block 32 * warps (named_subset: 1024, of which `warps` warps take part), no cluster
   On chip    static smem under 13 KiB; registers as printed by ptxas (record .toml)
   Traffic    fences after a store: 4 B a thread and round, to shared memory (block, proxy) or global memory (device)
   Work       none                                            Bound  latency
   Parts      syncthreads, syncwarp; named_subset: bar.sync 1, n; mbarrier_all: every thread arrives and waits;
              mbarrier_producer: one thread arrives while all other warps wait, cycles until the last of them goes on;
              mbarrier_round_trip: pairs of warps answer each other, one lane arrives, all wait (cycles of both ways);
              fence_proxy_async(_cta), threadfence, threadfence_block, each after nothing or after a store (its cycles in it)
   Checked    barriers: every thread reads what another wrote before it, each round; fences: the last value stored
   Model      barriers of a k-step, hand-over between producer and consumer warps, fence before a tensor store
   Reference  PTX ISA, bar.sync, mbarrier, fence.proxy, membar
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v sync_cost.cu -o sync_cost
   Run        ./sync_cost --repeats 9                          one JSON line a point */
#include "../common/cta_window.cuh"
using namespace ts;

enum Part { SYNCTHREADS, NAMED_SUBSET, SYNCWARP, MBARRIER_ALL, ROUND_TRIP, PRODUCER, PROXY, PROXY_CTA, FENCE, FENCE_BLOCK };
const char* const PART_NAME[] = {"syncthreads", "named_subset", "syncwarp", "mbarrier_all", "mbarrier_round_trip",
                                 "mbarrier_producer", "fence_proxy_async", "fence_proxy_async_cta", "threadfence", "threadfence_block"};
constexpr int THREADS = 1024, HEAD_START_CYCLES = 500;  // the others wait before the producer arrives

// ---------------------------------------------------------------- device: waits that exist on every target

__device__ __forceinline__ bool phase_done(uint32_t bar, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  return mbar_try(bar, parity);
#else
  uint32_t done;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  return done;
#endif
}
__device__ __forceinline__ void wait_phase(uint32_t bar, uint32_t parity) {
  if (phase_done(bar, parity)) return;
  const long long start = cycles();
  while (!phase_done(bar, parity))
    if (cycles() - start > WAIT_LIMIT_CYCLES) __trap();
}
__device__ __forceinline__ void arrive(uint32_t bar) {
#if __CUDA_ARCH__ >= 900
  mbar_arrive(bar);
#else
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar) : "memory");
#endif
}

// ---------------------------------------------------------------- kernels

// One round of PART by a thread that takes part.
template <int PART> __device__ __forceinline__ void meet(int round, int threads, uint32_t bars) {
  if (PART == SYNCTHREADS) __syncthreads();
  if (PART == NAMED_SUBSET) asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
  if (PART == SYNCWARP) __syncwarp();
  if (PART == MBARRIER_ALL) {
    arrive(bars);
    wait_phase(bars, round & 1);
  }
  if (PART == ROUND_TRIP) {
    const int warp = threadIdx.x / 32;
    const uint32_t ask = bars + warp / 2 * 16, answer = ask + 8;
    if (warp % 2 == 1) wait_phase(ask, round & 1);
    __syncwarp();  // no lane may still look at a phase that the other warp ends next
    if (threadIdx.x % 32 == 0) arrive(warp % 2 == 0 ? ask : answer);
    if (warp % 2 == 0) wait_phase(answer, round & 1);
    __syncwarp();
  }
}

// Thread that this one reads in a check: of another warp, of the other warp of the pair, of the same warp.
template <int PART> __device__ __forceinline__ int partner(int threads) {
  if (PART == SYNCWARP) return threadIdx.x ^ 1;
  if (PART == ROUND_TRIP) return (threadIdx.x / 32 ^ 1) * 32;  // the lane that arrives
  return (threadIdx.x + threads / 2 + 1) % threads;
}

template <int PART, int CHECK>
__global__ void __launch_bounds__(THREADS) barrier_kernel(int rounds, int warps, int* errors, Elapsed* elapsed) {
  __shared__ CtaWindow window;
  __shared__ uint64_t bars[32];
  __shared__ volatile int slot[2][THREADS];
  const int threads = 32 * warps, other = partner<PART>(threads);
  const bool takes_part = (int)threadIdx.x < threads;
  if (threadIdx.x < 32) mbar_init(smem_u32(bars + threadIdx.x), PART == MBARRIER_ALL ? threads : 1);
  int wrong = 0;
  const long long t0 = window_open(window);
  if (takes_part)
#pragma unroll 4
    for (int r = 0; r < rounds; ++r) {
      if (CHECK) slot[r & 1][threadIdx.x] = r + 1;
      meet<PART>(r, threads, smem_u32(bars));
      // The asking warp wrote this round's value before it asked, the answering warp before it answered.
      if (CHECK) wrong += slot[r & 1][other] != r + 1;
      if (CHECK && PART == ROUND_TRIP) meet<SYNCWARP>(r, threads, 0);
    }
  window_close(window, t0, elapsed, takes_part);
  if (CHECK && wrong) atomicAdd(errors, wrong);
}

// Cycles from the arrival to the last waiting warp, summed over rounds, go to elapsed.
template <int CHECK>
__global__ void __launch_bounds__(THREADS) producer_kernel(int rounds, int* errors, Elapsed* elapsed) {
  __shared__ uint64_t bar;
  __shared__ volatile int value;
  __shared__ long long start, seen[32];
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (threadIdx.x == 0) mbar_init(smem_u32(&bar), 1);
  long long sum = 0;
  int wrong = 0;
  for (int r = 0; r < rounds; ++r) {
    __syncthreads();
    if (warp == 0) {
      if (threadIdx.x == 0) {
        const long long until = cycles() + HEAD_START_CYCLES;
        while (cycles() < until) {}
        if (CHECK) value = r + 1;
        const long long t = cycles();
        arrive(smem_u32(&bar));
        start = t;
      }
      __syncwarp();
    } else {
      wait_phase(smem_u32(&bar), r & 1);
      const long long t = cycles();
      if (CHECK) wrong += value != r + 1;
      if (threadIdx.x % 32 == 0) seen[warp] = t;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      long long last = seen[1];
      for (int w = 2; w < warps; ++w) last = seen[w] > last ? seen[w] : last;
      sum += last - start;
    }
  }
  if (CHECK && wrong) atomicAdd(errors, wrong);
  if (threadIdx.x == 0) elapsed[0] = {sum, 0, 0};
}

template <int PART> __device__ __forceinline__ void fence() {
#if __CUDA_ARCH__ >= 900
  if (PART == PROXY) asm volatile("fence.proxy.async;" ::: "memory");
  if (PART == PROXY_CTA) fence_proxy_async();
#endif
  if (PART == FENCE) __threadfence();
  if (PART == FENCE_BLOCK) __threadfence_block();
}
// out: THREADS values
template <int PART>
__global__ void __launch_bounds__(THREADS) fence_kernel(int rounds, bool store, int* out, Elapsed* elapsed) {
  __shared__ CtaWindow window;
  __shared__ volatile int smem[THREADS];
  smem[threadIdx.x] = 0;
  const long long t0 = window_open(window);
  if (store) {
#pragma unroll 4
    for (int r = 0; r < rounds; ++r) {
      if (PART == FENCE) asm volatile("st.global.u32 [%0], %1;" ::"l"(out + threadIdx.x), "r"(r + 1) : "memory");
      else smem[threadIdx.x] = r + 1;
      fence<PART>();
    }
  } else {
#pragma unroll 4
    for (int r = 0; r < rounds; ++r) fence<PART>();
  }
  window_close(window, t0, elapsed);
  if (PART != FENCE || !store) out[threadIdx.x] = smem[threadIdx.x];
}

// ---------------------------------------------------------------- launcher

struct Buffers { int *errors, *out; Elapsed* elapsed; };

void emit(int part, int warps, const char* after, const Timing& t, int rounds, int repeats) {
  Json j("sync_cost");
  j.put("part", PART_NAME[part]).put("warps", warps).put("after", after).put("rounds", rounds);
  j.put("cycles", median(t.cycles) / rounds).put("repeats", repeats).put("spread", spread(t.cycles)).emit();
}
void require_none(const Buffers& x, int part) {
  require(to_host(x.errors, 1)[0] == 0, std::string("sync_cost: ") + PART_NAME[part] + " orders what was written");
}

template <int PART> void measure_barrier(const Buffers& x, int repeats) {
  const int rounds = 1000;
  for (int warps : {1, 2, 4, 8, 16, 32}) {
    if (PART == ROUND_TRIP && warps == 1) continue;
    const int block = PART == NAMED_SUBSET ? THREADS : 32 * warps;
    CHECK(cudaMemset(x.errors, 0, 4));
    barrier_kernel<PART, 1><<<1, block>>>(rounds, warps, x.errors, x.elapsed);
    CHECK_LAUNCH();
    require_none(x, PART);
    Timing t = time_ctas([&] { barrier_kernel<PART, 0><<<1, block>>>(rounds, warps, x.errors, x.elapsed); }, x.elapsed, 1, repeats);
    emit(PART, warps, "nothing", t, rounds, repeats);
  }
}

void measure_producer(const Buffers& x, int repeats) {
  const int rounds = 200;
  for (int warps : {2, 4, 8, 16, 32}) {
    CHECK(cudaMemset(x.errors, 0, 4));
    producer_kernel<1><<<1, 32 * warps>>>(rounds, x.errors, x.elapsed);
    CHECK_LAUNCH();
    require_none(x, PRODUCER);
    Timing t = time_ctas([&] { producer_kernel<0><<<1, 32 * warps>>>(rounds, x.errors, x.elapsed); }, x.elapsed, 1, repeats);
    emit(PRODUCER, warps, "nothing", t, rounds, repeats);
  }
}

template <int PART> void measure_fence(const Buffers& x, int repeats) {
  const int rounds = 400;
  for (bool store : {false, true})
    for (int warps : {1, 2, 4, 8, 16, 32}) {
      auto launch = [&] { fence_kernel<PART><<<1, 32 * warps>>>(rounds, store, x.out, x.elapsed); };
      poison(x.out, THREADS * 4);
      launch();
      CHECK_LAUNCH();
      for (int v : to_host(x.out, 32 * warps))
        require(v == (store ? rounds : 0), std::string("sync_cost: ") + PART_NAME[PART] + ": last value");
      emit(PART, warps, store ? "store" : "nothing", time_ctas(launch, x.elapsed, 1, repeats), rounds, repeats);
    }
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9);
  Buffers x{device_alloc<int>(1), device_alloc<int>(THREADS), device_alloc<Elapsed>(1)};
  warm_up_clock(0.1);
  measure_barrier<SYNCTHREADS>(x, repeats);
  measure_barrier<NAMED_SUBSET>(x, repeats);
  measure_barrier<SYNCWARP>(x, repeats);
  measure_barrier<MBARRIER_ALL>(x, repeats);
  measure_barrier<ROUND_TRIP>(x, repeats);
  measure_producer(x, repeats);
  if (compute_capability() >= 90) {
    measure_fence<PROXY>(x, repeats);
    measure_fence<PROXY_CTA>(x, repeats);
  }
  measure_fence<FENCE>(x, repeats);
  measure_fence<FENCE_BLOCK>(x, repeats);
  return 0;
}
