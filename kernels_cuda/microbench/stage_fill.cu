/* stage_fill: cycles from issue to completion of one stage of GEMM operands in shared memory, and the period of a ring.
   Shapes     matrix of bf16 (rows, cols), row pitch `pitch` elements; a stage is `stage_rows` rows of 64 elements (128 B a
              row), loaded as boxes of box_rows x 64; a CTA walks along a row (k) stage after stage, as a GEMM loop does
   Launch     grid = active SMs (one CTA an SM, forced by shared memory), block 256; `share` neighbours read the same stages
   On chip    stages * stage bytes dynamic (at least 120 KiB); registers as printed by ptxas (record .toml)
   Traffic    stage bytes a step, from L2 (20 MiB matrix, read before) or DRAM (2 GiB matrix, never the same stage twice)
   Work       none when timed                                Bound  latency of the copy; SM, L2 or DRAM rate when large
   Empty      stage_bytes = 0: the same instructions without a copy, so that their own cost can be taken off
   Methods    cp_async: 16 B a thread, commit, wait_group, barrier; tma: boxes with 128-byte swizzle on one mbarrier;
              bulk: the same bytes contiguous, one bulk copy a box
   Parts      fill: one stage at a time, nothing else in flight on this SM. loaded: fill on one CTA of 16 while the others
              stream from DRAM or L2 at a set pace. ring: S stages, loop {wait stage i, barrier, issue stage i + S - 1}
              with an empty consumer. pitch: row pitches that are multiples of 16, 32, 64, 128 B. bounds: boxes that are
              partly or wholly outside the matrix
   Checked    the words that arrived in shared memory, added up, against plain loads of the elements inside the matrix
   Model      ring law: period = fill / (S - 1), fill = latency + bytes / rate: intercept and slope of cycles over bytes
   Reference  PTX ISA, "cp.async.bulk.tensor"; CUDA C++ Programming Guide, "Tensor memory access"
   Targets    sm_90a sm_100a sm_103a (sm_120a: 120 KiB of shared memory; others: no bulk copies)
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v stage_fill.cu -o stage_fill
   Run        ./stage_fill --part fill (loaded, ring, pitch, bounds)     one JSON line a point */
#include "../common/tilesight.cuh"
using namespace ts;
using u64 = unsigned long long;

constexpr int THREADS = 256, ROW_BYTES = 128, STEPS_SKIPPED = 8;
enum Method { CP_ASYNC, TMA, BULK };

constexpr int MOST_BOXES = 8;

// A walk over stages: col_count columns of boxes, then the next of row_count row groups, round and round.
struct Job {
  const unsigned char* base;
  long long pitch_bytes;
  int rows, cols;                        // matrix as the tensor map knows it
  int col_first, col_step, col_count;    // columns of a stage, in elements
  int row_first, row_step, row_count;    // first row of a stage
  int stage_rows, box_rows, box_step;    // rows of a stage, of a box, from box to box
  int odd_row;                           // >= 0: first row of every second box
  int stages, steps, share, groups, first;  // share: CTAs that read the same; first: where a group's walk begins
  __host__ __device__ int stage_bytes() const { return stage_rows * ROW_BYTES; }
  __host__ __device__ int row_of(int row, int box) const { return (box & 1) && odd_row >= 0 ? odd_row : row + box * box_step; }
};
// Background of the part "loaded": every CTA whose index is not a multiple of `every` streams at a set pace.
struct Background {
  int every = 1;                 // 1: no background
  const unsigned char* base = nullptr;
  long long chunks = 0, first = 0;
  int interval_cycles = 0;       // between two chunks of one CTA
  int* done = nullptr;           // measuring CTAs that have finished
  float* bytes_per_cycle = nullptr;
};
constexpr int CHUNK = 16384, CHUNK_SLOTS = 4;

// An empty statement that claims to change x: it then lives in a register and is not computed again in the loop.
__device__ __forceinline__ void pin(int& x) { asm volatile("" : "+r"(x)); }
__device__ __forceinline__ void pin(uint32_t& x) { asm volatile("" : "+r"(x)); }
__device__ __forceinline__ void pin(long long& x) { asm volatile("" : "+l"(x)); }

struct Cursor {
  int col, row, col_index, row_index;
  __device__ Cursor(const Job& j, int cta) {
    long long total = (long long)j.col_count * j.row_count;
    long long start = ((long long)(cta / j.share) * total / j.groups + j.first) % total;
    col_index = (int)(start % j.col_count);
    row_index = (int)(start / j.col_count);
    col = j.col_first + col_index * j.col_step;
    row = j.row_first + row_index * j.row_step;
  }
  __device__ __forceinline__ void advance(const Job& j) {
    col += j.col_step;
    if (++col_index < j.col_count) return;
    col_index = 0;
    col = j.col_first;
    row += j.row_step;
    if (++row_index < j.row_count) return;
    row_index = 0;
    row = j.row_first;
  }
  // Start of this stage when stages lie one after the other (bulk).
  __device__ long long contiguous(const Job& j) const { return ((long long)row_index * j.col_count + col_index) * j.stage_bytes(); }
};

// One block a CTA of the tested grid: adds the words of its stages that lie inside the matrix.
template <int METHOD>
__global__ void reference_sum(Job j, u64* total) {
  u64 sum = 0;
  Cursor c(j, blockIdx.x);
  for (int step = 0; step < j.steps; ++step, c.advance(j))
    for (int i = threadIdx.x; i < j.stage_rows * 32; i += blockDim.x) {
      int r = i / 32, row = j.row_of(c.row, r / j.box_rows) + r % j.box_rows, col = c.col + (i % 32) * 2;
      if (METHOD == BULK) sum += ((const uint32_t*)(j.base + c.contiguous(j)))[i];
      else if (row < j.rows && col < j.cols) sum += *(const uint32_t*)(j.base + row * j.pitch_bytes + col * 2);
    }
  block_add(total, sum);
}

// What a thread keeps in registers to start the copies of a stage.
template <int METHOD>
struct Loader {
  const CUtensorMap* map;
  const unsigned char* base;  // cp_async: with this thread's row and piece
  long long pitch_bytes, row_stride;
  uint32_t to;                // cp_async: this thread's place in a stage
  int copies, boxes, box_bytes, box_step, odd_row, stage_bytes;

  __device__ Loader(const Job& j, const CUtensorMap* m) : map(m), base(j.base), pitch_bytes(j.pitch_bytes) {
    int r = threadIdx.x / 8, piece = threadIdx.x % 8;
    row_stride = THREADS / 8 * pitch_bytes;
    to = r * ROW_BYTES + ((piece ^ (r & 7)) << 4);
    copies = r < j.stage_rows ? (j.stage_rows - r + THREADS / 8 - 1) / (THREADS / 8) : 0;
    boxes = j.box_rows ? j.stage_rows / j.box_rows : 0;
    box_bytes = j.box_rows * ROW_BYTES;
    box_step = j.box_step;
    odd_row = j.odd_row;
    stage_bytes = j.stage_bytes();
    if (METHOD == CP_ASYNC) base += r * pitch_bytes + piece * 16;
    pin(pitch_bytes), pin(row_stride), pin(to), pin(copies), pin(boxes), pin(box_bytes), pin(box_step), pin(odd_row), pin(stage_bytes);
  }
  __device__ __forceinline__ void issue(const Job& j, const Cursor& c, uint32_t dst, uint32_t bar) const {
    if (METHOD == CP_ASYNC) {
      const unsigned char* src = base + c.row * pitch_bytes + c.col * 2;
      uint32_t at = dst + to;
#pragma unroll 4
      for (int i = 0; i < copies; ++i, src += row_stride, at += THREADS / 8 * ROW_BYTES) cp_async16(at, src);
      cp_async_commit();
    } else if (threadIdx.x == 0) {
      mbar_expect(bar, stage_bytes);
      const unsigned char* src = METHOD == BULK ? base + c.contiguous(j) : nullptr;
#pragma unroll
      for (int box = 0; box < MOST_BOXES; ++box)
        if (box < boxes) {
          if (METHOD == BULK) bulk_load(dst + box * box_bytes, src + box * box_bytes, box_bytes, bar);
          else tma_load_2d(dst + box * box_bytes, map, c.col, (box & 1) && odd_row >= 0 ? odd_row : c.row + box * box_step, bar);
        }
    }
  }
};
__device__ __forceinline__ u64 sum_stage(const unsigned char* stage, int bytes) {
  u64 sum = 0;
  for (int i = threadIdx.x; i < bytes / 16; i += THREADS) sum += sum_words(((const uint4*)stage)[i]);
  return sum;
}

__device__ void stream_background(const Background& b, unsigned char* smem, uint64_t* full, int measuring) {
  if (threadIdx.x) return;
  int id = blockIdx.x - blockIdx.x / b.every - 1, count = gridDim.x - measuring;
  long long chunk = b.first + id, begin = cycles(), next = begin;
  int i = 0;
  for (; i < 1000000; ++i) {
    uint32_t bar = smem_u32(&full[i % CHUNK_SLOTS]);
    if (i >= CHUNK_SLOTS) mbar_wait(bar, (i / CHUNK_SLOTS - 1) & 1);
    if (i % 8 == 0 && *(volatile int*)b.done >= measuring) break;
    while (cycles() < next) {}
    next = max(next, cycles() - 4ll * b.interval_cycles) + b.interval_cycles;
    mbar_expect(bar, CHUNK);
    bulk_load(smem_u32(smem + (i % CHUNK_SLOTS) * CHUNK), b.base + (chunk % b.chunks) * CHUNK, CHUNK, bar);
    chunk += count;
  }
  b.bytes_per_cycle[id] = (float)((double)i * CHUNK / (cycles() - begin));
  for (int k = max(0, i - CHUNK_SLOTS + 1); k < i; ++k)  // nothing may land after the CTA has gone
    mbar_wait(smem_u32(&full[k % CHUNK_SLOTS]), (k / CHUNK_SLOTS) & 1);
}

// One stage at a time. times: (measuring CTAs, steps) cycles.
template <int METHOD, bool SUM>
__global__ void __launch_bounds__(THREADS) fill(const __grid_constant__ CUtensorMap map, Job j, Background b, int* times, u64* total) {
  extern __shared__ unsigned char raw[];
  __shared__ uint64_t bars[CHUNK_SLOTS];
  unsigned char* smem = align_1024(raw);
  if (threadIdx.x == 0) {
    for (int i = 0; i < CHUNK_SLOTS; ++i) mbar_init(smem_u32(&bars[i]), 1);
    mbar_init_fence();
  }
  __syncthreads();
  int measuring = (gridDim.x + b.every - 1) / b.every;
  if (blockIdx.x % b.every) return stream_background(b, smem, bars, measuring);
  int cta = blockIdx.x / b.every;
  if (b.every > 1)
    for (long long start = cycles(); cycles() - start < 40000;) {}  // until the background flows
  Cursor c(j, cta);
  Loader<METHOD> loader(j, &map);
  uint32_t dst = smem_u32(smem), bar = smem_u32(&bars[0]);
  pin(dst), pin(bar);
  u64 sum = 0;
  for (int step = 0; step < j.steps; ++step) {
    __syncthreads();
    long long begin = cycles();
    loader.issue(j, c, dst, bar);
    if (METHOD == CP_ASYNC) {
      cp_async_wait<0>();
      __syncthreads();
    } else {
      mbar_wait(bar, step & 1);
    }
    long long end = cycles();
    if (threadIdx.x == 0) times[cta * j.steps + step] = (int)(end - begin);
    if (SUM) sum += sum_stage(smem, j.stage_bytes());
    c.advance(j);
  }
  __syncthreads();
  if (threadIdx.x == 0 && b.done) atomicAdd(b.done, 1);
  if (SUM) block_add(total, sum);
}

// S stages, rounds of S steps; times: one period in cycles * 16 a CTA.
template <int METHOD, int S, bool SUM>
__global__ void __launch_bounds__(THREADS) ring(const __grid_constant__ CUtensorMap map, Job j, int* times, u64* total) {
  extern __shared__ unsigned char raw[];
  __shared__ uint64_t bars[S];
  unsigned char* smem = align_1024(raw);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S; ++i) mbar_init(smem_u32(&bars[i]), 1);
    mbar_init_fence();
  }
  __syncthreads();
  Cursor c(j, blockIdx.x);
  Loader<METHOD> loader(j, &map);
  uint32_t dst = smem_u32(smem), bar = smem_u32(&bars[0]);
  int bytes = j.stage_bytes(), rounds = j.steps / S, skipped = (STEPS_SKIPPED + S - 1) / S;
  pin(dst), pin(bar), pin(bytes);
  auto issue = [&](int slot) {
    loader.issue(j, c, dst + slot * bytes, bar + slot * 8);
    c.advance(j);
  };
  for (int s = 0; s < S - 1; ++s) issue(s);
  u64 sum = 0;
  long long begin = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round == skipped) begin = cycles();
#pragma unroll
    for (int s = 0; s < S; ++s) {
      if (METHOD == CP_ASYNC) cp_async_wait<S - 2>();
      else mbar_wait(bar + s * 8, round & 1);
      __syncthreads();  // everybody has this stage; the slot of the one before is free
      if (SUM) sum += sum_stage(smem + s * bytes, bytes);
      issue((s + S - 1) % S);
    }
  }
  long long end = cycles();
  for (int s = 0; s < S - 1; ++s)  // nothing may land after the CTA has gone
    if (METHOD == CP_ASYNC) cp_async_wait<0>();
    else mbar_wait(bar + s * 8, rounds & 1);
  if (threadIdx.x == 0) times[blockIdx.x] = (int)((end - begin) * 16 / ((rounds - skipped) * S));
  if (SUM) block_add(total, sum);
}

// ---------------------------------------------------------------- host

struct Point {
  const char* part;
  Method method;
  const char* level;  // l2 or dram
  int active, share, stage_bytes, stages, box_rows, pitch, steps, inside_rows, inside_cols;
  const char* outside;  // all: every box hangs over the edge; half: every second one
  const char* background;
  double background_bytes_per_s;
};

struct Bench {
  static constexpr size_t DRAM_BYTES = (size_t)2 << 30, L2_BYTES = (size_t)20 << 20;
  int sms = sm_count(), launches = 5;
  unsigned char *dram = device_alloc<unsigned char>(DRAM_BYTES), *l2 = device_alloc<unsigned char>(L2_BYTES);
  unsigned char* noise = device_alloc<unsigned char>(DRAM_BYTES);
  int *times = device_alloc<int>(1 << 20), *done = device_alloc<int>(1);
  float* noise_rate = device_alloc<float>(1024);
  u64* total = device_alloc<u64>(1);
  int sequence = 0;  // launches so far: moves the DRAM walk on

  Bench() {
    fill_words(dram, DRAM_BYTES, 6);
    fill_words(l2, L2_BYTES, 7);
    fill_words(noise, DRAM_BYTES, 8);
    CHECK(cudaDeviceSynchronize());
  }

  Job job_of(const Point& p) const {
    bool from_dram = p.level[0] == 'd';
    Job j{};
    j.base = from_dram ? dram : l2;
    j.pitch_bytes = p.pitch * 2ll;
    j.stage_rows = p.stage_bytes / ROW_BYTES;
    j.box_rows = p.box_rows ? p.box_rows : std::min(128, j.stage_rows / 2);
    j.box_step = j.box_rows;
    j.row_step = std::max(j.stage_rows, 16);
    j.row_count = (int)((from_dram ? DRAM_BYTES : L2_BYTES) / j.pitch_bytes / j.row_step);
    j.col_step = 64;
    j.col_count = p.pitch / 64;
    j.rows = j.row_count * j.row_step;
    j.cols = p.pitch;
    j.odd_row = -1;
    j.stages = p.stages;
    j.steps = p.steps / p.stages * p.stages;
    j.share = p.share;
    j.groups = (p.active + p.share - 1) / p.share;
    if (p.inside_rows >= 0 && p.outside[0] == 'h') {  // every second box hangs over the last row
      j.odd_row = j.rows - p.inside_rows;
    } else if (p.inside_rows >= 0) {
      j.row_first = j.rows - p.inside_rows;
      j.row_step = j.box_step = 0;
    }
    if (p.inside_cols >= 0) {  // every box starts at the last column of boxes, of which inside_cols exist
      j.col_first = (j.col_count - 1) * 64;
      j.cols = j.col_first + p.inside_cols;
      j.col_step = 0;
    }
    return j;
  }

  template <int METHOD, bool SUM>
  void launch(const Job& j, const CUtensorMap& map, const Background& b, int grid) {
    int smem = std::max(120 * 1024, std::max(j.stages * j.stage_bytes(), CHUNK * CHUNK_SLOTS) + 1024);
    auto go = [&](auto kernel, auto... rest) {
      allow_smem(kernel, smem);
      kernel<<<grid, THREADS, smem>>>(map, j, rest...);
    };
    if (j.stages == 1) go(fill<METHOD, SUM>, b, times, total);
    if (j.stages == 2) go(ring<METHOD, 2, SUM>, times, total);
    if (j.stages == 3) go(ring<METHOD, 3, SUM>, times, total);
    if (j.stages == 4) go(ring<METHOD, 4, SUM>, times, total);
    CHECK_LAUNCH();
  }
  template <bool SUM>
  void launch(const Point& p, const Job& j, const CUtensorMap& map, const Background& b, int grid) {
    if (p.method == CP_ASYNC) launch<CP_ASYNC, SUM>(j, map, b, grid);
    if (p.method == TMA) launch<TMA, SUM>(j, map, b, grid);
    if (p.method == BULK) launch<BULK, SUM>(j, map, b, grid);
  }

  void check(const Point& p, Job j, const CUtensorMap& map) {
    j.steps = (STEPS_SKIPPED / p.stages + 3) * p.stages;
    CHECK(cudaMemset(total, 0, 8));
    if (p.method == BULK) reference_sum<BULK><<<p.active, THREADS>>>(j, total);
    else reference_sum<TMA><<<p.active, THREADS>>>(j, total);
    u64 expected = to_host(total, 1)[0];
    CHECK(cudaMemset(total, 0, 8));
    launch<true>(p, j, map, Background{}, p.active);
    require(to_host(total, 1)[0] == expected, std::string("stage_fill: words in shared memory, ") + p.part);
    require(expected != 0 || p.inside_rows == 0 || p.inside_cols == 0 || p.stage_bytes == 0, "stage_fill: reference read nothing");
  }

  void measure(const Point& p) {
    Job j = job_of(p);
    CUtensorMap map = tensor_map_bf16(j.base, j.rows, j.cols, p.pitch, std::max(j.box_rows, 8), 64);
    check(p, j, map);
    bool from_dram = p.level[0] == 'd', loaded = p.background[0] != 'n', noisy = p.background_bytes_per_s > 0;
    long long walk = (long long)j.col_count * j.row_count / j.groups;
    int measuring = p.active, grid = p.active, rate_count = 0;
    Background b;
    if (loaded) {
      grid = sms;
      b.every = 16;
      measuring = (grid + b.every - 1) / b.every;
      j.groups = measuring;
      walk = (long long)j.col_count * j.row_count / j.groups;
      rate_count = grid - measuring;
      bool noise_dram = p.background[0] == 'd';
      b.base = noise_dram ? noise : l2;
      b.chunks = (noise_dram ? DRAM_BYTES : ((size_t)12 << 20)) / CHUNK;
      double per_cta = std::max(p.background_bytes_per_s, 1.0) / rate_count;
      b.interval_cycles = (int)std::min(1e6, CHUNK / per_cta * 1.98e9);
      b.done = done;
      b.bytes_per_cycle = noise_rate;
      if (!from_dram) {  // few stages, read again and again, so that the background can't push them out of L2
        j.col_count = measuring;
        j.row_count = 4;
      }
    }
    std::vector<int> cycles, first;
    std::vector<double> medians, noise_bytes_per_s;
    for (int i = 0; i < launches + 2; ++i) {
      if (from_dram) j.first = (int)(((long long)sequence++ * p.steps) % std::max<long long>(1, walk - p.steps));
      b.first = (long long)sequence * 25000 % std::max<long long>(b.chunks, 1);
      CHECK(cudaMemset(done, 0, 4));
      launch<false>(p, j, map, b, grid);
      int per_cta = p.stages == 1 ? p.steps : 1;
      auto t = to_host(times, (size_t)measuring * per_cta);
      if (i < 2) continue;
      std::vector<int> of_launch;
      for (int cta = 0; cta < measuring; ++cta)
        for (int s = 0; s < per_cta; ++s) {
          int value = t[cta * per_cta + s];
          if (per_cta > 1 && s == 0) first.push_back(value);
          if (per_cta == 1 || s >= STEPS_SKIPPED) of_launch.push_back(value);
        }
      cycles.insert(cycles.end(), of_launch.begin(), of_launch.end());
      medians.push_back(median(of_launch));
      if (noisy) {
        double sum = 0;
        for (float r : to_host(noise_rate, rate_count)) sum += r;
        noise_bytes_per_s.push_back(sum * 1.98e9);
      }
    }
    double scale = p.stages == 1 ? 1.0 : 1.0 / 16, mid = median(cycles) * scale;
    static const char* names[] = {"cp_async", "tma", "bulk"};
    Json out("stage_fill");
    out.put("part", p.part).put("method", names[p.method]).put("level", p.level).put("active_sms", measuring).put("share", p.share);
    out.put("stages", p.stages).put("stage_bytes", p.stage_bytes).put("box_rows", j.box_rows).put("pitch_elements", p.pitch);
    out.put("inside_rows", p.inside_rows).put("inside_cols", p.inside_cols).put("outside", p.outside).put("background", p.background);
    out.put("background_asked_bytes_per_s", p.background_bytes_per_s).put("background_bytes_per_s", noisy ? median(noise_bytes_per_s) : 0.0);
    out.put("cycles", mid).put("cycles_mean", mean(cycles) * scale).put("cycles_p10", quantile(cycles, 0.1) * scale);
    out.put("cycles_p90", quantile(cycles, 0.9) * scale).put("first_cycles", median(first)).put("spread", spread(medians)).emit();
  }
  static double mean(const std::vector<int>& v) {
    double sum = 0;
    for (int x : v) sum += x;
    return sum / v.size();
  }
};

Point point(const char* part, Method method, const char* level, int active, int share, int kib, int stages) {
  return {part, method, level, active, share, kib * 1024, stages, 0, 4160, stages == 1 ? 48 : 96, -1, -1, "none", "none", 0};
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  std::string part = args.get("--part", "fill");
  Bench bench;
  int all = bench.sms;
  warm_up_clock();
  if (part == "fill")
    for (Method method : {CP_ASYNC, TMA, BULK})
      for (const char* level : {"l2", "dram"})
        for (auto [active, share] : {std::pair{1, 1}, {33, 1}, {66, 1}, {all, 1}, {all, 4}, {all, all}})
          for (int kib : {0, 2, 4, 8, 16, 24, 32, 48, 64, 96}) bench.measure(point("fill", method, level, active, share, kib, 1));
  if (part == "fill")  // one tall box instead of several
    for (int kib : {16, 24, 32})
      for (const char* level : {"l2", "dram"}) {
        Point p = point("fill", TMA, level, 33, 1, kib, 1);
        p.box_rows = kib * 8;
        bench.measure(p);
      }
  if (part == "loaded")
    for (Method method : {CP_ASYNC, TMA})
      for (auto [background, rate] : {std::pair{"dram", 0.0}, {"dram", 0.45e12}, {"dram", 1.35e12}, {"dram", 2.7e12}, {"dram", 3.4e12},
                                      {"dram", 4.0e12}, {"l2", 2e12}, {"l2", 4e12}, {"l2", 6e12}, {"l2", 8e12}})
        for (const char* level : {"l2", "dram"})
          for (int kib : {2, 8, 16, 32, 64}) {
            Point p = point("loaded", method, level, 9, 1, kib, 1);
            p.background = background;
            p.background_bytes_per_s = rate;
            bench.measure(p);
          }
  if (part == "ring")
    for (Method method : {CP_ASYNC, TMA})
      for (const char* level : {"l2", "dram"})
        for (auto [active, share] : {std::pair{1, 1}, {33, 1}, {all, 1}, {all, 4}})
          for (int stages : {2, 3, 4})
            for (int kib : {0, 4, 8, 16, 24, 32, 48, 64, 96})
              if (stages * kib <= 208) bench.measure(point("ring", method, level, active, share, kib, stages));
  if (part == "pitch")
    for (Method method : {CP_ASYNC, TMA})
      for (int pitch : {4096, 4160, 5000, 5008, 5024, 5056, 8192, 8256})
        for (const char* level : {"l2", "dram"})
          for (auto [active, share] : {std::pair{1, 1}, {33, 1}, {all, 1}, {all, 4}})
            for (int stages : {1, 3})
              for (int kib : {8, 16, 32, 48}) {
                Point p = point("pitch", method, level, active, share, kib, stages);
                p.pitch = pitch;
                bench.measure(p);
              }
  if (part == "bounds")
    for (int active : {1, 33, 66, all})
      for (int stages : {1, 3}) {
        for (int box_rows : {128, 256})  // a stage of 256 rows: two boxes or one
          for (const char* outside : {"all", "half"})
            for (int inside : {128, 127, 112, 96, 64, 32, 16, 1, 0}) {
              if (box_rows == 256 && outside[0] == 'h') continue;
              Point p = point("bounds", TMA, "l2", active, 1, 32, stages);
              p.box_rows = box_rows;
              p.inside_rows = inside * box_rows / 128;
              p.outside = outside;
              bench.measure(p);
            }
        for (int inside : {64, 56, 48, 32, 16, 8, 0}) {
          Point p = point("bounds", TMA, "l2", active, 1, 32, stages);
          p.inside_cols = inside;
          p.outside = "all";
          bench.measure(p);
        }
      }
  return 0;
}
