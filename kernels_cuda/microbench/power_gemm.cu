/* power_gemm: rate and clock of each launch of a large warp-specialised GEMM, launched back to back from an idle GPU.
   Shapes     6144 x 8448 x 9216 bf16, whole tiles of 128 x 256 x 64 (1584 tiles, 12 rounds of 132)
   Launch     grid all SMs, block 320, cluster 1 or 2; persistent
   On chip    see common/ws_gemm.cuh, 4 stages
   Traffic    269 MB of operands from DRAM and L2, 104 MB of C
   Work       957 GFLOP a launch                                                        Bound  tensor, power
   Rows       launch: means over a group of launches that ends with the launch numbered `launch` (log-spaced);
              summary: the run, power from NVML over its second half
   Checked    common/ws_gemm.cuh is checked by ws_gemm.cu; here 64 random elements of C against float64
   Model      tilesight/cost/clock.py
   Targets    sm_90a (others: no wgmma)
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a power_gemm.cu -o power_gemm
   Run        ./power_gemm                                one JSON line a group of launches and one a run */
#include "../common/power_log.cuh"
#include "../common/ws_gemm.cuh"

using namespace ts;

constexpr int M = 6144, N = 8448, K = 9216, MAX_LAUNCHES = 1600;

// ---------------------------------------------------------------- host reference

void check_elements(const WsProblem& p) {
  for (uint64_t i = 0; i < 64; ++i) {
    size_t row = hash32(2 * i) % p.m, col = hash32(2 * i + 1) % p.n;
    auto a = to_host(p.a + row * p.k, p.k), b = to_host(p.b + col * p.k, p.k), c = to_host(p.c + row * p.n + col, 1);
    double want = 0;
    for (int x = 0; x < p.k; ++x) want += (double)__bfloat162float(a[x]) * __bfloat162float(b[x]);
    require(std::fabs(want - __bfloat162float(c[0])) < 4e-3 * std::fabs(want) + 0.05, "power_gemm: element of C");
  }
}

// ---------------------------------------------------------------- one run

template <class Gemm>
void run(const char* data, int cluster, double seconds, double idle_s, const WsProblem& p, long long* stamps, PowerLog& power) {
  Gemm gemm(p, sm_count());
  const double flop = 2.0 * p.m * p.n * p.k;
  int launches = std::min(MAX_LAUNCHES, std::max(1, (int)(seconds / (flop / 750e12))));
  const size_t per_launch = (size_t)gemm.ctas * WS_STAMPS;
  CHECK(cudaDeviceSynchronize());
  sleep_s(idle_s);
  double from = host_s();
  for (int i = 0; i < launches; ++i) {
    gemm.args.stamps = stamps + i * per_launch;
    gemm();
  }
  CHECK(cudaDeviceSynchronize());
  double to = host_s();
  auto raw = to_host(stamps, launches * per_launch);
  auto put_run = [&](Json& j, const char* row) {
    j.put("row", row).put("data", data).put("tile_m", 128).put("tile_n", 256).put("cluster", cluster).put("stages", gemm.args.stages);
    j.put("m", p.m).put("n", p.n).put("k", p.k).put("duration_s", seconds).put("idle_before_s", idle_s).put("launches", launches);
  };
  // First entry, last exit and the clock of CTA 0 of each launch.
  std::vector<double> entry, exit, clock;
  for (int i = 0; i < launches; ++i) {
    double first = 1e300, last = 0;
    const long long* s = &raw[i * per_launch];
    for (int c = 0; c < gemm.ctas; ++c) {
      first = std::min(first, (double)s[c * WS_STAMPS + ENTRY_NS]);
      last = std::max(last, (double)s[c * WS_STAMPS + EXIT_NS]);
    }
    entry.push_back(first), exit.push_back(last);
    clock.push_back((s[STORE_DONE] - s[ENTRY]) / ((s[EXIT_NS] - s[ENTRY_NS]) * 1e-9));
  }
  auto put_group = [&](Json& j, int from_launch, int to_launch) {  // launches from < i <= to
    double busy = 0, hz = 0;
    for (int i = from_launch + 1; i <= to_launch; ++i) busy += (exit[i] - entry[i]) * 1e-9, hz += clock[i];
    int n = to_launch - from_launch;
    j.put("launch", to_launch).put("time_s", (exit[to_launch] - entry[0]) * 1e-9).put("kernel_s", busy / n);
    j.put("rate_flop_per_s", flop * n / busy).put("clock_hz", hz / n);
    j.put("span_rate_flop_per_s", flop * n / ((exit[to_launch] - (from_launch < 0 ? entry[0] : exit[from_launch])) * 1e-9));
  };
  int before = -1;
  for (double at = 0; before < launches - 1; at = at < 8 ? at + 1 : at * 1.15) {
    int last = std::min(launches - 1, (int)at);
    Json j("power_gemm");
    put_run(j, "launch");
    put_group(j, before, last);
    double t = from + (exit[last] - entry[0]) * 1e-9;
    j.put("power_w", power.median_of(t - 1e-2, t + 5e-3, [](const PowerSample& s) { return s.power_w; })).emit();
    before = last;
  }
  Json j("power_gemm");
  put_run(j, "summary");
  put_group(j, launches / 2 - 1, launches - 1);
  put_power(j, power, from - 0.5 * idle_s, from, to);
  j.emit();
}

void fill(__nv_bfloat16* p, size_t n, uint64_t seed, const std::string& data) {
  if (data == "zeros") CHECK(cudaMemset(p, 0, n * 2));
  else fill_normal_bf16(p, n, seed);
}

int main() {
  WsProblem p{M, N, K, nullptr, nullptr, device_alloc<__nv_bfloat16>((size_t)M * N)};
  auto *a = device_alloc<__nv_bfloat16>((size_t)M * K), *b = device_alloc<__nv_bfloat16>((size_t)N * K);
  p.a = a, p.b = b;
  long long* stamps = device_alloc<long long>((size_t)MAX_LAUNCHES * sm_count() * WS_STAMPS);
  PowerLog power;
  for (const char* data : {"normal", "zeros"}) {
    fill(a, (size_t)M * K, 1, data);
    fill(b, (size_t)N * K, 2, data);
    poison(p.c, sizeof(__nv_bfloat16) * M * N);
    WsGemm<128, 256, 2>(p, sm_count())();
    check_elements(p);
    poison(p.c, sizeof(__nv_bfloat16) * M * N);
    WsGemm<128, 256, 1>(p, sm_count())();
    check_elements(p);
    for (double seconds : {0.03, 0.3, 1.0}) {
      run<WsGemm<128, 256, 2>>(data, 2, seconds, 0.5, p, stamps, power);
      if (seconds != 0.3) run<WsGemm<128, 256, 1>>(data, 1, seconds, 0.5, p, stamps, power);
    }
    if (std::string(data) == "normal")
      for (double idle : {0.1, 0.02}) run<WsGemm<128, 256, 2>>(data, 2, 0.03, idle, p, stamps, power);
  }
  return 0;
}
