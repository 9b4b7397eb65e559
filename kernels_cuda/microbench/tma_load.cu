/* tma_load: tensor-copy loads by box: latency of one box, and bytes per cycle of an SM with a ring of boxes in flight.
   Shapes     bf16 matrices (rows, 4160) of random words, row-major; boxes of 8..256 rows x 16, 32, 64 elements (32, 64, 128
              bytes a row, with the swizzle of that width)
   Launch     latency: 1 CTA, block 32; ring: 1 CTA or one an SM, block 32 * issuers (one issuing lane a warp); no cluster
   On chip    ring: 64 KiB in flight and one stage more; at least half of an SM's shared memory, so that one CTA fits
   Traffic    latency l2: a matrix of a quarter of L2, read before; dram: 1 GiB, no 128-byte line asked for twice; ring: l2
   Work       none when timed                                Bound  latency; issue, SM or L2 rate
   Parts      latency: cycles from before mbarrier.expect_tx to after the wait; box_rows 0: an arrival instead of a box.
              ring: stages of 16 KiB / issuers (or one box) on one mbarrier each, refilled as soon as they are complete
   Checked    the words that arrived in shared memory, added up, against plain loads of the same boxes
   Model      fill: latency and bytes per cycle by box; one box costs at least its issue and its rows
   Reference  PTX ISA, "cp.async.bulk.tensor"; CUDA C++ Programming Guide, "Tensor memory access"
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no tensor copies)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v tma_load.cu -o tma_load
   Run        ./tma_load --repeats 9                           one JSON line a point */
#include "../common/cluster.cuh"
using namespace ts;
using u64 = unsigned long long;

constexpr int COLS = 4160, PITCH_BYTES = COLS * 2, MOST_STAGES = 5, MOST_ISSUERS = 4, SKIPPED = 4;

struct Box { int rows, cols; __host__ __device__ int bytes() const { return rows * cols * 2; } };
struct Matrix { unsigned char* base; int rows; };
struct Ring { int stages, per_stage, turns; };

__device__ u64 sum_smem(const unsigned char* p, int bytes) {  // one warp
  u64 sum = 0;
  for (int i = threadIdx.x % 32; i < bytes / 16; i += 32) sum += sum_words(((const uint4*)p)[i]);
  return sum;
}
__device__ u64 sum_box(const Matrix& m, const Box& box, int row, int col) {  // one warp, plain loads
  u64 sum = 0;
  for (int i = threadIdx.x % 32; i < box.bytes() / 4; i += 32) {
    int r = i / (box.cols / 2), word = i % (box.cols / 2);
    sum += *(const uint32_t*)(m.base + (size_t)(row + r) * PITCH_BYTES + col * 2 + word * 4);
  }
  return sum;
}

// ---------------------------------------------------------------- latency

// Box p of the walk: 128 bytes further in the same rows, then 256 rows down: no line belongs to two boxes.
__device__ void place(const Matrix& m, long long p, int& row, int& col) {
  int across = COLS / 64;
  row = (int)(p / across % (m.rows / 256)) * 256;
  col = (int)(p % across) * 64;
}
__global__ void __launch_bounds__(32) latency_reference(Matrix m, Box box, long long first, int steps, u64* total) {
  u64 sum = 0;
  for (int step = 0; step < steps; ++step) {
    int row, col;
    place(m, first + step, row, col);
    sum += sum_box(m, box, row, col);
  }
  block_add(total, sum);
}
template <bool SUM>
__global__ void __launch_bounds__(32) latency(const __grid_constant__ CUtensorMap map, Matrix m, Box box, long long first, int steps,
                                              int* times, u64* total) {
  extern __shared__ unsigned char raw[];
  __shared__ uint64_t full;
  unsigned char* smem = align_1024(raw);
  uint32_t dst = smem_u32(smem), bar = smem_u32(&full);
  if (threadIdx.x == 0) {
    prefetch_map(&map);
    mbar_init(bar, 1);
    mbar_init_fence();
  }
  __syncthreads();
  u64 sum = 0;
  for (int step = 0; step < steps; ++step) {
    int row, col, bytes = box.bytes();
    place(m, first + step, row, col);
    pin_all(row, col, bytes, dst, bar);
    long long begin = cycles();
    if (elect_one()) {
      if (bytes) {
        mbar_expect(bar, bytes);
        tma_load_2d(dst, &map, col, row, bar);
      } else {
        mbar_arrive(bar);
      }
    }
    mbar_wait(bar, step & 1);
    long long end = cycles();
    if (threadIdx.x == 0) times[step] = (int)(end - begin);
    if (SUM) sum += sum_smem(smem, bytes);
    __syncwarp();
  }
  if (SUM) block_add(total, sum);
}

// ---------------------------------------------------------------- ring

// Boxes left to right, then down; issuer i of n begins at i / n of the matrix.
struct Walk {
  int row, col;
  __device__ Walk(const Matrix& m, const Box& box, int i, int n) {
    long long across = COLS / box.cols, boxes = m.rows / box.rows * across, start = i * boxes / n;
    row = (int)(start / across) * box.rows;
    col = (int)(start % across) * box.cols;
  }
  __device__ __forceinline__ void advance(const Matrix& m, const Box& box) {
    if ((col += box.cols) < COLS) return;
    col = 0;
    if ((row += box.rows) == m.rows) row = 0;
  }
};
__global__ void ring_reference(Matrix m, Box box, Ring r, u64* total) {
  int issuers = blockDim.x / 32;
  Walk walk(m, box, blockIdx.x * issuers + threadIdx.x / 32, gridDim.x * issuers);
  u64 sum = 0;
  for (int i = 0; i < r.stages * r.per_stage * r.turns; ++i, walk.advance(m, box)) sum += sum_box(m, box, walk.row, walk.col);
  block_add(total, sum);
}
// elapsed: cycles of an SM from the third turn of the ring to its last.
template <bool SUM>
__global__ void __launch_bounds__(32 * MOST_ISSUERS) ring(const __grid_constant__ CUtensorMap map, Matrix m, Box box, Ring r,
                                                          int* elapsed, u64* total) {
  extern __shared__ unsigned char raw[];
  __shared__ uint64_t full[MOST_ISSUERS * MOST_STAGES];
  __shared__ long long begin[MOST_ISSUERS], end[MOST_ISSUERS];
  const int issuers = blockDim.x / 32, warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int box_bytes = box.bytes(), stage_bytes = r.per_stage * box_bytes;
  unsigned char* slots = align_1024(raw) + warp * r.stages * stage_bytes;
  const uint32_t dst = smem_u32(slots), bar = smem_u32(full + warp * MOST_STAGES);
  if (threadIdx.x == 0) {
    prefetch_map(&map);
    for (int i = 0; i < MOST_ISSUERS * MOST_STAGES; ++i) mbar_init(smem_u32(full + i), 1);
    mbar_init_fence();
  }
  __syncthreads();
  Walk walk(m, box, blockIdx.x * issuers + warp, gridDim.x * issuers);
  auto issue = [&](int s) {  // the whole warp; one lane issues
    if (elect_one()) mbar_expect(bar + 8 * s, stage_bytes);
    uint32_t to = dst + s * stage_bytes;
    for (int b = 0; b < r.per_stage; ++b, to += box_bytes, walk.advance(m, box))
      if (elect_one()) tma_load_2d(to, &map, walk.col, walk.row, bar + 8 * s);
  };
  u64 sum = 0;
  for (int s = 0; s < r.stages; ++s) issue(s);
  for (int turn = 0; turn < r.turns; ++turn) {
    if (turn == 2) begin[warp] = cycles();
    if (turn == r.turns - 1) end[warp] = cycles();
    for (int s = 0; s < r.stages; ++s) {
      mbar_wait(bar + 8 * s, turn & 1);
      if (SUM) sum += sum_smem(slots + s * stage_bytes, stage_bytes);
      __syncwarp();
      if (turn + 1 < r.turns) issue(s);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    long long from = begin[0], to = end[0];
    for (int w = 1; w < issuers; ++w) from = min(from, begin[w]), to = max(to, end[w]);
    elapsed[blockIdx.x] = (int)(to - from);
  }
  if (SUM) block_add(total, sum);
}

// ---------------------------------------------------------------- host

CUtensorMap map_of(const Matrix& m, const Box& box) {
  auto swizzle = box.cols == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : box.cols == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_32B;
  return tensor_map_bf16(m.base, m.rows, COLS, COLS, std::max(box.rows, 8), box.cols, swizzle);
}
Matrix matrix(size_t bytes, uint64_t seed) {
  int rows = (int)(bytes / PITCH_BYTES / 256 * 256);
  Matrix m{device_alloc<unsigned char>((size_t)rows * PITCH_BYTES), rows};
  fill_words(m.base, (size_t)rows * PITCH_BYTES, seed);
  return m;
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9), sms = sm_count();
  if (capability() < 90) return skipped("tma_load", "no tensor copies below compute capability 9.0"), 0;
  Matrix l2 = matrix(device_attribute(cudaDevAttrL2CacheSize) / 4, 1), dram = matrix((size_t)1 << 30, 2);
  dram.rows = dram.rows * 3 / 4 / 256 * 256;  // the fill left the end of the buffer in L2
  auto* times = device_alloc<int>(std::max(sms, 1024));
  auto* total = device_alloc<u64>(1);
  auto sum_of = [&](auto launch) {
    CHECK(cudaMemset(total, 0, 8));
    launch();
    CHECK_LAUNCH();
    return to_host(total, 1)[0];
  };
  auto warm_l2 = [&] { checksum(l2.base, (size_t)l2.rows * PITCH_BYTES); };
  std::vector<Box> boxes;
  for (int cols : {16, 32, 64})
    for (int rows : {8, 16, 32, 64, 128, 256}) boxes.push_back({rows, cols});
  allow_smem(latency<false>, 40 * 1024);
  allow_smem(latency<true>, 40 * 1024);
  warm_up_clock(0.1);

  long long next = 0;  // first unused place of the DRAM walk
  const int steps = 48;
  boxes.insert(boxes.begin(), {0, 64});
  for (const Box& box : boxes)
    for (const char* level : {"l2", "dram"}) {
      bool far = level[0] == 'd';
      const Matrix& m = far ? dram : l2;
      CUtensorMap map = map_of(m, box);
      u64 got = sum_of([&] { latency<true><<<1, 32, 40 * 1024>>>(map, m, box, next, steps, times, total); });
      u64 want = sum_of([&] { latency_reference<<<1, 32>>>(m, box, next, steps, total); });
      require(got == want && (want != 0 || box.rows == 0), "tma_load: sum of single boxes");
      next += steps;
      warm_l2();
      std::vector<int> all;
      std::vector<double> of_launch;
      for (int i = 0; i < repeats; ++i, next += steps) {
        latency<false><<<1, 32, 40 * 1024>>>(map, m, box, next, steps, times, total);
        CHECK_LAUNCH();
        auto t = to_host(times, steps);
        t.erase(t.begin(), t.begin() + SKIPPED);
        all.insert(all.end(), t.begin(), t.end());
        of_launch.push_back(median(t));
      }
      Json j("tma_load");
      j.put("part", "latency").put("level", level).put("box_rows", box.rows).put("box_cols", box.cols).put("box_bytes", box.bytes());
      j.put("cycles", median(all)).put("cycles_p10", quantile(all, 0.1)).put("cycles_p90", quantile(all, 0.9));
      j.put("spread", spread(of_launch)).put("repeats", repeats).emit();
    }
  boxes.erase(boxes.begin());
  require(next <= (long long)(dram.rows / 256) * (COLS / 64), "tma_load: the DRAM walk came round");

  for (const Box& box : boxes)
    for (int issuers : {1, 4})
      for (int grid : {1, sms}) {
        if (issuers == 4 && box.bytes() > 8192) continue;
        int in_flight = 65536 / issuers, stage = std::max(box.bytes(), in_flight / 4);
        Ring r{in_flight / stage + 1, stage / box.bytes(), 3};
        size_t smem = std::max<size_t>(1024 + (size_t)issuers * r.stages * stage, one_cta_smem());
        CUtensorMap map = map_of(l2, box);
        allow_smem(ring<true>, smem);
        allow_smem(ring<false>, smem);
        u64 got = sum_of([&] { ring<true><<<grid, 32 * issuers, smem>>>(map, l2, box, r, times, total); });
        u64 want = sum_of([&] { ring_reference<<<grid, 32 * issuers>>>(l2, box, r, total); });
        require(got == want && want != 0, "tma_load: sum of the ring");
        warm_l2();
        r.turns = 3 + (box.bytes() >= 2048 ? 64 : 16);
        double bytes = (double)issuers * r.stages * stage * (r.turns - 3);
        std::vector<double> of_launch, all;
        for (int i = 0; i < repeats + 1; ++i) {
          ring<false><<<grid, 32 * issuers, smem>>>(map, l2, box, r, times, total);
          CHECK_LAUNCH();
          auto t = to_host(times, grid);
          if (i == 0) continue;
          for (int x : t) all.push_back(bytes / x);
          of_launch.push_back(bytes / median(t));
        }
        Json j("tma_load");
        j.put("part", "ring").put("level", "l2").put("box_rows", box.rows).put("box_cols", box.cols).put("box_bytes", box.bytes());
        j.put("active_sms", grid).put("issuers", issuers).put("stages", r.stages).put("boxes_per_stage", r.per_stage);
        j.put("in_flight_bytes", 65536).put("bytes_per_cycle", median(of_launch)).put("bytes_per_cycle_p10", quantile(all, 0.1));
        j.put("bytes_per_cycle_p90", quantile(all, 0.9)).put("cycles_per_box", box.bytes() / median(of_launch));
        j.put("spread", spread(of_launch)).put("repeats", repeats).emit();
      }
  return 0;
}
