/* row_main.cuh: the program around a workload: data, check against float64, timing, one JSON line a point.
   Data       normal numbers; with --check rows of mean 1000 and rows of equal numbers besides
   Error      |result - reference| / (tolerance (|reference| + size)), at most 1; size: root mean square of the row, or the mean
              size of its terms where they cancel; the reference is a float64 loop over the same rounded inputs. tolerance 2e-5,
              5e-4 where the mean is 1000; bf16: 2^-8 more. W::EXACT: every result is the same
   Time       the same launch again and again on the same buffers, in a graph of at least 2 ms, after warm_up_clock
   Options    --rows R --cols N,N --dtype f32|bf16|both --variant all|cluster|staged|reread --protocol all|published|fast
              --cluster 2,4,8,16 --repeats n; --load, --block, --keep, --stages, --units, --one-shot, --load-hint, --store-hint
              override the rule; --tune 1: a grid of them; --check 1: small and odd shapes, untimed (--brief 1: the rule's
              launches alone); --once 1: one launch, untimed, for a profiler; --same n: launches whose bits are compared;
              --plant-race 1: a missing barrier, for racecheck; others, and values out of range, are refused (options.cuh) */
#pragma once
#include "options.cuh"
#include "row_launch.cuh"

namespace ts {

enum Kind { NORMAL, LARGE_MEAN, EQUAL };
using Row = std::vector<std::vector<double>>;  // one vector an input or output

template <class W, class T> __global__ void fill_input(T* p, int input, long long rows, int cols, bool mixed) {
  const size_t n = (size_t)rows * cols;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    const int kind = mixed && input < W::INPUTS ? (int)(i / cols % 4) : 0;
    store_as(p + i, W::sample(input, normal_at(i, 17 + input), kind < 2 ? NORMAL : kind == 2 ? LARGE_MEAN : EQUAL));
  }
}

template <class W, class T> struct Bench {
  using Out = typename W::template Out<T>;
  RowArgs<W, T> args{};
  int rows, cols, repeats;
  bool mixed;
  int checked_rows = 6;
  bool quiet = false;  // says nothing about what is not legal

  Bench(int rows, int most_cols, int repeats, bool mixed) : rows(rows), cols(most_cols), repeats(repeats), mixed(mixed) {
    const size_t n = (size_t)rows * most_cols;
    for (int k = 0; k < W::INPUTS + W::SHARED; ++k) args.in[k] = device_alloc<T>((k < W::INPUTS ? n : most_cols) + 16);
    for (int k = 0; k < W::OUTPUTS; ++k) args.out[k] = device_alloc<Out>(n + 16);
    args.scalar = device_alloc<float>(rows);
    shape(most_cols);
  }
  void shape(int columns) {
    cols = columns;
    for (int k = 0; k < W::INPUTS + W::SHARED; ++k)
      fill_input<W, T><<<1056, 256>>>((T*)args.in[k], k, k < W::INPUTS ? rows : 1, cols, mixed);
    CHECK_LAUNCH();
  }
  ~Bench() {
    for (const T* p : args.in) CHECK(cudaFree((void*)p));
    for (Out* p : args.out) CHECK(cudaFree(p));
    CHECK(cudaFree(args.scalar));
  }
  void poison_outputs() {
    for (Out* p : args.out) poison(p, (size_t)rows * cols * sizeof(Out));
    poison(args.scalar, rows * sizeof(float));
  }
  size_t compulsory() const {
    const size_t element = W::INPUTS * sizeof(T) + W::OUTPUTS * sizeof(Out), row = W::ROW_SCALAR ? sizeof(float) : 0;
    return rows * (cols * element + row);
  }

  static double scaled(double got, double want, double tolerance, double size) {
    const double error = std::fabs(got - want), allowed = tolerance * (std::fabs(want) + size);
    return error == 0 ? 0 : std::isfinite(error) ? error / std::max(allowed, 1e-37) : INFINITY;
  }
  double row_error(int row) const {
    Row in, out(W::OUTPUTS, std::vector<double>(cols));
    for (int k = 0; k < W::INPUTS + W::SHARED; ++k) {
      auto words = to_host(args.in[k] + (k < W::INPUTS ? (size_t)row * cols : 0), cols);
      in.emplace_back();
      for (T v : words) in.back().push_back((double)(float)v);
    }
    double scalar = 0, size = 0, worst = 0;
    W::reference(in, out, scalar, size);
    const bool large = mixed && row % 4 == 2;
    const double rounding = sizeof(T) == 2 ? 0.00390625 : 0, tolerance = W::EXACT ? 1e-9 : (large ? 5e-4 : 2e-5) + rounding;
    for (int k = 0; k < W::OUTPUTS; ++k) {
      double squares = 0;
      for (double v : out[k]) squares += v * v / cols;
      const double typical = std::max(size, std::sqrt(squares));
      const auto got = to_host(args.out[k] + (size_t)row * cols, cols);
      for (int i = 0; i < cols; ++i) worst = std::max(worst, scaled((float)got[i], out[k][i], tolerance, typical));
    }
    if (W::ROW_SCALAR) worst = std::max(worst, scaled(to_host(args.scalar + row, 1)[0], scalar, 1e-6, 0));
    return worst;
  }
  double error() const {
    double worst = 0;
    const int step = mixed ? 1 : std::max(1, rows / checked_rows);
    for (int row = 0; row < rows; row += step) worst = std::max(worst, row_error(row));
    return std::max(worst, row_error(rows - 1));
  }
  unsigned long long sum_of_outputs() const {
    unsigned long long sum = W::ROW_SCALAR ? checksum(args.scalar, rows * sizeof(float)) : 0;
    for (Out* p : args.out) sum = sum * 31 + checksum(p, (size_t)rows * cols * sizeof(Out));
    return sum;
  }

  // Runs one configuration: check, then time unless told otherwise. fatal: a wrong result ends the run.
  void run(const RowConfig& config, bool timed, bool fatal, int same_repeats) {
    const RowPlan<W, T> p = plan<W, T>(config, rows, cols);
    Json j(W::NAME);
    j.put("variant", VARIANTS[config.variant]).put("protocol", PROTOCOLS[p.config.protocol]).put("cluster", p.config.cluster);
    j.put("dtype", type_name(T())).put("rows", rows).put("cols", cols);
    if (!p.reason.empty() && quiet) return;
    if (!p.reason.empty()) return (void)j.put("part", "skipped").put("reason", p.reason).emit();
    const RowLaunch<W, T> launch(p, args, rows, cols);
    poison_outputs();
    launch();
    const double worst = error();
    const auto first = sum_of_outputs();
    int same = 1;
    for (; same < same_repeats; ++same) {
      launch();
      if (sum_of_outputs() != first) break;
    }
    j.put("path", p.aligned ? "aligned" : "slow").put("load", config.variant == REREAD ? "direct" : LOADS[p.config.load]);
    j.put("block", p.config.block).put("keep", p.config.keep);
    j.put("stages", p.config.stages).put("smem_bytes", p.smem).put("registers", p.registers).put("ctas_per_sm", p.ctas_per_sm);
    j.put("active_clusters", p.active).put("grid", p.units * p.config.cluster).put("one_shot", (int)p.config.one_shot);
    j.put("exchanges", p.config.cluster > 1 ? 1 : 0).put("barriers", p.config.protocol == PUBLISHED ? 2 : 0);
    j.put("load_hint", p.config.load_hint).put("store_hint", p.config.store_hint);
    if (timed) {
      const double once = time_launches([&] { launch(); }, 1, 3)[1];
      const int nodes = (int)std::min(2000.0, std::ceil(2e-3 / once));
      const auto seconds = time_graph([&](cudaStream_t s) { launch(s); }, nodes, repeats);
      j.put("seconds", median(seconds)).put("spread", spread(seconds)).put("repeats", repeats);
      j.put("bytes_per_s", compulsory() / median(seconds));
    }
    j.put("compulsory_bytes", compulsory()).put("max_error", worst).put("bitwise_repeats", same).emit();
    if (fatal) require(worst <= 1 && same == same_repeats, std::string(W::NAME) + ": wrong or not repeatable");
  }
};

inline std::vector<RowConfig> variants(const Args& args) {
  const std::string which = args.get("--variant", "all"), protocol = args.get("--protocol", "all");
  std::vector<RowConfig> out;
  RowConfig base;
  base.block = args.get("--block", 0), base.keep = args.get("--keep", -1), base.stages = args.get("--stages", 0);
  base.units = args.get("--units", 0);
  base.one_shot = args.get("--one-shot", -1), base.planted = args.get("--plant-race", 0);
  base.load = args.get("--load", -1);
  base.load_hint = args.get("--load-hint", (int)LOAD_EVICT_FIRST);
  base.store_hint = args.get("--store-hint", (int)STORE_STREAM);
  for (int v : {CLUSTER, STAGED, REREAD}) {
    if (which != "all" && which != VARIANTS[v]) continue;
    base.variant = v;
    if (v != CLUSTER) out.push_back(base);
    else
      for (int cluster : args.list("--cluster", "2,4,8,16"))
        for (int p : {PUBLISHED, FAST}) {
          if (protocol != "all" && protocol != PROTOCOLS[p]) continue;
          out.push_back(base);
          out.back().cluster = cluster, out.back().protocol = p;
        }
  }
  return out;
}

// Around what the rule chooses: loads, vectors kept, slots, one row a CTA, cache hints.
inline std::vector<RowConfig> tuned(const RowConfig& c, const Args& args) {
  std::vector<RowConfig> out;
  for (int hints : args.list("--hints", "0,3")) {
    RowConfig one = c;
    one.load_hint = hints & 1, one.store_hint = hints >> 1;
    if (c.variant == REREAD) {
      for (int block : {256, 512}) out.push_back(one), out.back().block = block;
      continue;
    }
    for (int load : {BULK, DIRECT})
      for (int keep : args.list("--keeps", "0,1,2,4,8,16"))
        for (int block : args.list("--blocks", "0"))
          for (int stages : args.list("--slots", "1,2,3,4"))
            for (int one_shot : {0, 1}) {
              if ((one_shot || load == DIRECT) && stages > 1) continue;
              one.load = load, one.keep = keep, one.block = block, one.stages = stages, one.one_shot = one_shot;
              out.push_back(one);
            }
  }
  return out;
}

template <class W, class T> void row_bench(const Args& args, int default_rows) {
  const int rows = args.get("--rows", default_rows), repeats = args.get("--repeats", 7), same = args.get("--same", 2);
  const bool once = args.get("--once", 0), tune = args.get("--tune", 0);
  const auto columns = args.list("--cols", "4096,8192,16384,32768,65536");
  Bench<W, T> bench(rows, *std::max_element(columns.begin(), columns.end()), repeats, false);
  if (tune) bench.checked_rows = 1, bench.quiet = true;
  for (int cols : columns) {
    bench.shape(cols);
    for (const RowConfig& c : variants(args))
      for (const RowConfig& each : tune ? tuned(c, args) : std::vector<RowConfig>{c})
        bench.run(each, !once, true, once ? 1 : same);
  }
}

// Every variant over odd shapes; two rows at a time, so that slots and mailboxes are used again.
template <class W, class T> void row_check(const Args& args) {
  const int rows = args.get("--rows", 9);
  const bool brief = args.get("--brief", 0);
  for (int cols : args.list("--cols", "1,7,33,64,250,1000,1001,4104,20000,40000")) {
    Bench<W, T> bench(rows, cols, 0, true);
    for (RowConfig c : variants(args)) {
      if (c.units == 0) c.units = 2;
      bench.run(c, false, !c.planted, args.get("--same", 3));
      if (c.variant == REREAD || brief) continue;
      for (int load : {BULK, DIRECT, SPLIT})
        for (int keep : {0, 4}) {
          c.load = load, c.keep = keep, c.stages = 0, c.one_shot = load == DIRECT;
          bench.run(c, false, !c.planted, args.get("--same", 3));
        }
    }
  }
}

inline std::vector<Option> row_options() {
  return {number("--rows", 1, MOST_INT), numbers("--cols", 1, MOST_INT), word("--dtype", "f32 bf16 both"),
          word("--variant", "all cluster staged reread"), word("--protocol", "all published fast"),
          numbers("--cluster", 1, MOST_CLUSTER), number("--repeats", 1, 1000000), number("--same", 1, 1000000),
          number("--load", -1, ELEMENTS), number("--block", 0, MOST_BLOCK), number("--keep", -1, 16),
          number("--stages", 0, MOST_STAGES), number("--units", 0, MOST_INT), number("--one-shot", -1, 1),
          number("--load-hint", 0, LOAD_EVICT_FIRST), number("--store-hint", 0, STORE_STREAM), flag("--tune"), flag("--check"),
          flag("--brief"), flag("--once"), flag("--plant-race"), numbers("--hints", 0, 3), numbers("--keeps", 0, 16),
          numbers("--blocks", 0, MOST_BLOCK), numbers("--slots", 0, MOST_STAGES)};
}

template <class W> int row_main(int argc, char** argv, int default_rows) {
  const Args args(argc, argv);
  check_options(W::NAME, args.words, row_options());
  const std::string dtype = args.get("--dtype", "f32");
  const bool check = args.get("--check", 0);
  if (capability() < 90) return skipped(W::NAME, "no bulk copies below compute capability 9.0"), 0;
  if (!check) warm_up_clock(0.3);
  for (const char* type : {"f32", "bf16"}) {
    if (dtype != "both" && dtype != type) continue;
    const bool full = std::string(type) == "f32";
    if (check) full ? row_check<W, float>(args) : row_check<W, bf16>(args);
    else full ? row_bench<W, float>(args, default_rows) : row_bench<W, bf16>(args, default_rows);
  }
  return 0;
}

}  // namespace ts
