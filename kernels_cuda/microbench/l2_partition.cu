/* l2_partition: is the L2 split in a near and a far part for each SM, which SM is on which side, and what does far cost?
   Shapes     region: 16 MiB of random words in 128-byte lines; sample: 512 of them, drawn at random
   Launch     grid SMs, one CTA an SM (forced by shared memory); latency: one thread an SM; bandwidth: block 1024
   On chip    dynamic smem reserved; bandwidth: line numbers of the SM's slice in it; registers as printed by ptxas (record .toml)
   Operations load               ld.relaxed.gpu (past L1), after the same thread has just loaded the line
              load_after_atomic  the same load, after an atomic of the same thread on the line: an L2 that keeps a copy of far lines
                                 in the near part has lost the copy, and the load goes to where the line is at home
              atomic             atom.global.add of 0, which is done where the line is at home
   Parts      split      one line an operation: latency of every (SM, sampled line), median over repeats, minus mean of its SM and
                         its line; the signs of the leading singular vectors put SMs and lines on two sides, equal = near
              sm         one line an SM, for the operation with the largest separation: its side, near_cycles, far_cycles
              classify   every line of the region by one SM of each side, two clusters of the difference of their latencies
              bandwidth  all SMs of a side read lines of their own side (near) or of the other (far), a slice of the list an SM:
                         state = repeated: pass after pass, copies allowed; after_write: one pass behind an atomic on every
                         sector of every line, a few thousand cycles that contain one latency
   Traffic    L2 hits only
   Work       none                                            Bound  latency of L2; L2 reads
   Columns    separation: (mean far - mean near) / standard deviation within the groups, of the centred latencies. Noise alone
              gives about 0.2, an L2 in one piece a little more (an SM is closer to some slices than to others), two
              partitions several; explained_share: share of the centred variance in the leading vector. Cycles contain
              about 10 of the clock reads
   Checked    the words that loads and atomics return, the region unchanged at the end, latencies above those of L1
   Model      l2.partitions, cost/cache (crossings)
   Reference  Jin et al., Uncovering Real GPU NoC Characteristics, MICRO 2024
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v l2_partition.cu -o l2_partition
   Run        ./l2_partition --repeats 9                       one JSON line a point */
#include "../common/memory.cuh"
using namespace ts;

constexpr int LINE_WORDS = 32, LINE_VECTORS = 8, THREADS = 1024, UNROLL = 4, SAMPLE = 512, CLASSIFY_REPEATS = 7;
enum Op { LOAD, LOAD_AFTER_ATOMIC, ATOMIC };
const char* const OP_NAME[] = {"load", "load_after_atomic", "atomic"};

__device__ __forceinline__ uint32_t load_word(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");  // past L1, and two are never merged to one
  return v;
}
__device__ __forceinline__ uint32_t add_word(uint32_t* p, uint32_t zero) {
  uint32_t v;
  asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(v) : "l"(p), "r"(zero) : "memory");
  return v;
}

__global__ void list_sms(uint32_t* ids) { ids[blockIdx.x] = smid(); }

// row_of_sm[id]: the row of `out` an SM fills, -1: it does nothing. Thread 0 alone works; zero = 0.
template <int OP>
__global__ void probe_lines(uint32_t* region, const uint32_t* lines, int count, int rows, const int* row_of_sm, uint32_t zero,
                            int* out, u64* total) {
  __shared__ volatile uint32_t slot;
  const int row = row_of_sm[smid()];
  if (row < 0 || threadIdx.x) return;
  u64 sum = 0;
  int at = (int)((long long)count * row / rows);  // SMs keep apart from each other
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    uint32_t* p = region + (size_t)lines[at] * LINE_WORDS;
    slot = OP == LOAD ? load_word(p) : add_word(p, zero);  // the store waits for the value
    long long t = cycles();
    uint32_t v = OP == ATOMIC ? add_word(p, zero) : load_word(p);
    slot = v;
    t = cycles() - t;
    sum += v;
    out[(size_t)row * count + at] = (int)min(t, 1000000ll);  // and the clock stays a 64-bit one, which is read faster
    if (++at == count) at = 0;
  }
  atomicAdd(total, sum);
}
using Probe = void (*)(uint32_t*, const uint32_t*, int, int, const int*, uint32_t, int*, u64*);
const Probe PROBES[] = {probe_lines<LOAD>, probe_lines<LOAD_AFTER_ATOMIC>, probe_lines<ATOMIC>};

__global__ void touch_sectors(uint32_t* region, size_t sectors, uint32_t zero) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < sectors; i += (size_t)gridDim.x * blockDim.x)
    asm volatile("red.global.add.u32 [%0], %1;" ::"l"(region + i * 8), "r"(zero) : "memory");
}

struct Sides { const uint32_t *list_0, *list_1; const int *side_of_sm, *rank_of_sm; int far, lines_per_sm; };

__global__ void __launch_bounds__(THREADS, 1) read_sides(const uint4* region, size_t pages /* of 2 MiB */, Sides sides,
                                                         uint32_t warm, uint32_t passes, unsigned* arrived, Stamp* stamps,
                                                         u64* total) {
  extern __shared__ uint32_t mine[];
  const int id = smid();
  const uint32_t* list = (sides.side_of_sm[id] ^ sides.far) ? sides.list_1 : sides.list_0;
  for (int i = threadIdx.x; i < sides.lines_per_sm; i += THREADS) mine[i] = list[(size_t)sides.rank_of_sm[id] * sides.lines_per_sm + i];
  for (size_t i = threadIdx.x; i < pages; i += THREADS)  // translations; an unused load would be removed
    asm volatile("prefetch.global.L2 [%0];" ::"l"(region + (i << 17)) : "memory");
  u64 sum = 0;
  Stamp s{};
#pragma unroll 1
  for (int timed = 0; timed < 2; ++timed) {
    __syncthreads();
    if (timed) {
      grid_barrier(arrived);
      s = stamp_begin();
    }
    SliceWalk walk(0, 1, sides.lines_per_sm * LINE_VECTORS, false);
    const uint32_t count = (timed ? passes : warm) * sides.lines_per_sm * LINE_VECTORS;
    auto load = [&] {
      uint32_t v = walk.next();
      return load_l2(region + (size_t)mine[v / LINE_VECTORS] * LINE_VECTORS + v % LINE_VECTORS);
    };
    uint32_t k = threadIdx.x;
    for (; k + (UNROLL - 1) * THREADS < count; k += UNROLL * THREADS) {
      uint4 v[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) v[u] = load();
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) sum += sum_words(v[u]);
    }
    for (; k < count; k += THREADS) sum += sum_words(load());
  }
  stamp_end(s, stamps);
  block_add(total, sum);
}

// ---------------------------------------------------------------- host: two sides out of a matrix, two clusters out of numbers

struct Split {
  std::vector<int> row_side, col_side;  // near: equal
  std::vector<double> row_weight;       // component of the leading vector
  double separation, explained;
};
double separation_of(const std::vector<double>& low, const std::vector<double>& high) {
  double mean[2] = {0, 0}, square = 0;
  const std::vector<double>* groups[2] = {&low, &high};
  for (int g : {0, 1}) {
    for (double x : *groups[g]) mean[g] += x / groups[g]->size();
    for (double x : *groups[g]) square += (x - mean[g]) * (x - mean[g]);
  }
  return low.empty() || high.empty() ? 0 : (mean[1] - mean[0]) / std::sqrt(std::max(1e-12, square / (low.size() + high.size())));
}
Split split_of(const std::vector<double>& m, int rows, int cols) {
  std::vector<double> r = m, row_mean(rows, 0), col_mean(cols, 0), u(rows), v(cols);
  double mean = 0, square = 0;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) {
      double x = m[(size_t)i * cols + j];
      row_mean[i] += x / cols, col_mean[j] += x / rows, mean += x / rows / cols;
    }
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) {
      double& x = r[(size_t)i * cols + j];
      x += mean - row_mean[i] - col_mean[j];
      square += x * x;
    }
  for (int i = 0; i < rows; ++i) u[i] = hash32(i) / 4294967296.0 - 0.5;
  double sigma = 0;
  for (int step = 0; step < 100; ++step) {  // power iteration: v = R' u, u = R v / |R v|
    std::fill(v.begin(), v.end(), 0.0);
    double norm = 0, length = 0;
    for (double x : u) length += x * x;
    for (double& x : u) x /= std::sqrt(std::max(1e-30, length));
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) v[j] += r[(size_t)i * cols + j] * u[i];
    for (double x : v) norm += x * x;
    sigma = std::sqrt(norm);
    if (step == 99) break;
    std::fill(u.begin(), u.end(), 0.0);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) u[i] += r[(size_t)i * cols + j] * v[j];
  }
  Split s{std::vector<int>(rows), std::vector<int>(cols), u, 0, sigma * sigma / std::max(1e-12, square)};
  for (int i = 0; i < rows; ++i) s.row_side[i] = u[i] > 0;
  for (int j = 0; j < cols; ++j) s.col_side[j] = v[j] < 0;  // u * v < 0: less than expected, near
  std::vector<double> near, far;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) (s.row_side[i] == s.col_side[j] ? near : far).push_back(r[(size_t)i * cols + j]);
  s.separation = separation_of(near, far);
  return s;
}
double two_means_threshold(const std::vector<double>& x) {
  double low = quantile(x, 0.05), high = quantile(x, 0.95);
  for (int step = 0; step < 50; ++step) {
    double sum[2] = {0, 0}, n[2] = {0, 0};
    for (double v : x) {
      bool up = v > (low + high) / 2;
      sum[up] += v, n[up] += 1;
    }
    if (n[0] == 0 || n[1] == 0) break;
    low = sum[0] / n[0], high = sum[1] / n[1];
  }
  return (low + high) / 2;
}

// ---------------------------------------------------------------- host: the parts

struct Bench {
  int sms, lines, repeats;
  size_t smem;
  uint32_t *region, *list;
  std::vector<uint32_t> words, ids;  // contents of the region; SM ids in order of CTAs
  int *latencies, *row_of_sm;
  u64* total;
  std::vector<uint32_t> sample;

  // Latencies of `rows` (SM ids) times `chosen` lines by one operation, row-major.
  std::vector<int> probe(int op, const std::vector<uint32_t>& rows, const std::vector<uint32_t>& chosen) const {
    std::vector<int> row(4096, -1);
    u64 expected = 0;
    for (size_t i = 0; i < rows.size(); ++i) row[rows[i]] = (int)i;
    for (uint32_t l : chosen) expected += (u64)words[(size_t)l * LINE_WORDS] * rows.size();
    CHECK(cudaMemcpy(row_of_sm, row.data(), row.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(list, chosen.data(), chosen.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(total, 0, 8));
    PROBES[op]<<<sms, 32, smem>>>(region, list, (int)chosen.size(), (int)rows.size(), row_of_sm, 0, latencies, total);
    CHECK_LAUNCH();
    require(to_host(total, 1)[0] == expected, std::string("l2_partition: words, ") + OP_NAME[op]);
    return to_host(latencies, rows.size() * chosen.size());
  }
};

Bench make_bench(size_t region_bytes, int repeats) {
  Bench b{sm_count(), (int)(region_bytes / 128), repeats, one_cta_smem()};
  b.region = device_alloc<uint32_t>(region_bytes / 4);
  b.list = device_alloc<uint32_t>(b.lines);
  b.latencies = device_alloc<int>(std::max((size_t)b.sms * SAMPLE, (size_t)2 * b.lines));
  b.row_of_sm = device_alloc<int>(4096);
  b.total = device_alloc<u64>(1);
  fill_words(b.region, region_bytes, 17);
  b.words = to_host(b.region, region_bytes / 4);
  allow_smem(list_sms, b.smem);
  allow_smem(read_sides, b.smem);
  for (Probe p : PROBES) allow_smem(p, b.smem);
  auto* ids = device_alloc<uint32_t>(b.sms);
  list_sms<<<b.sms, 32, b.smem>>>(ids);
  CHECK_LAUNCH();
  b.ids = to_host(ids, b.sms);
  CHECK(cudaFree(ids));
  std::vector<uint32_t> all(b.lines);
  for (int i = 0; i < b.lines; ++i) all[i] = i;
  for (int i = 0; i < SAMPLE; ++i) std::swap(all[i], all[i + hash32(i + 77) % (b.lines - i)]);
  b.sample.assign(all.begin(), all.begin() + SAMPLE);
  return b;
}

struct Sampled {  // one operation
  Split split;
  std::vector<std::vector<int>> runs;  // a matrix (SMs, SAMPLE) a repeat
  // Median over the near or far pairs of the SMs [from, to), one value a repeat.
  std::vector<double> medians(int from, int to, bool near) const {
    std::vector<double> out;
    for (const auto& run : runs) {
      std::vector<int> x;
      for (int i = from; i < to; ++i)
        for (int j = 0; j < SAMPLE; ++j)
          if ((split.row_side[i] == split.col_side[j]) == near) x.push_back(run[(size_t)i * SAMPLE + j]);
      out.push_back(median(x));
    }
    return out;
  }
};

Sampled sample_latencies(const Bench& b, int op) {
  Sampled s;
  b.probe(op, b.ids, b.sample);
  for (int r = 0; r < b.repeats; ++r) s.runs.push_back(b.probe(op, b.ids, b.sample));
  std::vector<double> middle((size_t)b.sms * SAMPLE);
  for (size_t i = 0; i < middle.size(); ++i) {
    std::vector<int> x;
    for (const auto& run : s.runs) x.push_back(run[i]);
    middle[i] = median(x);
  }
  s.split = split_of(middle, b.sms, SAMPLE);
  int rows1 = 0, cols1 = 0;
  for (int x : s.split.row_side) rows1 += x;
  for (int x : s.split.col_side) cols1 += x;
  const double near_pairs = (double)rows1 * cols1 + (double)(b.sms - rows1) * (SAMPLE - cols1);
  const auto near = s.medians(0, b.sms, true);
  require(median(near) > 100, "l2_partition: latency of L2, not of L1 or of nothing");
  Json j("l2_partition");
  j.put("part", "split").put("operation", OP_NAME[op]).put("near_cycles", median(near));
  j.put("far_cycles", median(s.medians(0, b.sms, false))).put("near_share", near_pairs / b.sms / SAMPLE);
  j.put("separation", s.split.separation).put("explained_share", s.split.explained).put("sms_side_0", b.sms - rows1);
  j.put("sms_side_1", rows1).put("lines_side_0_share", 1 - (double)cols1 / SAMPLE).put("lines", SAMPLE);
  j.put("spread", spread(near)).put("repeats", b.repeats).emit();
  return s;
}

void print_sms(const Bench& b, int op, const Sampled& s) {
  for (int i = 0; i < b.sms; ++i) {
    const auto near = s.medians(i, i + 1, true);
    Json j("l2_partition");
    j.put("part", "sm").put("operation", OP_NAME[op]).put("sm", (int)b.ids[i]).put("side", s.split.row_side[i]);
    j.put("near_cycles", median(near)).put("far_cycles", median(s.medians(i, i + 1, false)));
    j.put("spread", spread(near)).put("repeats", b.repeats).emit();
  }
}

// Lines of side 0 and of side 1, by the SM of each side that the leading vector is surest of; both empty if a side has no SM.
std::vector<std::vector<uint32_t>> classify(const Bench& b, int op, const Split& s) {
  std::vector<std::vector<uint32_t>> of_side(2);
  int judge[2] = {-1, -1};
  for (int i = 0; i < b.sms; ++i) {
    int& best = judge[s.row_side[i]];
    if (best < 0 || std::fabs(s.row_weight[i]) > std::fabs(s.row_weight[best])) best = i;
  }
  if (judge[0] < 0 || judge[1] < 0) return of_side;
  std::vector<uint32_t> all(b.lines);
  for (int l = 0; l < b.lines; ++l) all[l] = l;
  std::vector<std::vector<double>> runs(CLASSIFY_REPEATS, std::vector<double>(b.lines));  // side 0 minus side 1
  for (auto& d : runs) {
    auto x = b.probe(op, {b.ids[judge[0]], b.ids[judge[1]]}, all);
    for (int l = 0; l < b.lines; ++l) d[l] = x[l] - x[b.lines + l];
  }
  std::vector<double> middle(b.lines), separations;
  for (int l = 0; l < b.lines; ++l) {
    std::vector<double> x;
    for (const auto& d : runs) x.push_back(d[l]);
    middle[l] = median(x);
  }
  auto divided = [](const std::vector<double>& d) {
    const double at = two_means_threshold(d);
    std::vector<double> low, high;
    for (double x : d) (x > at ? high : low).push_back(x);
    return separation_of(low, high);
  };
  for (const auto& d : runs) separations.push_back(divided(d));
  const double threshold = two_means_threshold(middle);
  for (int l = 0; l < b.lines; ++l) of_side[middle[l] > threshold].push_back(l);  // slower from side 0: side 1
  int agree = 0;
  for (int j = 0; j < SAMPLE; ++j) agree += (middle[b.sample[j]] > threshold) == (s.col_side[j] == 1);
  Json c("l2_partition");
  c.put("part", "classify").put("operation", OP_NAME[op]).put("lines", b.lines);
  c.put("lines_side_0_share", (double)of_side[0].size() / b.lines).put("separation", divided(middle));
  c.put("agreement_with_sample", (double)agree / SAMPLE).put("threshold_cycles", threshold);
  c.put("spread", spread(separations)).put("repeats", CLASSIFY_REPEATS).emit();
  return of_side;
}

template <class T>
T* copy_of(const std::vector<T>& v) {
  T* p = device_alloc<T>(std::max<size_t>(1, v.size()));
  CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}

void bandwidth(const Bench& b, const Split& s, const std::vector<std::vector<uint32_t>>& of_side) {
  std::vector<int> side_of_sm(4096, 0), rank_of_sm(4096, 0);
  int members[2] = {0, 0};
  for (int i = 0; i < b.sms; ++i) {
    side_of_sm[b.ids[i]] = s.row_side[i];
    rank_of_sm[b.ids[i]] = members[s.row_side[i]]++;
  }
  const int most_members = std::max(members[0], members[1]);
  const int per_sm = (int)(std::min(of_side[0].size(), of_side[1].size()) / most_members);  // lines
  const size_t set_bytes = (size_t)per_sm * most_members * 128, region_bytes = (size_t)b.lines * 128;
  if (set_bytes < (1 << 20) || (size_t)per_sm * 4 > b.smem) {
    Json("l2_partition").put("part", "skipped").put("reason", "the two sides are too unequal for a bandwidth").emit();
    return;
  }
  Sides sides{copy_of(of_side[0]), copy_of(of_side[1]), copy_of(side_of_sm), copy_of(rank_of_sm), 0, per_sm};
  auto* arrived = device_alloc<unsigned>(1);
  auto* stamps = device_alloc<Stamp>(b.sms);
  double clock_hz = NAN;
  for (bool repeated : {true, false})
    for (int far : {0, 1}) {
      const uint32_t warm = repeated, passes = repeated ? 300 : 1;
      sides.far = far;
      u64 once = 0;
      for (int x : {0, 1})  // SMs of side x read the first members[x] * per_sm lines of a list
        for (size_t l = 0; l < (size_t)members[x] * per_sm; ++l)
          for (int w = 0; w < LINE_WORDS; ++w) once += b.words[(size_t)of_side[x ^ far][l] * LINE_WORDS + w];
      std::vector<double> per_cycle, clock;
      for (int r = 0; r < b.repeats + 1; ++r) {
        touch_sectors<<<1056, 256>>>(b.region, region_bytes / 32, 0);
        CHECK(cudaMemset(arrived, 0, sizeof(unsigned)));
        CHECK(cudaMemset(b.total, 0, 8));
        read_sides<<<b.sms, THREADS, b.smem>>>((const uint4*)b.region, region_bytes >> 21, sides, warm, passes, arrived, stamps, b.total);
        CHECK_LAUNCH();
        require(to_host(b.total, 1)[0] == once * (warm + passes), "l2_partition: sum of a side");
        Rate x = rate_of(to_host(stamps, b.sms), (double)passes * per_sm * 128);
        if (r == 0) continue;
        per_cycle.push_back(x.per_cycle);
        clock.push_back(x.clock_hz);
      }
      if (repeated) clock_hz = median(clock);  // one pass is too short for the global timer
      Json j("l2_partition");
      j.put("part", "bandwidth").put("reads", far ? "far" : "near").put("state", repeated ? "repeated" : "after_write");
      j.put("set_bytes", set_bytes).put("passes", (int)passes).put("bytes_per_cycle", median(per_cycle));
      j.put("bytes_per_cycle_per_sm", median(per_cycle) / b.sms).put("bytes_per_s", median(per_cycle) * clock_hz);
      j.put("clock_hz", clock_hz).put("spread", spread(per_cycle)).put("repeats", b.repeats).emit();
    }
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const size_t region_bytes = (size_t)args.get("--region_mib", 16) << 20;
  const Bench b = make_bench(region_bytes, args.get("--repeats", 9));
  const u64 whole = checksum(b.region, region_bytes);
  warm_up_clock(0.1);
  require_l1_bypassed(b.region, "l2_partition");
  std::vector<Sampled> sampled;
  int best = 0;
  for (int op : {LOAD, LOAD_AFTER_ATOMIC, ATOMIC}) {
    sampled.push_back(sample_latencies(b, op));
    if (sampled[op].split.separation > sampled[best].split.separation) best = op;
  }
  print_sms(b, best, sampled[best]);
  const Split& split = sampled[best].split;
  const auto of_side = classify(b, best, split);
  if (of_side[0].empty() && of_side[1].empty())
    Json("l2_partition").put("part", "skipped").put("reason", "all SMs on one side").emit();
  else
    bandwidth(b, split, of_side);
  require(checksum(b.region, region_bytes) == whole, "l2_partition: region unchanged");
  return 0;
}
