/* ws_gemm: what a k-step, a launch, an epilogue and a further tile cost in a warp-specialised GEMM whose operands are in L2.
   Shapes     tiles 64 x {8..256}, 128 x {64..256}, 256 x {64, 128}, tile_k 64; problems of tiles_m x tiles_n whole tiles, k_steps * 64 deep
   Launch     grid 1, 33, 54 or all SMs; block 128 per 64 rows + 64; cluster 1 or 2
   On chip    see common/ws_gemm.cuh; as many stages as fit unless the part says otherwise
   Traffic    operands from L2 (graph-repeated launches on the same buffers), C written to L2
   Work       2 m n k flop                                    Bound  tensor, ring, launch and epilogue by part
   Parts      slope       k_steps 0..49, all tiles, 1..132 CTAs; epilogue on and off at 0, 1 and 7 k-steps
              stages      time of a k-step against the number of stages
              ring        the loop without wgmma, without copies, without both, and with wgmma waited for in order
              persistent  1..4 tiles per CTA
   Stamps     cycles after kernel entry of consumer thread 0, median over CTAs: barriers ready, first stage full, last wgmma
              done, last store issued, stores complete; kernel_ns is entry to exit by the global timer
   Checked    against float64 on the host, random normal operands, ragged m, n and k, poisoned C
   Model      tilesight/kernels/gemm.py (warp-specialised loop), cost/envelope.py
   Targets    sm_90a (others: no wgmma)
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a ws_gemm.cu -o ws_gemm
   Run        ./ws_gemm --part slope                          one JSON line a point */
#include "../common/ws_gemm.cuh"

using namespace ts;

const char* const MODE_NAME[] = {"full", "no_mma", "no_copy", "empty", "in_order"};
struct Setup { int ctas, tiles_per_cta, k_steps, stages, epilogue; };  // stages 0: as many as fit
struct Buffers { __nv_bfloat16 *a, *b, *c; long long* stamps; };
constexpr int MAX_M = 256 * 12, MAX_N = 256 * 11 * 4, MAX_K = 64 * 64;

// ---------------------------------------------------------------- host reference

double relative_error(const WsProblem& p) {
  auto a = to_host(p.a, (size_t)p.m * p.k), b = to_host(p.b, (size_t)p.n * p.k), c = to_host(p.c, (size_t)p.m * p.n);
  std::vector<float> fa(a.size()), fb(b.size());
  for (size_t i = 0; i < a.size(); ++i) fa[i] = __bfloat162float(a[i]);
  for (size_t i = 0; i < b.size(); ++i) fb[i] = __bfloat162float(b[i]);
  double err = 0, norm = 0;
  for (int i = 0; i < p.m; ++i)
    for (int j = 0; j < p.n; ++j) {
      double want = 0;
      for (int x = 0; x < p.k; ++x) want += (double)fa[(size_t)i * p.k + x] * fb[(size_t)j * p.k + x];
      double got = __bfloat162float(c[(size_t)i * p.n + j]);
      err += (got - want) * (got - want), norm += want * want;
    }
  return std::sqrt(err / norm);
}

// ---------------------------------------------------------------- one tile shape

template <int TM, int TN, int CLUSTER, int MODE>
void check(const Buffers& x) {
  if (MODE != WS_FULL && MODE != WS_IN_ORDER) return;
  WsProblem p{3 * TM - 8, 2 * TN + 8, 5 * 64 + 16, x.a, x.b, x.c};
  for (int ctas : {2, 64})
    for (int stages : {2, 0}) {
      poison(x.c, sizeof(__nv_bfloat16) * p.m * p.n);
      WsGemm<TM, TN, CLUSTER, MODE> gemm(p, ctas, stages);
      gemm();
      CHECK(cudaDeviceSynchronize());
      double e = relative_error(p);
      require(e < 4e-3, "ws_gemm " + std::to_string(TM) + "x" + std::to_string(TN) + " cluster " + std::to_string(CLUSTER) + " " +
                            MODE_NAME[MODE] + ": relative error " + std::to_string(e));
    }
}

// CTAs -> tile rows (the columns follow): a nearly square set of tiles, as in a real product.
int tile_rows(int ctas) { return ctas == 132 ? 12 : ctas == 54 ? 6 : ctas == 33 ? 3 : ctas == 1 ? 1 : 2; }

template <int TM, int TN, int CLUSTER, int MODE>
void measure(const char* part, const Buffers& x, Setup s) {
  int rows = s.ctas == 33 && CLUSTER == 2 ? (s.ctas = 32, 4) : tile_rows(s.ctas), cols = s.ctas / rows;
  if (CLUSTER == 2 && s.ctas == 1) s.ctas = 2, rows = 2;
  WsProblem p{rows * TM, cols * s.tiles_per_cta * TN, std::max(1, s.k_steps) * 64, x.a, x.b, x.c};
  if ((double)p.m * p.k * 2 + (double)p.n * p.k * 2 > 26e6) return;  // operands must stay in L2
  WsGemm<TM, TN, CLUSTER, MODE> gemm(p, s.ctas, s.stages, s.epilogue, nullptr, rows);
  gemm.args.k_steps = s.k_steps;
  auto seconds = time_graph([&](cudaStream_t stream) { gemm(stream); }, 20, 7);
  gemm.args.stamps = x.stamps;
  for (int i = 0; i < 3; ++i) gemm();
  CHECK(cudaDeviceSynchronize());
  auto raw = to_host(x.stamps, (size_t)s.ctas * WS_STAMPS);
  auto stamp = [&](int to, int from) {
    std::vector<double> v;
    for (int i = 0; i < s.ctas; ++i) v.push_back((double)(raw[i * WS_STAMPS + to] - raw[i * WS_STAMPS + from]));
    return median(v);
  };
  Json j("ws_gemm");
  j.put("part", part).put("tile_m", TM).put("tile_n", TN).put("tile_k", 64).put("cluster", CLUSTER).put("mode", MODE_NAME[MODE]);
  j.put("stages", gemm.args.stages).put("ctas", gemm.ctas).put("tiles_per_cta", s.tiles_per_cta).put("k_steps", s.k_steps);
  j.put("epilogue", s.epilogue).put("seconds", median(seconds)).put("spread", spread(seconds));
  j.put("ready_cycles", stamp(READY, ENTRY));
  if (s.k_steps > 0) j.put("first_full_cycles", stamp(FIRST_FULL, ENTRY));
  else j.put("first_full_cycles", NAN);
  j.put("last_mma_cycles", stamp(LAST_MMA, ENTRY));
  if (s.epilogue) j.put("store_issued_cycles", stamp(STORE_ISSUED, ENTRY));
  else j.put("store_issued_cycles", NAN);
  j.put("store_done_cycles", stamp(STORE_DONE, ENTRY)).put("kernel_ns", stamp(EXIT_NS, ENTRY_NS));
  j.emit();
}

struct Variant {
  int tile_m, tile_n, cluster, mode, max_stages;
  void (*check)(const Buffers&);
  void (*measure)(const char*, const Buffers&, Setup);
};
template <int TM, int TN, int CLUSTER = 1, int MODE = WS_FULL>
Variant variant() { return {TM, TN, CLUSTER, MODE, WsShape<TM, TN>::max_stages(), check<TM, TN, CLUSTER, MODE>, measure<TM, TN, CLUSTER, MODE>}; }
template <int TM, int TN>
void add_modes(std::vector<Variant>& out) {
  out.push_back(variant<TM, TN, 1, WS_NO_MMA>());
  out.push_back(variant<TM, TN, 1, WS_NO_COPY>());
  out.push_back(variant<TM, TN, 1, WS_EMPTY>());
  out.push_back(variant<TM, TN, 1, WS_IN_ORDER>());
}

// ---------------------------------------------------------------- parts

int main(int argc, char** argv) {
  Args args(argc, argv);
  const std::string part = args.get("--part", "slope");
  const int sms = sm_count();
  Buffers x{device_alloc<__nv_bfloat16>((size_t)MAX_M * MAX_K), device_alloc<__nv_bfloat16>((size_t)MAX_N * MAX_K),
            device_alloc<__nv_bfloat16>((size_t)MAX_M * MAX_N), device_alloc<long long>(sms * WS_STAMPS)};
  fill_normal_bf16(x.a, (size_t)MAX_M * MAX_K, 1);
  fill_normal_bf16(x.b, (size_t)MAX_N * MAX_K, 2);
  std::vector<Variant> plain = {
      variant<64, 8>(),   variant<64, 16>(),  variant<64, 32>(),      variant<64, 64>(),       variant<64, 96>(),
      variant<64, 128>(), variant<64, 160>(), variant<64, 192>(),     variant<64, 256>(),      variant<128, 64>(),
      variant<128, 128>(), variant<128, 192>(), variant<128, 256>(),  variant<128, 128, 2>(),  variant<128, 256, 2>(),
      variant<64, 256, 2>(), variant<256, 64>(), variant<256, 128>()};
  std::vector<Variant> modes;
  add_modes<64, 8>(modes);
  add_modes<64, 64>(modes);
  add_modes<64, 128>(modes);
  add_modes<128, 64>(modes);
  add_modes<128, 128>(modes);
  add_modes<256, 64>(modes);
  add_modes<128, 256>(modes);
  auto wide = [](const Variant& v) { return v.tile_n == 64 || v.tile_n == 128 || v.tile_n == 256; };

  if (part == "slope")
    for (const Variant& v : plain) {
      v.check(x);
      for (int ctas : {1, 33, 54, sms}) {
        for (int k : {0, 1, 2, 4, 7, 13, 25, 49}) v.measure("slope", x, {ctas, 1, k, 0, 1});
        for (int k : {0, 1, 7}) v.measure("slope", x, {ctas, 1, k, 0, 0});
      }
    }
  if (part == "stages")
    for (const Variant& v : plain)
      if (wide(v) && v.cluster == 1)
        for (int ctas : {1, sms})
          for (int stages : {2, 3, 4, 6, 8})
            if (stages <= v.max_stages)
              for (int k : {7, 49}) v.measure("stages", x, {ctas, 1, k, stages, 1});
  if (part == "ring")
    for (const Variant& v : modes) {
      v.check(x);
      for (int ctas : {1, sms})
        for (int k : {7, 25, 49}) v.measure("ring", x, {ctas, 1, k, 0, 1});
    }
  if (part == "persistent")
    for (const Variant& v : plain)
      if (wide(v))
        for (int ctas : {1, 33, sms})
          for (int epilogue : {1, 0})
            for (int k : {4, 16})
              for (int tiles : {1, 2, 3, 4}) v.measure("persistent", x, {ctas, tiles, k, 0, epilogue});
  return 0;
}
