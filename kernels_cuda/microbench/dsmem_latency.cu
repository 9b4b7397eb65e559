/* dsmem_latency: cycles of one dependent 4-byte load of the own CTA's or another CTA's shared memory.
   Shapes     a chain of 256 words in random order, each the address of the next, in the shared memory of one CTA
   Launch     P = 1, 2, 4, 8, 16 CTAs a cluster (16: non-portable), one CTA an SM, one cluster or all that fit; block 32, one
              thread follows the chain
   On chip    half of an SM's shared memory dynamic, so that one CTA fits; registers as printed by ptxas (record .toml)
   Traffic    4 B a load
   Work       none                                           Bound  latency
   Methods    local: ld.shared::cta; self: the own CTA through the window of the cluster (mapa, then a generic load, to which
              ld.shared::cluster is compiled too); peer: the CTA `distance` ranks further (mod P) through it
   Active     one: only rank 0 loads; all: every rank follows a chain in another CTA at the same time
   Checked    where the chain ends, the chain against the host's order, and that it lies in the CTA that was meant
   Model      dsmem: latency of a local and of a remote load, by distance
   Reference  PTX ISA, "ld", "mapa"
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v dsmem_latency.cu -o dsmem_latency
   Run        ./dsmem_latency --repeats 11                     one JSON line a point */
#include <numeric>
#include <random>

#include "../common/cluster.cuh"
using namespace ts;
using u64 = unsigned long long;

constexpr int WORDS = 256, UNROLL = 16;
enum Method { LOCAL, SELF, PEER };
const char* const NAMES[] = {"local", "self", "peer"};

// next: (WORDS) index after each index. For each CTA: cycles of the loads; index of the last one; sum of i * next[i] over
// the chain that was written into its own shared memory (0 where none was).
template <int METHOD>
__global__ void __launch_bounds__(32) chase(const int* next, int cluster, int distance, int active, int loads, int* elapsed, int* last,
                                            u64* written) {
  extern __shared__ uint32_t chain[];
  const uint32_t rank = cluster_rank(), own = smem_u32(chain), target = (rank + distance) % cluster;
  for (int i = threadIdx.x; i < WORDS; i += 32) chain[i] = 0;
  __syncthreads();
  cluster_sync();
  if (threadIdx.x == 0 && (int)rank < active) {
    const uint64_t there = generic_at_rank(own, target);
    const uint32_t base = METHOD == LOCAL ? own : (uint32_t)there, high = (uint32_t)(there >> 32);
    for (int i = 0; i < WORDS; ++i) {
      uint32_t value = base + 4 * next[i];
      if (METHOD == LOCAL) store_local(base + 4 * i, value);
      else store_generic(base + 4 * i, high, value);
    }
    uint32_t at = base;
    for (int i = 0; i < WORDS; ++i) at = METHOD == LOCAL ? load_local(at) : load_generic(at, high);  // the code is fetched
    long long begin = cycles();
    for (int i = 0; i < loads; i += UNROLL)
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) at = METHOD == LOCAL ? load_local(at) : load_generic(at, high);
    long long end = cycles();
    last[blockIdx.x] = (int)(at - base) / 4;
    elapsed[blockIdx.x] = (int)(end - begin);
  }
  __syncthreads();
  cluster_sync();
  if (threadIdx.x == 0) {  // addresses are those of the window that the writer used: only differences count
    u64 sum = 0;
    for (int i = 0; i < WORDS; ++i) sum += (u64)(i * ((int)(chain[i] - chain[0]) / 4 + next[0]));
    written[blockIdx.x] = chain[0] ? sum : 0;
  }
}

template <int METHOD>
void measure(int cluster, int distance, int active, int clusters, int loads, int repeats, const std::vector<int>& order, const int* next,
             int* elapsed, int* last, u64* written) {
  ClusterLaunch launch(clusters, cluster, 32, one_cta_smem());
  const int ctas = clusters * cluster;
  std::vector<double> per_load, all;
  for (int i = 0; i < repeats + 1; ++i) {
    poison(elapsed, ctas * sizeof(int));
    poison(last, ctas * sizeof(int));
    poison(written, ctas * sizeof(u64));
    launch(chase<METHOD>, next, cluster, distance, active, loads, elapsed, last, written);
    auto t = to_host(elapsed, ctas), l = to_host(last, ctas);
    auto w = to_host(written, ctas);
    int expected = 0;
    u64 sum = 0;
    for (int k = 0; k < loads + WORDS; ++k) expected = order[expected];
    for (int k = 0; k < WORDS; ++k) sum += (u64)(k * order[k]);
    std::vector<double> of_launch;
    for (int c = 0; c < ctas; ++c) {
      int rank = c % cluster, writer = (rank - distance + cluster) % cluster;
      require(w[c] == (writer < active ? sum : 0), "dsmem_latency: the chain lies in the CTA that was meant");
      if (rank >= active) continue;
      require(l[c] == expected, "dsmem_latency: end of the chain");
      of_launch.push_back((double)t[c] / loads);
    }
    if (i == 0) continue;
    per_load.push_back(median(of_launch));
    all.insert(all.end(), of_launch.begin(), of_launch.end());
  }
  Json j("dsmem_latency");
  j.put("method", NAMES[METHOD]).put("cluster", cluster).put("distance", distance).put("clusters", clusters);
  j.put("active", active == 1 ? "one" : "all").put("loads", loads).put("cycles_per_load", median(per_load));
  j.put("cycles_per_load_p10", quantile(all, 0.1)).put("cycles_per_load_p90", quantile(all, 0.9));
  j.put("spread", spread(per_load)).put("repeats", repeats).emit();
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 11), loads = args.get("--loads", 512) / UNROLL * UNROLL, sms = sm_count();
  if (capability() < 90) return skipped("dsmem_latency", "no clusters below compute capability 9.0"), 0;
  std::vector<int> shuffled(WORDS), order(WORDS);
  std::iota(shuffled.begin(), shuffled.end(), 0);
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(7));
  for (int i = 0; i < WORDS; ++i) order[shuffled[i]] = shuffled[(i + 1) % WORDS];
  auto* next = device_alloc<int>(WORDS);
  CHECK(cudaMemcpy(next, order.data(), WORDS * sizeof(int), cudaMemcpyHostToDevice));
  auto *elapsed = device_alloc<int>(sms), *last = device_alloc<int>(sms);
  auto* written = device_alloc<u64>(sms);
  warm_up_clock(0.1);

  for (int cluster : {1, 2, 4, 8, 16}) {
    int most = std::min(most_clusters(chase<PEER>, cluster, 32, one_cta_smem()), sms / cluster);
    if (most == 0) continue;
    for (int clusters : {1, most}) {
      measure<LOCAL>(cluster, 0, cluster, clusters, loads, repeats, order, next, elapsed, last, written);
      measure<SELF>(cluster, 0, cluster, clusters, loads, repeats, order, next, elapsed, last, written);
      for (int distance = 1; distance < cluster; ++distance)
        for (int active : {1, cluster}) {
          if (clusters > 1 && active == 1) continue;
          measure<PEER>(cluster, distance, active, clusters, loads, repeats, order, next, elapsed, last, written);
        }
    }
  }
  return 0;
}
