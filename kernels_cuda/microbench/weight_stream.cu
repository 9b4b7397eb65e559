/* weight_stream: time of a k-step when few rows stream through a large weight: rate of an SM against cluster, tile and SMs.
   Shapes     W: (ctas * TM, k) bf16, k-contiguous, read once; X: (rows, k) bf16, read by all CTAs; C: (ctas * TM, rows)
   Launch     grid `ctas`, one tile each; block 128 * TM / 64 + 64; clusters of 1, 2, 4 along W share the tile of X
   On chip    see common/ws_gemm.cuh; as many stages as fit, at most 16
   Traffic    W from L2 (k = 960 to 1984, repeated launches) or from DRAM (W of more than 2x the L2)
   Work       2 TM TN 64 flop a k-step: tensor cores are idle most of the time      Bound  copies in flight, L2 or DRAM
   Parts      l2, dram    rows = TN
              outside     rows = 1 of TN: the rest of X's box lies outside
   Checked    against float64 on the host, random normal operands, poisoned C
   Model      cost/throughput.py: loop.chain_*, fill.*, and rows outside the matrix
   Reference  none
   Targets    sm_90a (others: no wgmma)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a weight_stream.cu -o weight_stream
   Run        ./weight_stream                                 one JSON line a point: slope between two lengths of k */
#include "../common/ws_gemm.cuh"

using namespace ts;

struct Buffers { __nv_bfloat16 *w, *x, *c; };
constexpr int LONGEST_K = 8192;

template <int TM, int TN, int CLUSTER, int MODE>
void check(const Buffers& b) {
  if (MODE != WS_FULL) return;
  WsProblem p{4 * TM, TN - 3, 5 * 64, b.w, b.x, b.c};
  poison(b.c, sizeof(__nv_bfloat16) * p.m * (p.n + 3));
  p.n = TN;
  WsGemm<TM, TN, CLUSTER, MODE> gemm(p, 4);
  gemm();
  CHECK(cudaDeviceSynchronize());
  auto w = to_host(p.a, (size_t)p.m * p.k), x = to_host(p.b, (size_t)p.n * p.k), c = to_host(p.c, (size_t)p.m * p.n);
  double err = 0, norm = 0;
  for (int i = 0; i < p.m; ++i)
    for (int j = 0; j < p.n; ++j) {
      double want = 0, got = __bfloat162float(c[(size_t)i * p.n + j]);
      for (int k = 0; k < p.k; ++k) want += (double)__bfloat162float(w[(size_t)i * p.k + k]) * __bfloat162float(x[(size_t)j * p.k + k]);
      err += (got - want) * (got - want), norm += want * want;
    }
  require(std::sqrt(err / norm) < 4e-3, "weight_stream: product of 64-row tiles in clusters of " + std::to_string(CLUSTER));
}

template <int TM, int TN, int CLUSTER, int MODE>
void measure(const Buffers& b, const char* part, int ctas, int short_k, int long_k, int rows) {
  ctas = ctas / CLUSTER * CLUSTER;
  std::vector<float> slopes;
  double seconds[2];
  std::vector<float> times[2];
  for (int i = 0; i < 2; ++i) {
    WsProblem p{ctas * TM, std::max(rows, 8), i ? long_k : short_k, b.w, b.x, b.c};
    WsGemm<TM, TN, CLUSTER, MODE> gemm(p, ctas);
    if (rows < 8) gemm.b = tensor_map_bf16(p.b, rows, p.k, p.k, TN / CLUSTER, 64);
    times[i] = time_graph([&](cudaStream_t s) { gemm(s); }, 20, 9);
    seconds[i] = median(times[i]);
  }
  for (size_t i = 0; i < times[0].size(); ++i) slopes.push_back((times[1][i] - times[0][i]) / ((long_k - short_k) / 64));
  Json j("weight_stream");
  j.put("part", part).put("mode", MODE == WS_FULL ? "full" : "no_mma").put("tile", TM).put("columns", TN).put("rows", rows);
  j.put("cluster", CLUSTER).put("ctas", ctas).put("stages", (WsShape<TM, TN>::max_stages())).put("short_k", short_k).put("long_k", long_k);
  j.put("seconds_short", seconds[0]).put("seconds_long", seconds[1]).put("step_s", median(slopes));
  j.put("weight_bytes_per_s_per_sm", TM * 128 / median(slopes)).put("weight_bytes_per_s", (double)ctas * TM * 128 / median(slopes));
  j.put("repeats", (int)slopes.size()).put("spread", spread(slopes)).emit();
}

template <int TM, int TN, int CLUSTER, int MODE = WS_FULL>
void sweep(const Buffers& b) {
  check<TM, TN, CLUSTER, MODE>(b);
  const int sms = sm_count() / 4 * 4;
  for (int ctas : {16, sms / 2, 80, 96, 112, sms}) {
    int most = (int)(24e6 / (2.0 * ctas * TM)) / 64 * 64;  // W stays in L2
    int long_k = std::min(most, 4096), short_k = long_k / 2 / 64 * 64;
    measure<TM, TN, CLUSTER, MODE>(b, "l2", ctas, short_k, long_k, TN);
    if (ctas >= 64) measure<TM, TN, CLUSTER, MODE>(b, "dram", ctas, 4096 * (TM == 64 ? 2 : 1) - 1024, LONGEST_K, TN);
    if (TN == 8 && MODE == WS_FULL) measure<TM, TN, CLUSTER, MODE>(b, "outside", ctas, short_k, long_k, 1);
  }
}

int main() {
  Buffers b{device_alloc<__nv_bfloat16>((size_t)sm_count() * 192 * LONGEST_K), device_alloc<__nv_bfloat16>((size_t)64 * LONGEST_K),
            device_alloc<__nv_bfloat16>((size_t)sm_count() * 192 * 64)};
  fill_normal_bf16(b.w, (size_t)sm_count() * 192 * LONGEST_K, 1);
  fill_normal_bf16(b.x, (size_t)64 * LONGEST_K, 2);
  warm_up_clock(0.1);
  sweep<64, 8, 1>(b), sweep<64, 8, 2>(b), sweep<64, 8, 4>(b);
  sweep<64, 8, 1, WS_NO_MMA>(b), sweep<64, 8, 4, WS_NO_MMA>(b);
  sweep<64, 32, 1>(b), sweep<64, 32, 4>(b);
  sweep<128, 8, 1>(b), sweep<128, 8, 4>(b), sweep<128, 32, 4>(b);
  sweep<192, 8, 1>(b), sweep<192, 8, 2>(b);
  return 0;
}
