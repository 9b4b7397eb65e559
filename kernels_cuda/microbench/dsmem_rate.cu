/* dsmem_rate: bytes per cycle of a CTA that loads from or stores to shared memory, its own or that of other CTAs.
   Shapes     in each CTA `unroll` rows of block * width bytes; a thread always uses its own word (or 16 bytes) of a row
   Launch     P = 1, 2, 4, 8, 16 CTAs a cluster (16: non-portable), one CTA an SM, one cluster or all that fit; block 256, 512
   On chip    half of an SM's shared memory dynamic, so that one CTA fits; registers as printed by ptxas (record .toml)
   Traffic    width bytes a thread and access; every CTA of a cluster both asks and is asked
   Work       one addition a word when loading               Bound  latency (unroll 1), links between SMs (unroll 8)
   Operations load, store, async (st.async, counted on the mbarrier of the CTA that is written), width 4 or 16 bytes
   Targets of local: shared::cta; self: the own CTA through the window of the cluster; next: rank + 1; all: the other ranks in turn, a
   access     different one for each warp and row
   In flight  a thread asks for `unroll` words, then needs them all before the next; stores follow without a wait
   Timed      loads: until every warp has its words; stores: with the closing barrier of the cluster (release, acquire);
              async: until the own mbarrier has counted every byte, less than 1 MiB a launch
   Checked    loads: the sum of each CTA; stores: the words found afterwards in each CTA; both against the host's
   Model      dsmem: local and remote rates of loads and stores. One CTA of 256 threads with 4-byte accesses and unroll 1 is
              the loop of published probes
   Reference  PTX ISA, "ld", "st", "st.async", "mapa"
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v dsmem_rate.cu -o dsmem_rate
   Run        ./dsmem_rate --repeats 7                         one JSON line a point */
#include "../common/cluster.cuh"
using namespace ts;
using u64 = unsigned long long;

enum Operation { LOAD, STORE, ASYNC };
enum Target { LOCAL, SELF, NEXT, ALL };
const char* const OPERATIONS[] = {"load", "store", "async"};
const char* const TARGETS[] = {"local", "self", "next", "all"};

__host__ __device__ inline uint32_t word_of(int rank, int i) { return hash32(((uint64_t)rank << 32) + i); }
// The rank that warp `warp` of `rank` uses for its row `row`: for each warp and row another permutation of the ranks.
__host__ __device__ inline int partner(int target, int rank, int row, int warp, int cluster) {
  if (target == LOCAL || target == SELF || cluster == 1) return rank;
  return target == NEXT ? (rank + 1) % cluster : (rank + 1 + (row + warp) % (cluster - 1)) % cluster;
}

// Addresses: `low` in shared::cta or, with `high`, a generic address in the window of the cluster.
template <int WIDTH, bool CTA> __device__ __forceinline__ uint32_t load(uint32_t low, uint32_t high) {
  if (WIDTH == 4) return CTA ? load_local(low) : load_generic(low, high);
  uint32_t a, b, c, d;
  if (CTA) asm volatile("ld.shared::cta.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(low) : "memory");
  else
    asm volatile("{\n.reg .b64 p;\nmov.b64 p, {%4, %5};\nld.v4.u32 {%0, %1, %2, %3}, [p];\n}"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(low), "r"(high) : "memory");
  return a + b + c + d;
}
// Stores v once or four times; `bar` is an mbarrier of the same CTA (shared::cluster).
template <int OP, int WIDTH, bool CTA> __device__ __forceinline__ void store(uint32_t low, uint32_t high, uint32_t v, uint32_t bar) {
  if (OP == ASYNC && WIDTH == 4) store_async(low, v, bar);
  else if (OP == ASYNC)
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %1, %1, %1}, [%2];" ::"r"(low), "r"(v),
                 "r"(bar) : "memory");
  else if (WIDTH == 4) CTA ? store_local(low, v) : store_generic(low, high, v);
  else if (CTA) asm volatile("st.shared::cta.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(low), "r"(v) : "memory");
  else
    asm volatile("{\n.reg .b64 p;\nmov.b64 p, {%0, %1};\nst.v4.u32 [p], {%2, %2, %2, %2};\n}" ::"r"(low), "r"(high), "r"(v) : "memory");
}

// sums: per CTA, words loaded (LOAD) or words found afterwards (STORE, ASYNC). `zero` is 0, which the compiler can't know.
template <int OP, int WIDTH, int UNROLL, bool CTA>
__global__ void __launch_bounds__(512) move(int target, int cluster, int steps, uint32_t zero, int* elapsed, u64* sums) {
  extern __shared__ __align__(16) uint32_t rows[];
  __shared__ uint64_t counted;
  // A store that the next one overwrites would vanish: stores go round RING sets of rows.
  constexpr int RING = OP != LOAD && UNROLL == 1 ? 4 : 1;
  const int rank = cluster_rank(), row_bytes = blockDim.x * WIDTH, words = RING * UNROLL * row_bytes / 4;
  for (int i = threadIdx.x; i < words; i += blockDim.x) rows[i] = OP == LOAD ? word_of(rank, i) : 0xFFFFFFFFu;
  if (threadIdx.x == 0) {
    mbar_init(smem_u32(&counted), 1);
    mbar_init_fence();
    if (OP == ASYNC) mbar_expect(smem_u32(&counted), steps * UNROLL * row_bytes);
  }
  uint32_t at[UNROLL], bar[UNROLL], value[UNROLL], high = 0;
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    uint32_t there = partner(target, rank, u, threadIdx.x / 32, cluster), mine = smem_u32(rows) + u * row_bytes + threadIdx.x * WIDTH;
    uint64_t generic = generic_at_rank(mine, there);
    at[u] = CTA ? mine : OP == ASYNC ? at_rank(mine, there) : (uint32_t)generic;
    high = (uint32_t)(generic >> 32);
    bar[u] = at_rank(smem_u32(&counted), there);
    value[u] = word_of(rank, (u * row_bytes + threadIdx.x * WIDTH) / 4);
  }
  u64 sum = 0;
  __syncthreads();
  cluster_sync();
  long long begin = cycles();
  for (int step = 0; step < steps; ++step) {
    if (OP == LOAD) {
      uint32_t v[UNROLL], any = 0;
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) v[u] = load<WIDTH, CTA>(at[u], high);
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) sum += v[u], any |= v[u];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) at[u] += any & zero;  // the next loads need these
    } else {
#pragma unroll
      for (int u = 0; u < UNROLL; ++u)
        store<OP, WIDTH, CTA>(at[u] + step % RING * (UNROLL * row_bytes), high, value[u], bar[u]);
    }
  }
  if (OP == LOAD) __syncthreads();
  if (OP == STORE) cluster_sync();
  if (OP == ASYNC) mbar_wait_cluster(smem_u32(&counted), 0);
  long long end = cycles();
  __syncthreads();
  cluster_sync();  // everybody has finished with everybody's memory
  if (OP != LOAD)
    for (int i = threadIdx.x; i < words; i += blockDim.x) sum += rows[i];
  block_add(sums + blockIdx.x, sum);
  if (threadIdx.x == 0) elapsed[blockIdx.x] = (int)(end - begin);
}

// ---------------------------------------------------------------- host

// What the CTA of each rank must report: a load adds its partner's words (the four of 16 bytes modulo 2^32 first), a store
// leaves its own first word in the partner, four times for 16 bytes.
std::vector<u64> expected(int op, int width, int unroll, int target, int cluster, int block, int steps) {
  const int ring = unroll == 1 ? 4 : 1;  // sets of rows that stores fill
  std::vector<u64> sums(cluster);
  for (int rank = 0; rank < cluster; ++rank)
    for (int u = 0; u < unroll; ++u)
      for (int t = 0; t < block; ++t) {
        int to = partner(target, rank, u, t / 32, cluster), first = (u * block + t) * width / 4;
        uint32_t loaded = 0;
        for (int k = 0; k < width / 4; ++k) {
          if (op == LOAD) loaded += word_of(to, first + k);
          else sums[to] += word_of(rank, first) * (u64)ring;
        }
        sums[rank] += (u64)loaded * steps;
      }
  return sums;
}

template <int OP, int WIDTH, int UNROLL, bool CTA>
void measure(Target target, int cluster, int clusters, int block, int repeats, int* elapsed, u64* sums) {
  auto kernel = move<OP, WIDTH, UNROLL, CTA>;
  const int step_bytes = UNROLL * WIDTH * block, steps = std::min(256, ((1 << 20) - 1) / step_bytes), ctas = clusters * cluster;
  const size_t smem = std::max<size_t>(one_cta_smem(), (OP != LOAD && UNROLL == 1 ? 4 : 1) * step_bytes);
  if (smem + 1024 > most_smem()) return;
  const auto want = expected(OP, WIDTH, UNROLL, target, cluster, block, steps);
  ClusterLaunch launch(clusters, cluster, block, smem);
  std::vector<double> rate, all;
  for (int i = 0; i < repeats + 1; ++i) {
    CHECK(cudaMemset(sums, 0, ctas * sizeof(u64)));
    launch(kernel, (int)target, cluster, steps, 0u, elapsed, sums);
    auto t = to_host(elapsed, ctas);
    auto s = to_host(sums, ctas);
    for (int c = 0; c < ctas; ++c)
      require(s[c] == want[c % cluster], std::string("dsmem_rate: sum, ") + OPERATIONS[OP] + " " + TARGETS[target]);
    if (i == 0) continue;
    for (int x : t) all.push_back((double)step_bytes * steps / x);
    rate.push_back((double)step_bytes * steps / median(t));
  }
  Json j("dsmem_rate");
  j.put("operation", OPERATIONS[OP]).put("target", TARGETS[target]).put("width_bytes", WIDTH).put("unroll", UNROLL);
  j.put("cluster", cluster).put("clusters", clusters).put("block", block).put("bytes", step_bytes * steps);
  j.put("bytes_per_cycle", median(rate)).put("bytes_per_cycle_p10", quantile(all, 0.1)).put("bytes_per_cycle_p90", quantile(all, 0.9));
  j.put("cycles_per_access", WIDTH * block / median(rate)).put("spread", spread(rate)).put("repeats", repeats).emit();
}

template <int WIDTH, int UNROLL>
void measure_all(int cluster, int clusters, int block, int repeats, int* elapsed, u64* sums) {
  if (cluster <= 2) {
    measure<LOAD, WIDTH, UNROLL, true>(LOCAL, cluster, clusters, block, repeats, elapsed, sums);
    measure<STORE, WIDTH, UNROLL, true>(LOCAL, cluster, clusters, block, repeats, elapsed, sums);
  }
  for (Target target : {SELF, NEXT, ALL}) {
    if (target == SELF ? cluster > 2 : cluster == 1 || (target == ALL && cluster == 2)) continue;
    measure<LOAD, WIDTH, UNROLL, false>(target, cluster, clusters, block, repeats, elapsed, sums);
    measure<STORE, WIDTH, UNROLL, false>(target, cluster, clusters, block, repeats, elapsed, sums);
    measure<ASYNC, WIDTH, UNROLL, false>(target, cluster, clusters, block, repeats, elapsed, sums);
  }
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 7), sms = sm_count();
  if (capability() < 90) return skipped("dsmem_rate", "no clusters below compute capability 9.0"), 0;
  auto* elapsed = device_alloc<int>(sms);
  auto* sums = device_alloc<u64>(sms);
  warm_up_clock(0.1);
  for (int cluster : {1, 2, 4, 8, 16}) {
    int most = std::min(most_clusters(move<LOAD, 4, 1, false>, cluster, 512, one_cta_smem()), sms / cluster);
    if (most == 0) continue;
    for (int clusters : {1, most})
      for (int block : {256, 512}) {
        measure_all<4, 1>(cluster, clusters, block, repeats, elapsed, sums);
        measure_all<4, 8>(cluster, clusters, block, repeats, elapsed, sums);
        measure_all<16, 1>(cluster, clusters, block, repeats, elapsed, sums);
        measure_all<16, 8>(cluster, clusters, block, repeats, elapsed, sums);
      }
  }
  return 0;
}
