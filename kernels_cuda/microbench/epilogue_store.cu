/* epilogue_store: every SM writes one bf16 output tile at the same moment; cycles until issued and until complete.
   Shapes     C: (tiles * tile_rows, n) bf16, n = 4096 + 64; a tile is tile_rows x 256 elements (8..64 KiB), one a CTA
   Launch     grid = active SMs (one CTA an SM, forced by shared memory), block 256, start gate (all CTAs leave it together)
   On chip    120 KiB dynamic (the tile, 128-byte swizzle, when staged); registers as printed by ptxas (record .toml)
   Traffic    tile bytes written a CTA and tile, into L2 (C of `region` tiles is written again and again) or DRAM (fresh)
   Work       none                                            Bound  l2 writes, SM store path
   Methods    none: no store (the gate and loop alone); stores: accumulator rows in registers, 16 B a thread, a warp writes
              512 contiguous bytes; fragments: 4 B a thread as an mma accumulator lies (8 rows x 16 B a warp store);
              tma: st.shared, proxy fence, barrier, bulk tensor store of boxes of 64 columns, wait for completion
   Parts      gate: one tile, cycles to the last issue and to completion (fence or bulk wait). steady: `tiles` tiles in a row
              without waiting for completion. kernel: graph nodes without gate: does the end of a kernel wait for its stores?
   Checked    C poisoned, then every element's bits against their formula on the device
   Model      epilogue: E = e0 + tile bytes / rate
   Reference  PTX ISA, "cp.async.bulk.tensor"
   Targets    sm_90a sm_100a sm_103a (sm_120a: 120 KiB of shared memory; others: no tensor copies)
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v epilogue_store.cu -o epilogue_store
   Run        ./epilogue_store --repeats 15                    one JSON line a point */
#include "../common/tilesight.cuh"
using namespace ts;

constexpr int THREADS = 256, TILE_COLS = 256, PITCH = 4160, TILES_WIDE = 16, SMEM = 120 * 1024;
enum Method { NONE, STORES, FRAGMENTS, TMA_STORE };

struct Job {
  __nv_bfloat16* c;
  int tile_rows, tiles, region, first;  // tile t of CTA b is (first + b + t * grid) % region
  int wait;                             // wait for completion after the last tile
  unsigned* gate;                       // counts arrivals; null: no gate
  int2* times;                          // cycles to the last issue, to completion
};
// Bit pattern of an element: positive, below 2, so never a NaN; cheap, so that making it costs little in part `kernel`.
__host__ __device__ inline uint32_t bits_at(int row, int col) { return (row * 256 + col) & 0x3FFF; }
__device__ __forceinline__ uint32_t pair_at(int row, int col) { return bits_at(row, col) * 0x10001u + 0x10000u; }  // col is even
__device__ __forceinline__ uint4 eight_at(int row, int col) {
  return make_uint4(pair_at(row, col), pair_at(row, col + 2), pair_at(row, col + 4), pair_at(row, col + 6));
}
__global__ void count_wrong(const __nv_bfloat16* c, int tile_rows, int tiles, unsigned long long* wrong) {
  for (int t = blockIdx.x; t < tiles; t += gridDim.x)
    for (int i = threadIdx.x; i < tile_rows * TILE_COLS; i += blockDim.x) {
      int row = t / TILES_WIDE * tile_rows + i / TILE_COLS, col = t % TILES_WIDE * TILE_COLS + i % TILE_COLS;
      if (((const uint16_t*)c)[(size_t)row * PITCH + col] != bits_at(i / TILE_COLS, i % TILE_COLS)) atomicAdd(wrong, 1ull);
    }
}

__device__ void pass_gate(unsigned* gate) {
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(gate, 1);
    for (long long start = cycles(); *(volatile unsigned*)gate < gridDim.x;)
      if (cycles() - start > WAIT_LIMIT_CYCLES) __trap();
  }
  __syncthreads();
}

// Each thread holds its part of a tile in registers before the gate: rows warp, warp + 8, ... of the tile.
template <int METHOD, int ROWS>
__global__ void __launch_bounds__(THREADS) store_tiles(const __grid_constant__ CUtensorMap map, Job j) {
  extern __shared__ unsigned char raw[];
  unsigned char* smem = align_1024(raw);
  constexpr int VECTORS = ROWS * TILE_COLS / 8 / THREADS;  // 16-byte pieces a thread
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint4 held[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) held[v] = METHOD == FRAGMENTS ? make_uint4(0, 0, 0, 0) : eight_at(warp + v * 8, lane * 8);
  // Accumulator layout: a warp store covers 8 rows x 8 columns, 4 B a thread; word w of this thread:
  constexpr int WORDS = VECTORS * 4;
  uint32_t fragment[WORDS] = {};
  int frag_row = lane / 4, frag_col = lane % 4 * 2 + warp * 32;  // a warp owns 32 columns: 4 stores of 8 columns a row group
  if (METHOD == FRAGMENTS)
#pragma unroll
    for (int w = 0; w < WORDS; ++w) fragment[w] = pair_at(frag_row + w / 4 * 8, frag_col + w % 4 * 8);
  // The values exist in registers from here on (an empty statement that claims to change them).
#pragma unroll
  for (int v = 0; v < VECTORS; ++v)
    if (METHOD != FRAGMENTS) asm volatile("" : "+r"(held[v].x), "+r"(held[v].y), "+r"(held[v].z), "+r"(held[v].w));
#pragma unroll
  for (int w = 0; w < WORDS; ++w)
    if (METHOD == FRAGMENTS) asm volatile("" : "+r"(fragment[w]));
  if (j.gate) pass_gate(j.gate);
  long long begin = cycles();
  for (int t = 0; t < j.tiles; ++t) {
    int tile = (j.first + blockIdx.x + t * gridDim.x) % (unsigned)j.region;
    int row0 = tile / TILES_WIDE * ROWS, col0 = tile % TILES_WIDE * TILE_COLS;
    __nv_bfloat16* at = j.c + (size_t)row0 * PITCH + col0;
    if (METHOD == STORES)
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) *(uint4*)(at + (size_t)(warp + v * 8) * PITCH + lane * 8) = held[v];
    if (METHOD == FRAGMENTS)
#pragma unroll
      for (int w = 0; w < WORDS; ++w) *(uint32_t*)(at + (size_t)(frag_row + w / 4 * 8) * PITCH + frag_col + w % 4 * 8) = fragment[w];
    if (METHOD == TMA_STORE) {
      if (threadIdx.x == 0) bulk_wait_read<0>();
      __syncthreads();  // the staging tile is free
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) {
        int row = warp + v * 8, box = lane / 8, piece = lane % 8;  // boxes of ROWS x 64 elements
        *(uint4*)(smem + (box * ROWS + row) * 128 + ((piece ^ (row & 7)) << 4)) = held[v];
      }
      fence_proxy_async();
      __syncthreads();
      if (threadIdx.x == 0) {
        for (int box = 0; box < TILE_COLS / 64; ++box) tma_store_2d(&map, col0 + box * 64, row0, smem_u32(smem + box * ROWS * 128));
        bulk_commit();
      }
    }
  }
  if (METHOD == TMA_STORE && threadIdx.x == 0) bulk_wait_read<0>();
  __syncthreads();
  long long issued = cycles();
  if (j.wait) {
    if (METHOD == TMA_STORE && threadIdx.x == 0) bulk_wait<0>();
    __threadfence();
    __syncthreads();
  }
  long long complete = cycles();
  if (threadIdx.x == 0 && j.times) j.times[blockIdx.x] = make_int2((int)(issued - begin), (int)(complete - begin));
  if (METHOD == NONE && j.tiles < 0) *(uint4*)j.c = held[0];  // keeps the registers alive
}

struct Bench {
  static constexpr int MOST_TILES = 132 * 64;
  int sms = sm_count(), repeats;
  __nv_bfloat16* c = device_alloc<__nv_bfloat16>((size_t)MOST_TILES / TILES_WIDE * 128 * PITCH);
  unsigned* gates = device_alloc<unsigned>(1024);
  int2* times = device_alloc<int2>(1024);
  unsigned long long* wrong = device_alloc<unsigned long long>(1);
  int launched = 0;

  template <int METHOD, int ROWS>
  void launch(const Job& j, const CUtensorMap& map, int grid, cudaStream_t stream = 0) {
    store_tiles<METHOD, ROWS><<<grid, THREADS, SMEM, stream>>>(map, j);
    CHECK_LAUNCH();
  }
  template <int METHOD, int ROWS>
  void run() {
    static const char* names[] = {"none", "stores", "fragments", "tma"};
    allow_smem(store_tiles<METHOD, ROWS>, SMEM);
    CUtensorMap map = tensor_map_bf16(c, (uint64_t)MOST_TILES / TILES_WIDE * ROWS, TILES_WIDE * TILE_COLS, PITCH, ROWS, 64);
    if (METHOD != NONE) {
      Job j{c, ROWS, 2, 2 * sms, 0, 1, nullptr, nullptr};
      poison(c, (size_t)MOST_TILES / TILES_WIDE * 128 * PITCH * 2);
      CHECK(cudaMemset(wrong, 0, 8));
      launch<METHOD, ROWS>(j, map, sms);
      count_wrong<<<sms, 256>>>(c, ROWS, 2 * sms, wrong);
      require(to_host(wrong, 1)[0] == 0, std::string("epilogue_store: every element, ") + names[METHOD]);
    }
    for (int active : {1, 8, 33, 66, sms})
      for (bool fresh : {false, true})
        for (int tiles : {1, 8}) {
          std::vector<double> issued, complete;
          for (int i = 0; i < repeats + 3; ++i) {
            unsigned* gate = gates + launched++ % 1024;
            CHECK(cudaMemset(gate, 0, 4));
            int region = fresh ? MOST_TILES : active * 2;
            Job j{c, ROWS, tiles, region, fresh ? (int)((long long)launched * active * tiles % MOST_TILES) : 0, 1, gate, times};
            launch<METHOD, ROWS>(j, map, active);
            auto t = to_host(times, active);
            if (i < 3) continue;
            for (int2 x : t) issued.push_back(x.x), complete.push_back(x.y);
          }
          Json out("epilogue_store");
          out.put("part", tiles == 1 ? "gate" : "steady").put("method", names[METHOD]).put("active_sms", active);
          out.put("target", fresh ? "fresh" : "resident").put("tile_bytes", ROWS * TILE_COLS * 2).put("tiles", tiles);
          out.put("issued_cycles", median(issued)).put("complete_cycles", median(complete));
          out.put("complete_p90_cycles", quantile(complete, 0.9)).put("spread", spread(complete)).emit();
        }
    for (int wait : {0, 1})
      for (int active : {1, sms}) {
        Job j{c, ROWS, 1, active * 2, 0, wait, nullptr, nullptr};
        auto t = time_graph([&](cudaStream_t s) { launch<METHOD, ROWS>(j, map, active, s); }, 100, repeats);
        Json out("epilogue_store");
        out.put("part", "kernel").put("method", names[METHOD]).put("active_sms", active).put("target", "resident");
        out.put("tile_bytes", ROWS * TILE_COLS * 2).put("tiles", 1).put("waits", wait).put("seconds", median(t));
        out.put("spread", spread(t)).emit();
      }
  }
  template <int METHOD>
  void run_sizes() {
    run<METHOD, 16>();
    run<METHOD, 32>();
    run<METHOD, 64>();
    run<METHOD, 128>();
  }
};

int main(int argc, char** argv) {
  Args args(argc, argv);
  Bench bench;
  bench.repeats = args.get("--repeats", 15);
  warm_up_clock();
  bench.run_sizes<NONE>();
  bench.run_sizes<STORES>();
  bench.run_sizes<FRAGMENTS>();
  bench.run_sizes<TMA_STORE>();
  return 0;
}
