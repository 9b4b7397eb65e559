/* tma_store: tensor-copy stores by box: time until the source may be reused and until the write is complete, and the rate.
   Shapes     bf16 matrices (rows, 4160), row-major; boxes of 8..256 rows x 16, 32, 64 elements (32, 64, 128 bytes a row, with
              the swizzle of that width)
   Launch     latency: 1 CTA, block 32; ring: 1 CTA or one an SM, block 32 * issuers (one issuing lane a warp); no cluster
   On chip    ring: up to 64 KiB in flight and one stage more; at least half of an SM's shared memory, so that one CTA fits
   Traffic    latency l2: a matrix of a quarter of L2, read before; dram: 1 GiB, lines that are not in L2; ring: l2
   Work       none                                           Bound  latency; issue, SM or L2 rate
   Parts      latency: cycles from the store to the end of wait_group (complete) or wait_group.read (read), nothing else in
              flight; box_rows 0: commit and wait alone. ring: stages of 16 KiB / issuers (or one box), a group each; before
              a slot is stored from again, wait_group.read for its group
   Checked    destination poisoned; then every word against its place in the swizzled source, bit-exact
   Model      epilogue: store latency, bytes per cycle of an SM; l2.store_bytes_per_cycle
   Reference  PTX ISA, "cp.async.bulk.tensor", "cp.async.bulk.wait_group"
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no tensor copies)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v tma_store.cu -o tma_store
   Run        ./tma_store --repeats 9                          one JSON line a point */
#include "../common/cluster.cuh"
using namespace ts;

constexpr int COLS = 4160, PITCH_BYTES = COLS * 2, MOST_ISSUERS = 4, SKIPPED = 4;

struct Box { int rows, cols; __host__ __device__ int bytes() const { return rows * cols * 2; } };
struct Matrix { unsigned char* base; int rows; };
struct Ring { int per_stage, stages; };  // boxes a group; groups an issuer stores

// What word `word` of box b of a stage is: every slot holds the same bytes.
__device__ uint32_t source_word(const Box& box, int b, int row, int word) {
  uint32_t offset = (row * (box.cols / 2) + word) * 4;
  offset = box.cols == 64 ? swizzled<128>(offset) : box.cols == 32 ? swizzled<64>(offset) : swizzled<32>(offset);
  return hash32((b * box.bytes() + offset) / 4);
}
__device__ void fill_slots(unsigned char* slots, int count, int stage_bytes) {
  for (int i = threadIdx.x; i < count * stage_bytes / 4; i += blockDim.x) ((uint32_t*)slots)[i] = hash32(i % (stage_bytes / 4));
  fence_proxy_async();
  __syncthreads();
}

// ---------------------------------------------------------------- latency

// Box p of the walk: 128 bytes further in the same rows, then 256 rows down: no line belongs to two boxes.
__device__ void place(const Matrix& m, long long p, int& row, int& col) {
  int across = COLS / 64;
  row = (int)(p / across % (m.rows / 256)) * 256;
  col = (int)(p % across) * 64;
}
__global__ void wrong_places(Matrix m, Box box, long long first, int* wrong) {  // a CTA a step
  int row, col;
  place(m, first + blockIdx.x, row, col);
  for (int i = threadIdx.x; i < box.bytes() / 4; i += blockDim.x) {
    int r = i / (box.cols / 2), word = i % (box.cols / 2);
    uint32_t got = *(const uint32_t*)(m.base + (size_t)(row + r) * PITCH_BYTES + col * 2 + word * 4);
    if (got != source_word(box, 0, r, word)) atomicAdd(wrong, 1);
  }
}
template <bool READ>
__global__ void __launch_bounds__(32) latency(const __grid_constant__ CUtensorMap map, Matrix m, Box box, long long first, int steps,
                                              int* times) {
  extern __shared__ unsigned char raw[];
  unsigned char* smem = align_1024(raw);
  uint32_t src = smem_u32(smem);
  fill_slots(smem, 1, box.bytes() ? box.bytes() : 4);
  prefetch_map(&map);
  for (int step = 0; step < steps; ++step) {
    int row, col, bytes = box.bytes();
    place(m, first + step, row, col);
    pin_all(row, col, bytes, src);
    if (elect_one()) {
      long long begin = cycles();
      if (bytes) tma_store_2d(&map, col, row, src);
      bulk_commit();
      if (READ) bulk_wait_read<0>();
      else bulk_wait<0>();
      times[step] = (int)(cycles() - begin);
      bulk_wait<0>();
    }
    __syncwarp();
  }
}

// ---------------------------------------------------------------- ring

// Boxes left to right, then down; issuer i of n begins with stage i / n of all.
struct Walk {
  int row, col;
  __device__ Walk(const Matrix& m, const Box& box, int per_stage, int i, int n) {
    long long across = COLS / box.cols, stages = m.rows / box.rows * across / per_stage, start = i * stages / n * per_stage;
    row = (int)(start / across) * box.rows;
    col = (int)(start % across) * box.cols;
  }
  __device__ __forceinline__ void advance(const Matrix& m, const Box& box) {
    if ((col += box.cols) < COLS) return;
    col = 0;
    if ((row += box.rows) == m.rows) row = 0;
  }
};
__global__ void wrong_words(Matrix m, Box box, int per_stage, unsigned long long* wrong) {
  size_t words = (size_t)m.rows * (COLS / 2);
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x) {
    int row = (int)(i / (COLS / 2)), word = (int)(i % (COLS / 2)), width = box.cols / 2;
    int index = row / box.rows * (COLS / box.cols) + word / width;
    if (((const uint32_t*)m.base)[i] != source_word(box, index % per_stage, row % box.rows, word % width)) atomicAdd(wrong, 1ull);
  }
}
// SLOTS groups of one issuer may be unread at once. elapsed: cycles from group 2 * SLOTS to the last.
template <int SLOTS>
__global__ void __launch_bounds__(32 * MOST_ISSUERS) ring(const __grid_constant__ CUtensorMap map, Matrix m, Box box, Ring r, int* elapsed) {
  extern __shared__ unsigned char raw[];
  __shared__ long long begin[MOST_ISSUERS], end[MOST_ISSUERS];
  unsigned char* smem = align_1024(raw);
  const int issuers = blockDim.x / 32, warp = __shfl_sync(~0u, threadIdx.x / 32, 0), box_bytes = box.bytes();
  const int stage_bytes = r.per_stage * box_bytes;
  fill_slots(smem, issuers * SLOTS, stage_bytes);
  prefetch_map(&map);
  const uint32_t src = smem_u32(smem + warp * SLOTS * stage_bytes);
  Walk walk(m, box, r.per_stage, blockIdx.x * issuers + warp, gridDim.x * issuers);
  int slot = 0;
  for (int stage = 0; stage < r.stages; ++stage) {
    if (stage == 2 * SLOTS) begin[warp] = cycles();
    if (elect_one()) bulk_wait_read<SLOTS - 1>();
    uint32_t from = src + slot * stage_bytes;
    for (int b = 0; b < r.per_stage; ++b, from += box_bytes, walk.advance(m, box))
      if (elect_one()) tma_store_2d(&map, walk.col, walk.row, from);
    if (elect_one()) bulk_commit();
    if (++slot == SLOTS) slot = 0;
  }
  end[warp] = cycles();
  if (elect_one()) bulk_wait<0>();
  __syncthreads();
  if (threadIdx.x == 0) {
    long long from = begin[0], to = end[0];
    for (int w = 1; w < issuers; ++w) from = min(from, begin[w]), to = max(to, end[w]);
    elapsed[blockIdx.x] = (int)(to - from);
  }
}

// ---------------------------------------------------------------- host

CUtensorMap map_of(const Matrix& m, const Box& box) {
  auto swizzle = box.cols == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : box.cols == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_32B;
  return tensor_map_bf16(m.base, m.rows, COLS, COLS, std::max(box.rows, 8), box.cols, swizzle);
}
Matrix matrix(size_t bytes) {
  int rows = (int)(bytes / PITCH_BYTES / 256 * 256);
  Matrix m{device_alloc<unsigned char>((size_t)rows * PITCH_BYTES), rows};
  poison(m.base, (size_t)rows * PITCH_BYTES);
  return m;
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9), sms = sm_count();
  if (capability() < 90) return skipped("tma_store", "no tensor copies below compute capability 9.0"), 0;
  Matrix l2 = matrix(device_attribute(cudaDevAttrL2CacheSize) / 4), dram = matrix((size_t)1 << 30);
  dram.rows = dram.rows * 3 / 4 / 256 * 256;  // the memset left the end of the buffer in L2
  const size_t l2_bytes = (size_t)l2.rows * PITCH_BYTES;
  auto* times = device_alloc<int>(std::max(sms, 1024));
  auto* wrong = device_alloc<unsigned long long>(1);
  std::vector<Box> boxes{{0, 64}};
  for (int cols : {16, 32, 64})
    for (int rows : {8, 16, 32, 64, 128, 256}) boxes.push_back({rows, cols});
  warm_up_clock(0.1);

  long long next = 0;  // first unused place of the walk
  const int steps = 24;
  for (const Box& box : boxes)
    for (const char* level : {"l2", "dram"})
      for (bool read : {false, true}) {
        const Matrix& m = level[0] == 'd' ? dram : l2;
        CUtensorMap map = map_of(m, box);
        auto kernel = read ? latency<true> : latency<false>;
        allow_smem(kernel, 40 * 1024);
        checksum(l2.base, l2_bytes);  // l2: its lines are in L2
        std::vector<int> all;
        std::vector<double> of_launch;
        for (int i = 0; i < repeats + 1; ++i, next += steps) {
          if (i == 0 && level[0] == 'l') poison(l2.base, l2_bytes);
          kernel<<<1, 32, 40 * 1024>>>(map, m, box, next, steps, times);
          CHECK_LAUNCH();
          auto t = to_host(times, steps);
          if (i == 0) {
            CHECK(cudaMemset(wrong, 0, 8));
            wrong_places<<<steps, 256>>>(m, box, next, (int*)wrong);
            require(to_host(wrong, 1)[0] == 0, "tma_store: single boxes");
            continue;
          }
          t.erase(t.begin(), t.begin() + SKIPPED);
          all.insert(all.end(), t.begin(), t.end());
          of_launch.push_back(median(t));
        }
        Json j("tma_store");
        j.put("part", "latency").put("level", level).put("until", read ? "read" : "complete").put("box_rows", box.rows);
        j.put("box_cols", box.cols).put("box_bytes", box.bytes()).put("cycles", median(all)).put("cycles_p10", quantile(all, 0.1));
        j.put("cycles_p90", quantile(all, 0.9)).put("spread", spread(of_launch)).put("repeats", repeats).emit();
      }
  boxes.erase(boxes.begin());
  require(next <= (long long)(dram.rows / 256) * (COLS / 64), "tma_store: the DRAM walk came round");

  for (const Box& box : boxes)
    for (int issuers : {1, 4})
      for (int grid : {1, sms}) {
        if (issuers == 4 && box.bytes() > 8192) continue;
        int in_flight = 65536 / issuers, stage = std::max(box.bytes(), in_flight / 4), slots = in_flight / stage + 1;
        size_t smem = std::max<size_t>(1024 + (size_t)issuers * slots * stage, one_cta_smem());
        auto kernel = slots == 5 ? ring<5> : ring<3>;
        require(slots == 5 || slots == 3, "tma_store: slots");
        allow_smem(kernel, smem);
        CUtensorMap map = map_of(l2, box);
        auto go = [&](int stages) {
          kernel<<<grid, 32 * issuers, smem>>>(map, l2, box, Ring{stage / box.bytes(), stages}, times);
          CHECK_LAUNCH();
          return to_host(times, grid);
        };
        poison(l2.base, l2_bytes);
        go((int)(l2_bytes / stage / (grid * issuers)) + 1);  // every box at least once
        CHECK(cudaMemset(wrong, 0, 8));
        wrong_words<<<1056, 256>>>(l2, box, stage / box.bytes(), wrong);
        require(to_host(wrong, 1)[0] == 0, "tma_store: ring");
        int turns = box.bytes() >= 2048 ? 48 : 16;
        double bytes = (double)issuers * turns * slots * stage;
        std::vector<double> of_launch, all;
        for (int i = 0; i < repeats + 1; ++i) {
          auto t = go((turns + 2) * slots);
          if (i == 0) continue;
          for (int x : t) all.push_back(bytes / x);
          of_launch.push_back(bytes / median(t));
        }
        Json j("tma_store");
        j.put("part", "ring").put("level", "l2").put("box_rows", box.rows).put("box_cols", box.cols).put("box_bytes", box.bytes());
        j.put("active_sms", grid).put("issuers", issuers).put("slots", slots).put("boxes_per_stage", stage / box.bytes());
        j.put("in_flight_bytes", issuers * slots * stage).put("bytes_per_cycle", median(of_launch));
        j.put("bytes_per_cycle_p10", quantile(all, 0.1)).put("bytes_per_cycle_p90", quantile(all, 0.9));
        j.put("cycles_per_box", box.bytes() / median(of_launch)).put("spread", spread(of_launch)).put("repeats", repeats).emit();
      }
  return 0;
}
