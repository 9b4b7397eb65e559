/* tensor_sustained: tensor rate of the whole GPU by dtype, just after a pause and over the second of two seconds.
   Shapes     wgmma: an SM multiplies A 128 x 256 bytes of k and B 256 x 256 bytes, two m64n256 accumulators; mma.sync: a warp
              has 2 x 4 tiles of the largest shape of the dtype in registers
   Launch     one CTA an SM, block 256 (wgmma) or 512 (mma.sync), no cluster; launches of about 1 ms behind each other
   On chip    dynamic smem: wgmma 97 KiB, and at least half of an SM's so that one CTA fits; registers as printed by ptxas
   Traffic    operands stay in shared memory or registers; no DRAM traffic
   Work       2 m n k flop (int8: operations); accumulators restart every 64 batches              Bound  tensor, power
   Parts      burst: the first 20 ms after 0.3 s without work; sustained: the launches of the second half of the run
   Checked    two batches against float64 on the host (int8 exact), normal operands (int8 uniform), poisoned D
   Model      tensor.<dtype>.rate_burst_flop_per_s, rate_sustained_flop_per_s. Not on sm_100: tcgen05 would be faster
   Reference  PTX ISA, wgmma.mma_async, mma.sync; NVML
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v tensor_sustained.cu -o tensor_sustained
   Run        ./tensor_sustained --seconds 2.0                 two JSON lines a dtype; power columns null without NVML */
#include "../common/cta_window.cuh"
#include "../common/mma.cuh"
#include "../common/power_log.cuh"
#include "../common/wgmma_types.cuh"
using namespace ts;
using u64 = unsigned long long;

constexpr int RESTART = 64, MOST_LAUNCHES = 8000, QUEUED = 10, TM = 2, TN = 4, WARPS = 16;
constexpr double BURST_NS = 20e6;
struct Log { u64 begin_ns, end_ns, cycles, ns; };  // of a launch: first begin, last end, sums over CTAs

// ---------------------------------------------------------------- kernels

__device__ __forceinline__ void log_launch(Log* log, u64 ns, long long cycle) {
  const u64 now = globaltimer_ns(), ran = cycles() - cycle;
  atomicMin(&log->begin_ns, ns);
  atomicMax(&log->end_ns, now);
  atomicAdd(&log->cycles, ran);
  atomicAdd(&log->ns, now - ns);
}

// a: 128 rows, b: 256 rows of 256 bytes; a batch is 4 instructions of each warpgroup over 128 of the bytes, in turn
template <class T>
__global__ void __launch_bounds__(256, 1) wgmma_kernel(const uint32_t* a, const uint32_t* b, double* d, int batches, Log* log) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char raw[];
  const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0), lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 4;
  unsigned char *tile_a = align_1024(raw), *tile_b = tile_a + 2 * 128 * 128;
  for (int i = threadIdx.x; i < 128 * 64; i += 256)
    *(uint32_t*)(tile_a + i % 64 / 32 * 16384 + swizzled<128>(i / 64 * 128 + i % 32 * 4)) = a[i];
  for (int i = threadIdx.x; i < 256 * 64; i += 256)
    *(uint32_t*)(tile_b + i % 64 / 32 * 32768 + swizzled<128>(i / 64 * 128 + i % 32 * 4)) = b[i];
  typename T::Acc acc[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) wgmma_zero(acc[i]);
  const uint64_t desc_a = wgmma_desc_128b(smem_u32(tile_a) + wg * 8192), desc_b = wgmma_desc_128b(smem_u32(tile_b));
  fence_proxy_async();
  __syncthreads();
  const u64 ns = globaltimer_ns();
  const long long cycle = cycles();
#pragma unroll 1
  for (int s = 0; s < batches; ++s) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      WgmmaOf<T, 256>::from_smem(acc, desc_a + s % 2 * (16384 >> 4) + 2 * k, desc_b + s % 2 * (32768 >> 4) + 2 * k,
                                 k > 0 || s % RESTART != 0);
    wgmma_commit();
    wgmma_wait<1>();
  }
  wgmma_wait<0>();
  if (threadIdx.x == 0) log_launch(log, ns, cycle);
  if (d != nullptr && blockIdx.x == 0)
#pragma unroll
    for (int i = 0; i < 128; ++i) d[(row0 + 8 * (i / 2 % 2)) * 256 + 8 * (i / 4) + 2 * (lane % 4) + i % 2] = (double)acc[i];
#endif
}

// As in mma_sync_rate: a, b, d are tiles of 16 warps; a batch is 8 instructions of each warp
template <class T>
__global__ void __launch_bounds__(32 * WARPS, 1)
mma_kernel(const uint32_t* a, const uint32_t* b, double* d, int batches, uint32_t zero, Log* log) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t fa[TM][T::A], fb[TN][T::B];
  typename T::Acc acc[TM][TN][T::D] = {};
#pragma unroll
  for (int i = 0; i < TM; ++i) load_a<T>(fa[i], a + (warp * TM + i) * T::M * T::WORDS, lane);
#pragma unroll
  for (int j = 0; j < TN; ++j) load_b<T>(fb[j], b + (warp * TN + j) * 8 * T::WORDS, lane);
  __syncthreads();
  const u64 ns = globaltimer_ns();
  const long long cycle = cycles();
#pragma unroll 1
  for (int done = 0; done < batches; done += RESTART) {
    const int now = min(RESTART, batches - done);
#pragma unroll
    for (int i = 0; i < TM * TN * T::D; ++i) (&acc[0][0][0])[i] = 0;
#pragma unroll (FRESH<T> ? 1 : 4)
    for (int s = 0; s < now; ++s) {
      refresh<T>(fa, zero);
      refresh<T>(fb, zero);
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) T::mma(acc[i][j], fa[i], fb[j]);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) log_launch(log, ns, cycle);
  if (d != nullptr && blockIdx.x == 0)
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) store_d<T>(d + ((warp * TM + i) * TN + j) * T::M * 8, acc[i][j], lane);
}

// ---------------------------------------------------------------- one dtype

struct Work {  // launch(batches, d, log): one launch on all SMs
  std::string dtype, instruction;
  double batch_flop;  // of the GPU
  std::function<void(int, double*, Log*)> launch;
};

void clear(Log* log, int launches) {
  std::vector<Log> empty(launches, Log{~0ull, 0, 0, 0});
  CHECK(cudaMemcpy(log, empty.data(), launches * sizeof(Log), cudaMemcpyHostToDevice));
}
void check(const Work& w, Log* log, const std::vector<double>& want) {  // two batches
  double* d = device_alloc<double>(want.size());
  poison(d, want.size() * sizeof(double));
  clear(log, 1);
  w.launch(2, d, log);
  double e = relative_error(to_host(d, want.size()), want);
  require(e < tolerance(w.dtype, "fp32"), "tensor_sustained: " + w.dtype + ": relative error " + std::to_string(e));
  CHECK(cudaFree(d));
}

void emit(const Work& w, const char* part, const std::vector<Log>& logs, int batches, int sms, PowerLog& power, double idle_from_s,
          double from_s, double to_s) {
  std::vector<double> rate;  // of each fifth of the launches: the clock of a limited GPU swings from launch to launch
  const size_t fifth = std::max<size_t>(1, logs.size() / 5);
  for (size_t i = 0; i + fifth <= logs.size(); i += fifth)
    rate.push_back(w.batch_flop * batches * fifth / ((logs[i + fifth - 1].end_ns - logs[i].begin_ns) * 1e-9));
  double cycle = 0, ns = 0;
  for (const Log& l : logs) cycle += l.cycles, ns += l.ns;
  const double seconds = (logs.back().end_ns - logs[0].begin_ns) * 1e-9, flop = w.batch_flop * batches * logs.size();
  Json j("tensor_sustained");
  j.put("part", part).put("dtype", w.dtype).put("instruction", w.instruction).put("sms", sms).put("seconds", seconds);
  j.put("flop_per_s", flop / seconds).put("flop_per_cycle_per_sm", flop / cycle);
  j.put("clock_hz", cycle / ns * 1e9).put("repeats", rate.size()).put("spread", spread(rate));
  if (part[0] == 's') put_power(j, power, idle_from_s, from_s, to_s);
  j.emit();
}

void measure(const Work& w, Log* log, PowerLog& power, double seconds, double idle_s, int sms) {
  clear(log, 2);
  for (int i = 0; i < 2; ++i) w.launch(8 * RESTART, nullptr, log + i);
  Log warm = to_host(log, 2)[1];
  require(warm.end_ns > warm.begin_ns, "tensor_sustained: a launch was logged");
  const int batches = RESTART * std::max(8, (int)(8 * 1e6 / (warm.end_ns - warm.begin_ns)));  // about 1 ms
  clear(log, MOST_LAUNCHES);
  cudaEvent_t done[2];
  for (auto& e : done) CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  CHECK(cudaDeviceSynchronize());
  const double idle_from = host_s();
  sleep_s(idle_s);
  const double from = host_s();
  int launches = 0;
  for (int round = 0; host_s() - from < seconds && launches + QUEUED <= MOST_LAUNCHES; ++round) {
    if (round >= 2) CHECK(cudaEventSynchronize(done[round % 2]));  // at most two rounds wait
    for (int i = 0; i < QUEUED; ++i) w.launch(batches, nullptr, log + launches++);
    CHECK(cudaEventRecord(done[round % 2]));
  }
  CHECK(cudaDeviceSynchronize());
  const double to = host_s();
  for (auto& e : done) CHECK(cudaEventDestroy(e));
  auto logs = to_host(log, launches);
  size_t burst = 1, half = 0;
  while (burst < logs.size() && logs[burst].begin_ns - logs[0].begin_ns < BURST_NS) ++burst;
  while (half + 7 < logs.size() && logs[half].begin_ns - logs[0].begin_ns < 0.5 * (logs.back().end_ns - logs[0].begin_ns)) ++half;
  emit(w, "burst", std::vector<Log>(logs.begin(), logs.begin() + burst), batches, sms, power, idle_from, from, to);
  emit(w, "sustained", std::vector<Log>(logs.begin() + half, logs.end()), batches, sms, power, idle_from + 0.5 * idle_s, from, to);
}

// ---------------------------------------------------------------- the two instructions

struct Run { Log* log; PowerLog& power; double seconds, idle_s; int sms; size_t smem; };

template <class T> void run_wgmma(const Run& r) {
  const int k = 8 * T::K;
  Operand a = random_operand(T::dtype, 128 * k, 1), b = random_operand(T::dtype, 256 * k, 2);
  auto *da = upload<uint32_t>(a.raw), *db = upload<uint32_t>(b.raw);
  const size_t smem = std::max<size_t>(r.smem, 1024 + (128 + 256) * 256);
  allow_smem(wgmma_kernel<T>, smem);
  const int sms = r.sms;
  Work w{T::dtype, "wgmma m64n256k" + std::to_string(T::K), 2.0 * 128 * 256 * (4 * T::K) * sms,
         [=](int batches, double* d, Log* log) {
           wgmma_kernel<T><<<sms, 256, smem>>>(da, db, d, batches, log);
           CHECK_LAUNCH();
         }};
  check(w, r.log, product(a.value.data(), b.value.data(), 128, 256, k));
  measure(w, r.log, r.power, r.seconds, r.idle_s, r.sms);
}

template <class T> void run_mma(const Run& r) {
  const int k = T::K, m = WARPS * TM * T::M, n = WARPS * TN * 8;
  Operand a = random_operand(T::dtype, (size_t)m * k, 1), b = random_operand(T::dtype, (size_t)n * k, 2);
  auto *da = upload<uint32_t>(a.raw), *db = upload<uint32_t>(b.raw);
  allow_smem(mma_kernel<T>, r.smem);
  const int sms = r.sms;
  const size_t smem = r.smem;
  Work w{T::dtype, "mma.sync m16n8k" + std::to_string(k), 2.0 * WARPS * TM * TN * T::M * 8 * k * sms,
         [=](int batches, double* d, Log* log) {
           mma_kernel<T><<<sms, 32 * WARPS, smem>>>(da, db, d, batches, 0u, log);
           CHECK_LAUNCH();
         }};
  std::vector<double> want;
  for (int t = 0; t < WARPS * TM * TN; ++t)
    for (double v : product(&a.value[(size_t)(t / TN) * T::M * k], &b.value[(size_t)(t / (TM * TN) * TN + t % TN) * 8 * k], T::M, 8, k))
      want.push_back(2 * v);
  check(w, r.log, want);
  measure(w, r.log, r.power, r.seconds, r.idle_s, r.sms);
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int capability = compute_capability();
  int per_sm = 0;
  CHECK(cudaDeviceGetAttribute(&per_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor, 0));
  PowerLog power;
  Run r{device_alloc<Log>(MOST_LAUNCHES), power, args.get("--seconds", 2.0), args.get("--idle", 0.3), sm_count(), (size_t)per_sm / 2};
  warm_up_clock(0.1);
  if (capability / 10 == 9) {
    run_wgmma<WgBf16>(r);
    run_wgmma<WgFp16>(r);
    run_wgmma<WgTf32>(r);
    run_wgmma<WgFp8>(r);
    run_wgmma<WgInt8>(r);
    return 0;
  }
  run_mma<Bf16K16>(r);
  run_mma<Fp16K16>(r);
  run_mma<Tf32K8>(r);
  if (capability >= 89) run_mma<Fp8K32>(r);
  run_mma<Int8K32>(r);
  return 0;
}
