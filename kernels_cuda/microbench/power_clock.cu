/* power_clock: SM clock and tensor rate as functions of time under a given load, from the first microseconds to seconds.
   Shapes     each SM: A 128 x 128, B 256 x 128 bf16 in shared memory; a batch is 4 m64n256k16 of each of 2 warpgroups
   Launch     grid = active SMs, block 288 (2 warpgroups, 1 copy warp), no cluster, 1 CTA an SM
   On chip    dynamic smem 192 KiB + 1 KiB: operands and a 96 KiB ring of the copy warp
   Traffic    operands stay in shared memory; the copy warp reads DRAM (2 GiB set) or L2 (96 KiB per SM) at a given rate
   Work       2 * 4 * 2 * 64 * 256 * 16 = 4.19 MFLOP a batch, 1024 cycles of the tensor cores; accumulators restart every 64
              batches (a product 4096 deep). duty: each batch is followed by a wait on the clock            Bound  tensor, power
   Rows       series: mean over an interval that ends at time_s; summary: the run, power from NVML over its second half;
              bystanders: clock of SMs without tensor work while others have it
   Checked    one batch against float64 on the host, random normal operands, poisoned output
   Model      tilesight/cost/clock.py
   Targets    sm_90a (others: no wgmma)
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a power_clock.cu -o power_clock
   Run        ./power_clock --part short                  one JSON line an interval and one a run */
#include "../common/copy_stream.cuh"
#include "../common/power_log.cuh"

using namespace ts;

constexpr int L2_SET = 96 * 1024, MAX_LOGS = 4000, BATCH_CYCLES = 1024, CHECK_EVERY = 16;
constexpr double BATCH_FLOP = 2.0 * 4 * 2 * 64 * 256 * 16;
constexpr size_t DRAM_SET = (size_t)2 << 30, SMEM = 1024 + 32768 + 65536 + STREAM_RING;
constexpr double PACE_CLOCK_HZ = 1.8e9;  // copies are paced by the SM clock, taken to be this

struct Load {
  const char* data;
  int sms;
  double duty, dram_tb_per_s, l2_tb_per_s, seconds, idle_s;
};
struct Entry { unsigned long long ns; long long cycle; unsigned long long batches, bytes; };
struct KernelArgs {
  const __nv_bfloat16 *a, *b;
  const unsigned char* stream;
  unsigned long long stream_span, stream_step, stream_first;  // walked by an SM; between its chunks; between SMs
  int stream_interval_cycles;
  long long period_cycles;  // of a batch; 0: no pause
  unsigned long long duration_ns;
  Entry* logs;
  int* log_count;
  float* check;  // null, or D of one batch, 128 x 256
};

// ---------------------------------------------------------------- host reference

void fill_operand(__nv_bfloat16* p, size_t n, uint64_t seed, const std::string& data) {
  if (data == "normal") return fill_normal_bf16(p, n, seed);
  std::vector<__nv_bfloat16> h(n);
  for (size_t i = 0; i < n; ++i) h[i] = __float2bfloat16(data == "zeros" ? 0.0f : hash32(i + (seed << 40)) / 4294967296.0f);
  CHECK(cudaMemcpy(p, h.data(), n * 2, cudaMemcpyHostToDevice));
}

double relative_error(const KernelArgs& p) {  // one batch: the first 64 of k
  auto a = to_host(p.a, 128 * 128), b = to_host(p.b, 256 * 128);
  auto d = to_host(p.check, 128 * 256);
  double err = 0, norm = 0;
  for (int i = 0; i < 128; ++i)
    for (int j = 0; j < 256; ++j) {
      double want = 0;
      for (int x = 0; x < 64; ++x) want += (double)__bfloat162float(a[i * 128 + x]) * __bfloat162float(b[j * 128 + x]);
      double got = d[i * 256 + j];
      err += (got - want) * (got - want), norm += want * want;
    }
  return std::sqrt(err / norm);
}

// ---------------------------------------------------------------- kernel

// MMA 0: only the clock is read, for loads without tensor work.
template <int MMA>
__global__ void __launch_bounds__(288, 1) power_kernel(const KernelArgs p) {
  extern __shared__ unsigned char raw[];
  __shared__ uint64_t bars[STREAM_SLOTS];
  __shared__ int done, stop[2][2];
  __shared__ unsigned long long bytes;
  unsigned char* tile_a = align_1024(raw);         // two blocks of 64 k: 128 rows
  unsigned char* tile_b = tile_a + 2 * 128 * 128;  // two blocks of 64 k: 256 rows
  for (int i = threadIdx.x; i < 128 * 128; i += blockDim.x)
    *(__nv_bfloat16*)(tile_a + i % 128 / 64 * 16384 + swizzled<128>(i / 128 * 128 + i % 64 * 2)) = p.a[i];
  for (int i = threadIdx.x; i < 256 * 128; i += blockDim.x)
    *(__nv_bfloat16*)(tile_b + i % 128 / 64 * 32768 + swizzled<128>(i / 128 * 128 + i % 64 * 2)) = p.b[i];
  if (threadIdx.x == 0) {
    done = 0, bytes = 0;
    for (int i = 0; i < STREAM_SLOTS; ++i) mbar_init(smem_u32(bars + i), 1);
    mbar_init_fence();
  }
  fence_proxy_async();
  __syncthreads();
  const int wg = threadIdx.x / 128;
  if (wg == 2) {
    if (threadIdx.x % 32 == 0) {
      CopyStream stream = {p.stream + p.stream_first * blockIdx.x, p.stream_step, p.stream_span, p.stream_interval_cycles};
      copy_stream(stream, smem_u32(tile_b) + 65536, smem_u32(bars), &done, 2, &bytes);
    }
    return;
  }
  float acc[128] = {};
  const uint64_t desc_a = wgmma_desc_128b(smem_u32(tile_a) + wg * 8192), desc_b = wgmma_desc_128b(smem_u32(tile_b));
  const unsigned long long start = globaltimer_ns();
  const long long period = p.period_cycles;
  unsigned long long next_log = 0;
  long long next = cycles() + period;
  int logs = 0;
  Entry* log = p.logs + (size_t)blockIdx.x * MAX_LOGS;
  for (unsigned long long batch = 0;; ++batch) {
    if (batch % CHECK_EVERY == 0) {
      int* flag = &stop[wg][batch / CHECK_EVERY % 2];
      if (threadIdx.x % 128 == 0) {
        unsigned long long now = globaltimer_ns();
        *flag = now - start >= p.duration_ns;
        if (wg == 0 && logs < MAX_LOGS && (now >= next_log || *flag)) {
          log[logs++] = {now, cycles(), batch, *(volatile unsigned long long*)&bytes};
          next_log = logs < 100 ? 0 : now + (logs < 300 ? 50000 : 1000000);
        }
      }
      named_barrier(wg + 1, 128);
      if (*(volatile int*)flag) break;
    }
    if (MMA) {
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        Wgmma<256>::mma(acc, desc_a + (batch & 1) * (16384 >> 4) + 2 * k, desc_b + (batch & 1) * (32768 >> 4) + 2 * k,
                        batch % 64 != 0 || k > 0);
      wgmma_commit();
      if (period > 0 || p.check) wgmma_wait<0>();
      else wgmma_wait<1>();
      if (p.check) break;
    }
    if (period > 0) {
      while (cycles() < next) {}
      next += period;
    }
  }
  wgmma_wait<0>();
  if (threadIdx.x == 0) p.log_count[blockIdx.x] = logs;
  if (threadIdx.x % 128 == 0) atomicAdd(&done, 1);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 128; ++i) {
    int lane = threadIdx.x % 32, row = wg * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4 + 8 * (i / 2 % 2);
    if (p.check && blockIdx.x == 0) p.check[row * 256 + 8 * (i / 4) + 2 * (lane % 4) + i % 2] = acc[i];
    sum += acc[i];
  }
  if (sum == 1.2345678e30f) p.log_count[blockIdx.x] = -1;  // keeps the accumulators alive
}

// ---------------------------------------------------------------- series

// Value of column f at time ns, between log entries.
template <class F> double at(const Entry* e, int n, double ns, F f) {
  if (ns <= (double)e[0].ns) return f(e[0]);
  int hi = 1;
  while (hi < n - 1 && (double)e[hi].ns < ns) ++hi;
  double share = std::min(1.0, (ns - e[hi - 1].ns) / std::max(1.0, (double)(e[hi].ns - e[hi - 1].ns)));
  return f(e[hi - 1]) + share * (f(e[hi]) - f(e[hi - 1]));
}

std::string& part_name() {
  static std::string name;
  return name;
}
void put_load(Json& j, const char* row, int run, const Load& l) {
  j.put("part", part_name()).put("row", row).put("run", run).put("data", l.data).put("sms", l.sms).put("duty", l.duty);
  j.put("dram_asked_bytes_per_s", l.dram_tb_per_s * 1e12).put("l2_asked_bytes_per_s", l.l2_tb_per_s * 1e12);
  j.put("duration_s", l.seconds).put("idle_before_s", l.idle_s);
}

struct Interval { double time_s, clock_hz, flop_per_s, bytes_per_s; };
Interval interval(const std::vector<Entry>& logs, const std::vector<int>& counts, double from_ns, double to_ns, bool mma) {
  double cycle = 0, batches = 0, bytes = 0;
  int sms = (int)counts.size();
  for (int s = 0; s < sms; ++s) {
    const Entry* e = &logs[(size_t)s * MAX_LOGS];
    auto delta = [&](auto f) { return at(e, counts[s], to_ns, f) - at(e, counts[s], from_ns, f); };
    cycle += delta([](const Entry& x) { return (double)x.cycle; });
    batches += delta([](const Entry& x) { return (double)x.batches; });
    bytes += delta([](const Entry& x) { return (double)x.bytes; });
  }
  double s = (to_ns - from_ns) * 1e-9;
  return {0, cycle / sms / s, mma ? batches * BATCH_FLOP / s : 0, bytes / s};
}

// ---------------------------------------------------------------- one run

struct Buffers { __nv_bfloat16 *a, *b; unsigned char* stream; Entry* logs; int* count; float* check; };

void run(int id, const Load& l, const Buffers& x, PowerLog& power) {
  fill_operand(x.a, 128 * 128, 1, l.data);
  fill_operand(x.b, 256 * 128, 2, l.data);
  KernelArgs p = {x.a, x.b, x.stream, DRAM_SET - STREAM_CHUNK * l.sms, (size_t)STREAM_CHUNK * l.sms, STREAM_CHUNK, 0, 0,
                  (unsigned long long)(l.seconds * 1e9), x.logs, x.count, nullptr};
  if (l.duty < 1) p.period_cycles = (long long)(BATCH_CYCLES / (l.duty > 0 ? l.duty : 0.5));
  double rate = (l.dram_tb_per_s + l.l2_tb_per_s) * 1e12 / l.sms;  // one of the two
  if (rate > 0) p.stream_interval_cycles = (int)(STREAM_CHUNK / rate * PACE_CLOCK_HZ);
  if (l.l2_tb_per_s > 0) p.stream_span = L2_SET, p.stream_step = STREAM_CHUNK, p.stream_first = L2_SET;
  CHECK(cudaMemset(x.count, 0, sizeof(int) * l.sms));
  CHECK(cudaDeviceSynchronize());
  sleep_s(l.idle_s);
  double from = host_s();
  if (l.duty > 0) power_kernel<1><<<l.sms, 288, SMEM>>>(p);
  else power_kernel<0><<<l.sms, 288, SMEM>>>(p);
  CHECK_LAUNCH();
  CHECK(cudaDeviceSynchronize());
  double to = host_s();
  auto counts = to_host(x.count, l.sms);
  auto logs = to_host(x.logs, (size_t)l.sms * MAX_LOGS);
  double start = 1e300, end = 1e300;
  for (int s = 0; s < l.sms; ++s) {
    require(counts[s] >= 2, "every SM logged");
    start = std::min(start, (double)logs[(size_t)s * MAX_LOGS].ns);
    end = std::min(end, (double)logs[(size_t)s * MAX_LOGS + counts[s] - 1].ns);
  }
  const int points = 40;
  double before = start;
  for (int i = 1; i <= points; ++i) {
    double t = std::min(20e3 * std::pow((end - start) / 20e3, (i - 1.0) / (points - 1)), end - start) + start;
    if (t - before < 8e3) continue;
    Interval v = interval(logs, counts, before, t, l.duty > 0);
    Json j("power_clock");
    put_load(j, "series", id, l);
    j.put("time_s", (t - start) * 1e-9).put("interval_s", (t - before) * 1e-9).put("clock_hz", v.clock_hz);
    j.put("rate_flop_per_s", v.flop_per_s).put("stream_bytes_per_s", v.bytes_per_s);
    double host = from + (t - start) * 1e-9;
    j.put("power_w", power.median_of(host - (t - before) * 1e-9 - 5e-3, host + 5e-3, [](const PowerSample& s) { return s.power_w; }));
    j.emit();
    before = t;
  }
  Interval v = interval(logs, counts, 0.5 * (start + end), end, l.duty > 0);
  Json j("power_clock");
  put_load(j, "summary", id, l);
  j.put("time_s", (end - start) * 1e-9).put("interval_s", (end - start) * 0.5e-9).put("clock_hz", v.clock_hz);
  j.put("rate_flop_per_s", v.flop_per_s).put("stream_bytes_per_s", v.bytes_per_s);
  put_power(j, power, from - 0.5 * l.idle_s, from, to);
  j.emit();
}

// CTAs without tensor work beside CTAs with it: does each SM have a clock of its own?
void run_bystanders(int id, const Load& l, const Buffers& x, int bystanders) {
  cudaStream_t working, watching;
  CHECK(cudaStreamCreateWithFlags(&working, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&watching, cudaStreamNonBlocking));
  fill_operand(x.a, 128 * 128, 1, l.data);
  fill_operand(x.b, 256 * 128, 2, l.data);
  KernelArgs p = {x.a, x.b, x.stream, 0, 0, 0, 0, 0, (unsigned long long)(l.seconds * 1e9), x.logs, x.count, nullptr};
  KernelArgs q = p;
  q.logs += (size_t)l.sms * MAX_LOGS, q.log_count += l.sms, q.period_cycles = 2 * BATCH_CYCLES;
  CHECK(cudaDeviceSynchronize());
  power_kernel<1><<<l.sms, 288, SMEM, working>>>(p);
  power_kernel<0><<<bystanders, 288, SMEM, watching>>>(q);
  CHECK_LAUNCH();
  CHECK(cudaDeviceSynchronize());
  auto counts = to_host(x.count, l.sms + bystanders);
  auto logs = to_host(x.logs, (size_t)(l.sms + bystanders) * MAX_LOGS);
  std::vector<double> own, others;
  for (int s = 0; s < l.sms + bystanders; ++s) {  // the middle of the run, when both kernels are there
    const Entry *e = &logs[(size_t)s * MAX_LOGS], *from = e + counts[s] / 3, *to = e + counts[s] * 2 / 3;
    (s < l.sms ? own : others).push_back((to->cycle - from->cycle) / ((to->ns - from->ns) * 1e-9));
  }
  Json j("power_clock");
  put_load(j, "bystanders", id, l);
  j.put("clock_hz", median(own)).put("bystanders", bystanders).put("bystander_clock_hz", median(others));
  j.put("bystander_clock_min_hz", quantile(others, 0)).put("bystander_clock_max_hz", quantile(others, 1)).emit();
  CHECK(cudaStreamDestroy(working));
  CHECK(cudaStreamDestroy(watching));
}

std::vector<Load> loads(const std::string& part, int sms) {
  std::vector<Load> v;
  if (part == "short") {
    const double s = 0.1, idle = 0.5;
    for (int n : {1, 8, 33, 54, 66, 80, 100, 116, sms}) v.push_back({"normal", n, 1, 0, 0, s, idle});
    for (const char* data : {"zeros", "uniform"})
      for (int n : {66, 100, sms}) v.push_back({data, n, 1, 0, 0, s, idle});
    for (double duty : {0.25, 0.5, 0.75, 0.9}) v.push_back({"normal", sms, duty, 0, 0, s, idle});
    for (double duty : {1.0, 0.5}) {
      for (double tb : {1.0, 2.0, 3.0}) v.push_back({"normal", sms, duty, tb, 0, s, idle});
      for (double tb : {2.5, 5.0, 8.0}) v.push_back({"normal", sms, duty, 0, tb, s, idle});
    }
    for (double tb : {5.0, 8.0}) v.push_back({"zeros", sms, 1, 0, tb, s, idle});
    // Rare batches: how long the clock stays low after one.
    for (double duty : {0.1, 0.02, 0.005, 0.001}) v.push_back({"normal", sms, duty, 0, 0, s, 0.2});
    for (double duty : {0.1, 0.02, 0.005}) v.push_back({"zeros", 1, duty, 0, 0, s, 0.2});
    for (double before : {0.2, 0.05, 0.02, 0.005}) v.push_back({"normal", sms, 1, 0, 0, s, before});
  } else {
    const double s = 1.5, idle = 0.5;
    v.push_back({"normal", sms, 0, 0, 0, 1.0, idle});
    for (double duty : {1.0, 0.75, 0.5, 0.25}) v.push_back({"normal", sms, duty, 0, 0, s, idle});
    for (int n : {66, 100}) v.push_back({"normal", n, 1, 0, 0, s, idle});
    for (const char* data : {"zeros", "uniform"}) v.push_back({data, sms, 1, 0, 0, s, idle});
    for (double tb : {1.0, 2.0, 3.0, 4.8}) v.push_back({"normal", sms, 0, tb, 0, 1.0, idle});
    v.push_back({"normal", sms, 0.5, 2, 0, s, idle});
    v.push_back({"normal", sms, 1, 3, 0, s, idle});
    for (double tb : {4.0, 8.0}) v.push_back({"normal", sms, 0, 0, tb, 1.0, idle});
    v.push_back({"normal", sms, 0.5, 0, 8, s, idle});
    v.push_back({"normal", sms, 1, 0, 8, s, idle});
  }
  return v;
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int sms = sm_count();
  Buffers x{device_alloc<__nv_bfloat16>(128 * 128), device_alloc<__nv_bfloat16>(256 * 128), device_alloc<unsigned char>(DRAM_SET),
            device_alloc<Entry>((size_t)sms * MAX_LOGS), device_alloc<int>(sms), device_alloc<float>(128 * 256)};
  fill_normal_bf16((__nv_bfloat16*)x.stream, DRAM_SET / 2, 3);
  allow_smem(power_kernel<0>, SMEM);
  allow_smem(power_kernel<1>, SMEM);
  fill_operand(x.a, 128 * 128, 1, "normal");
  fill_operand(x.b, 256 * 128, 2, "normal");
  poison(x.check, sizeof(float) * 128 * 256);
  KernelArgs p = {x.a, x.b, x.stream, 0, 0, 0, 0, 0, 1000000, x.logs, x.count, x.check};
  power_kernel<1><<<1, 288, SMEM>>>(p);
  CHECK_LAUNCH();
  require(relative_error(p) < 1e-4, "power_clock: one batch");
  PowerLog power;
  int id = 0;
  const std::string part = part_name() = args.get("--part", "short");
  for (const Load& l : loads(part, sms)) run(id++, l, x, power);
  if (part == "short")
    for (int n : {1, 8, 64}) run_bystanders(id++, {"normal", n, 1, 0, 0, 0.02, 0}, x, sms - n);
  return 0;
}
