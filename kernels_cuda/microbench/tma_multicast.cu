/* tma_multicast: a ring of tensor-copy boxes that the CTAs of a cluster share: each asks L2 for 1 / P of a box, for all.
   Shapes     bf16 matrix (rows, 4160) of random words, a quarter of L2, read before; a stage is a box of 32..256 rows x 64
              elements (128-byte swizzle), asked for as P slices of box_rows / P rows
   Launch     P = 1, 2, 4 CTAs a cluster, one CTA an SM; one cluster or all that fit; block 64: a producer and a consumer warp
   On chip    64 or 128 KiB in flight and one stage more, dynamic
   Traffic    delivered: a box a stage into every CTA; asked of L2: 1 / P of it a CTA
   Work       none when timed                                Bound  SM or L2 rate, and the barriers between the CTAs
   Methods    multicast: slices go to every CTA of the cluster; private: the CTAs of a cluster read the same boxes, each for
              itself, so that lookups are not shared
   Order      a slot is filled again once the consumers of all P CTAs have arrived on the empty barrier of each CTA
   Checked    the words that arrived in shared memory of all CTAs, added up, against plain loads of the same boxes
   Model      fill: delivered bytes per cycle by cluster size; lookups divided by P
   Reference  PTX ISA, "cp.async.bulk.tensor", .multicast::cluster
   Targets    sm_90a sm_100a sm_103a (sm_120a: ptxas warns of slow multicast; others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v tma_multicast.cu -o tma_multicast
   Run        ./tma_multicast --repeats 9                      one JSON line a point */
#include "../common/cluster.cuh"
using namespace ts;
using u64 = unsigned long long;

constexpr int BOX_COLS = 64, COLS = 4160, PITCH_BYTES = COLS * 2, MOST_STAGES = 33, SKIPPED_TURNS = 2;
struct Matrix { unsigned char* base; int rows; };
struct Ring { int cluster, multicast, box_rows, stages, turns; };

// Boxes left to right, then down; cluster c of n begins at c / n of the matrix.
struct Walk {
  int row, col;
  __device__ Walk(const Matrix& m, int box_rows, int c, int n) {
    long long across = COLS / BOX_COLS, boxes = m.rows / box_rows * across, start = c * boxes / n;
    row = (int)(start / across) * box_rows;
    col = (int)(start % across) * BOX_COLS;
  }
  __device__ __forceinline__ void advance(const Matrix& m, int box_rows) {
    if ((col += BOX_COLS) < COLS) return;
    col = 0;
    if ((row += box_rows) == m.rows) row = 0;
  }
};
__global__ void reference(Matrix m, Ring r, u64* total) {  // one CTA a cluster
  Walk walk(m, r.box_rows, blockIdx.x, gridDim.x);
  u64 sum = 0;
  for (int i = 0; i < r.stages * r.turns; ++i, walk.advance(m, r.box_rows))
    for (int k = threadIdx.x; k < r.box_rows * 32; k += blockDim.x)
      sum += *(const uint32_t*)(m.base + (size_t)(walk.row + k / 32) * PITCH_BYTES + walk.col * 2 + k % 32 * 4);
  block_add(total, sum * r.cluster);
}

// elapsed: cycles of a CTA's consumer from the third turn to the last; hz: SM clock over the same time.
template <bool SUM>
__global__ void __launch_bounds__(64) ring(const __grid_constant__ CUtensorMap map, Matrix m, Ring r, int* elapsed, float* hz, u64* total) {
  extern __shared__ unsigned char raw[];
  __shared__ uint64_t full[MOST_STAGES], empty[MOST_STAGES];
  unsigned char* smem = align_1024(raw);
  const int rank = cluster_rank(), warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int stage_bytes = r.box_rows * BOX_COLS * 2, parties = r.multicast ? r.cluster : 1;
  const int slice_rows = r.box_rows / parties, slice = r.multicast ? rank : 0;
  const uint32_t dst = smem_u32(smem), bar_full = smem_u32(full), bar_empty = smem_u32(empty);
  if (threadIdx.x == 0) {
    prefetch_map(&map);
    for (int s = 0; s < r.stages; ++s) {
      mbar_init(bar_full + 8 * s, 1);
      mbar_init(bar_empty + 8 * s, parties);
    }
    mbar_init_fence();
  }
  __syncthreads();
  cluster_sync();  // barriers of all CTAs exist
  u64 sum = 0;
  if (warp == 0) {
    Walk walk(m, r.box_rows, blockIdx.x / r.cluster, gridDim.x / r.cluster);
    for (int turn = 0; turn < r.turns; ++turn)
      for (int s = 0; s < r.stages; ++s, walk.advance(m, r.box_rows)) {
        if (turn) mbar_wait(bar_empty + 8 * s, (turn - 1) & 1);
        __syncwarp();
        if (!elect_one()) continue;
        mbar_expect(bar_full + 8 * s, stage_bytes);
        uint32_t to = dst + s * stage_bytes + slice * slice_rows * BOX_COLS * 2;
        int row = walk.row + slice * slice_rows;
        if (r.multicast) tma_load_2d_multicast(to, &map, walk.col, row, bar_full + 8 * s, (uint16_t)((1 << r.cluster) - 1));
        else tma_load_2d(to, &map, walk.col, row, bar_full + 8 * s);
      }
  } else {
    const int lane = threadIdx.x % 32;
    const uint32_t there = at_rank(bar_empty, r.multicast && lane < parties ? lane : rank);  // lane l tells CTA l
    long long begin = 0, end = 0;
    u64 begin_ns = 0, end_ns = 0;
    for (int turn = 0; turn < r.turns; ++turn) {
      if (turn == SKIPPED_TURNS) begin = cycles(), begin_ns = globaltimer_ns();
      if (turn == r.turns - 1) end = cycles(), end_ns = globaltimer_ns();
      for (int s = 0; s < r.stages; ++s) {
        mbar_wait(bar_full + 8 * s, turn & 1);
        if (SUM)
          for (int i = lane; i < stage_bytes / 16; i += 32) sum += sum_words(((const uint4*)(smem + s * stage_bytes))[i]);
        __syncwarp();
        if (lane < parties) mbar_arrive_remote(there + 8 * s);
      }
    }
    if (lane == 0) {
      elapsed[blockIdx.x] = (int)(end - begin);
      hz[blockIdx.x] = (float)(end - begin) / (float)(end_ns - begin_ns) * 1e9f;
    }
  }
  __syncthreads();
  cluster_sync();  // no arrival or slice reaches a CTA that has gone
  if (SUM) block_add(total, sum);
}

// ---------------------------------------------------------------- host

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9), sms = sm_count();
  if (capability() < 90) return skipped("tma_multicast", "no clusters below compute capability 9.0"), 0;
  Matrix m{nullptr, device_attribute(cudaDevAttrL2CacheSize) / 4 / PITCH_BYTES / 256 * 256};
  const size_t matrix_bytes = (size_t)m.rows * PITCH_BYTES;
  m.base = device_alloc<unsigned char>(matrix_bytes);
  fill_words(m.base, matrix_bytes, 3);
  auto* elapsed = device_alloc<int>(sms);
  auto* hz = device_alloc<float>(sms);
  auto* total = device_alloc<u64>(1);
  warm_up_clock(0.1);

  for (int in_flight : {64 * 1024, 128 * 1024})
    for (int box_rows : {32, 64, 128, 256})
      for (int cluster : {1, 2, 4})
        for (int multicast : {1, 0}) {
          if (cluster == 1 && multicast) continue;
          int stage_bytes = box_rows * BOX_COLS * 2;
          Ring r{cluster, multicast, box_rows, in_flight / stage_bytes + 1, 4};
          size_t smem = std::max<size_t>(1024 + (size_t)r.stages * stage_bytes, one_cta_smem());
          if (smem + 1024 > most_smem()) continue;
          int most = most_clusters(ring<false>, cluster, 64, smem);
          require(most > 0, "tma_multicast: clusters fit");
          CUtensorMap map = tensor_map_bf16(m.base, m.rows, COLS, COLS, multicast ? box_rows / cluster : box_rows, BOX_COLS);
          for (int clusters : {1, std::min(most, sms / cluster)}) {
            ClusterLaunch launch(clusters, cluster, 64, smem);
            const int ctas = clusters * cluster;
            CHECK(cudaMemset(total, 0, 8));
            launch(ring<true>, map, m, r, elapsed, hz, total);
            u64 got = to_host(total, 1)[0];
            CHECK(cudaMemset(total, 0, 8));
            reference<<<clusters, 256>>>(m, r, total);
            u64 want = to_host(total, 1)[0];
            require(got == want && want != 0, "tma_multicast: sum of the ring");
            checksum(m.base, matrix_bytes);  // back into L2
            Ring timed = r;
            timed.turns = SKIPPED_TURNS + 1 + (int)std::max(8.0, 24e6 / ((double)r.stages * stage_bytes));
            double bytes = (double)r.stages * stage_bytes * (timed.turns - SKIPPED_TURNS - 1);
            std::vector<double> rate, all, clock;
            for (int i = 0; i < repeats + 1; ++i) {
              launch(ring<false>, map, m, timed, elapsed, hz, total);
              auto t = to_host(elapsed, ctas);
              auto f = to_host(hz, ctas);
              if (i == 0) continue;
              for (int x : t) all.push_back(bytes / x);
              rate.push_back(bytes / median(t));
              clock.push_back(median(f));
            }
            double asked = median(rate) * median(clock) * ctas / (multicast ? cluster : 1);
            Json j("tma_multicast");
            j.put("method", multicast ? "multicast" : "private").put("cluster", cluster).put("clusters", clusters).put("ctas", ctas);
            j.put("box_rows", box_rows).put("box_bytes", stage_bytes).put("slice_rows", multicast ? box_rows / cluster : box_rows);
            j.put("stages", r.stages).put("in_flight_bytes", in_flight).put("bytes_per_cycle", median(rate));
            j.put("bytes_per_cycle_p10", quantile(all, 0.1)).put("bytes_per_cycle_p90", quantile(all, 0.9));
            j.put("asked_bytes_per_s", asked).put("clock_hz", median(clock)).put("spread", spread(rate)).put("repeats", repeats).emit();
          }
        }
  return 0;
}
