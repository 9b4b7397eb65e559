/* mma_sync_rate: rate and latency of one mma.sync instruction by dtype and shape, operands in registers.
   Shapes     a warp: A tiles_m * M x K, B tiles_n * 8 x K; 8 independent M x 8 accumulators (fp64 k16: 4)
   Launch     grid 1, block 32 * warps, no cluster; warps 1 uses one of the SM's four tensor cores
   On chip    no shared memory in the loop; registers as printed by ptxas (record .toml)
   Traffic    none in the loop
   Work       2 * M * 8 * K flop (int8: operations) an instruction        Bound  tensor, issue; latency: dependence
   Parts      rate: independent accumulators; latency: one warp, each instruction adds to the result of the one before.
              fp8 on sm_90, sm_100, sm_103 is no instruction: unpacked to fp16, two k16 instructions, additions
   Checked    against float64 on the host (int8 exact), random operands, poisoned D, both loops
   Model      tensor.<dtype>.flop_per_cycle_per_sm of kernels that use mma.sync
   Reference  PTX ISA, mma.sync
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v mma_sync_rate.cu -o mma_sync_rate
   Run        ./mma_sync_rate --repeats 9                      one JSON line a point */
#include "../common/cta_window.cuh"
#include "../common/mma.cuh"
using namespace ts;

constexpr int WARPS = 16, CHAIN = 8;  // largest block; instructions of an unrolled latency step

// ---------------------------------------------------------------- kernel

// a: WARPS * TM tiles of M x K, b: WARPS * TN tiles of 8 x K, d: WARPS * TM * TN tiles of M x 8
template <class T, int TM, int TN>
__global__ void __launch_bounds__(32 * WARPS)
mma_kernel(const typename T::In* a, const typename T::In* b, double* d, int steps, bool dependent, uint32_t zero, Elapsed* elapsed) {
  __shared__ CtaWindow window;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  typename T::In fa[TM][T::A], fb[TN][T::B];
  typename T::Acc acc[TM][TN][T::D] = {};
#pragma unroll
  for (int i = 0; i < TM; ++i) load_a<T>(fa[i], a + (warp * TM + i) * T::M * T::WORDS, lane);
#pragma unroll
  for (int j = 0; j < TN; ++j) load_b<T>(fb[j], b + (warp * TN + j) * 8 * T::WORDS, lane);
  const long long t0 = window_open(window);
  if (dependent) {
#pragma unroll 1
    for (int s = 0; s < steps; ++s)
#pragma unroll
      for (int u = 0; u < CHAIN; ++u) {
        refresh<T>(fa, zero);
        T::mma(acc[0][0], fa[0], fb[0]);
      }
  } else {
#pragma unroll (FRESH<T> ? 1 : 4)
    for (int s = 0; s < steps; ++s) {
      refresh<T>(fa, zero);
      refresh<T>(fb, zero);
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) T::mma(acc[i][j], fa[i], fb[j]);
    }
  }
  window_close(window, t0, elapsed);
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; ++j) store_d<T>(d + ((warp * TM + i) * TN + j) * T::M * 8, acc[i][j], lane);
}

// ---------------------------------------------------------------- launcher

template <class T, int TM, int TN> void measure(int repeats) {
  using In = typename T::In;
  const int k = T::K, m = WARPS * TM * T::M, n = WARPS * TN * 8, tile = T::M * 8;
  const std::string name = std::string(T::dtype) + " k" + std::to_string(k);
  Operand a = random_operand(T::dtype, (size_t)m * k, 1), b = random_operand(T::dtype, (size_t)n * k, 2);
  In *da = upload<In>(a.raw), *db = upload<In>(b.raw);
  const size_t count = (size_t)WARPS * TM * TN * tile;
  double* d = device_alloc<double>(count);
  Elapsed* elapsed = device_alloc<Elapsed>(1);
  auto launch = [&](int warps, int steps, bool dependent) {
    mma_kernel<T, TM, TN><<<1, 32 * warps>>>(da, db, d, steps, dependent, 0u, elapsed);
    CHECK_LAUNCH();
  };
  for (bool dependent : {false, true})
    for (int steps : {1, 3}) {
      std::vector<double> want;
      for (int t = 0; t < WARPS * TM * TN; ++t) {
        int row = t / TN, col = t / (TM * TN) * TN + t % TN, times = dependent ? (t % (TM * TN) == 0 ? CHAIN * steps : 0) : steps;
        for (double v : product(&a.value[(size_t)row * T::M * k], &b.value[(size_t)col * 8 * k], T::M, 8, k)) want.push_back(times * v);
      }
      poison(d, count * sizeof(double));
      launch(WARPS, steps, dependent);
      double e = relative_error(to_host(d, count), want);
      require(e < tolerance(T::dtype, T::accumulator), "mma_sync_rate: " + name + ": relative error " + std::to_string(e));
    }
  auto emit = [&](const char* part, int warps, int instructions, const Timing& t) {
    double each = median(t.cycles) / instructions;  // of the SM (rate), of the chain (latency)
    Json j("mma_sync_rate");
    j.put("part", part).put("dtype", T::dtype).put("accumulator", T::accumulator).put("m", T::M).put("n", 8).put("k", k);
    j.put("warps", warps).put("cycles", each);
    if (part[0] == 'r') j.put("flop_per_cycle_per_sm", 2.0 * T::M * 8 * k / each);
    j.put("repeats", repeats).put("spread", spread(t.cycles)).emit();
  };
  const int steps = 500;
  for (int warps : {1, 4, 8, 16})
    emit("rate", warps, steps * TM * TN * warps, time_ctas([&] { launch(warps, steps, false); }, elapsed, 1, repeats));
  emit("latency", 1, steps * CHAIN, time_ctas([&] { launch(1, steps, true); }, elapsed, 1, repeats));
  for (void* p : {(void*)da, (void*)db, (void*)d, (void*)elapsed}) CHECK(cudaFree(p));
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9), capability = compute_capability();
  warm_up_clock(0.1);
  measure<Bf16K8, 2, 4>(repeats);
  measure<Bf16K16, 2, 4>(repeats);
  measure<Fp16K8, 2, 4>(repeats);
  measure<Fp16K16, 2, 4>(repeats);
  measure<Fp16K8Half, 2, 4>(repeats);
  measure<Fp16K16Half, 2, 4>(repeats);
  measure<Tf32K4, 2, 4>(repeats);
  measure<Tf32K8, 2, 4>(repeats);
  measure<Int8K16, 2, 4>(repeats);
  measure<Int8K32, 2, 4>(repeats);
  measure<Fp64K4, 2, 4>(repeats);
  if (capability >= 89) {
    measure<Fp8K32, 2, 4>(repeats);
    measure<Fp8E5m2K32, 2, 4>(repeats);
  }
  if (capability >= 90) measure<Fp64K16, 1, 4>(repeats);
  return 0;
}
