/* chip_map: which SMs share a TPC and a GPC, and on which SM each CTA of a launch starts.
   Shapes     none
   Launch     map: clusters of 2..16 CTAs, one CTA an SM, 20 launches a size; order: plain launches and clusters of 2, 1 and 2
              CTAs an SM, all resident at once; block 128
   On chip    dynamic shared memory decides the CTAs an SM; registers as printed by ptxas (record .toml)
   Traffic    none                                            Work  none             Bound  none
   Parts      sm: one line an SM: gpc (SMs seen in one cluster, numbered by their lowest SM; an SM group that is never seen
              with others has its own number), tpc (pairs that form clusters of 2), share of the SM's clusters of 2 that were
              with that partner. order: one line a CTA of the first of 20 launches, same_share: share of the launches that
              put this CTA on the same SM. order_all: the mean of it over CTAs. Without clusters gpc and tpc are -1
   Checked    every CTA wrote an SM id; resident CTAs are spread evenly over the SMs; groups add up to the SM count
   Model      hardware_profiles: gpc.count, gpc.sms_per_gpc; order of tiles over SMs
   Reference  PTX ISA, %smid; device_limits.cu for the groups
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v chip_map.cu -o chip_map
   Run        ./chip_map                                       JSON lines: one an SM, one a CTA of the order */
#include <map>
#include <numeric>

#include "../common/cluster.cuh"
using namespace ts;

constexpr int ROUNDS = 20;

__global__ void __launch_bounds__(128) where(int* sm_of_cta) {
  if (threadIdx.x != 0) return;
  sm_of_cta[blockIdx.x] = smid();
  for (long long start = cycles(); cycles() - start < 60000;) {}  // stay, so that all SMs are needed
}

std::vector<int> launch_and_read(int ctas, int cluster, size_t smem, int* sm_of_cta) {
  poison(sm_of_cta, ctas * sizeof(int));
  if (cluster == 1) {
    allow_smem(where, smem);
    where<<<ctas, 128, smem>>>(sm_of_cta);
    CHECK_LAUNCH();
  } else {
    ClusterLaunch launch(ctas / cluster, cluster, 128, smem);
    launch(where, sm_of_cta);
  }
  auto seen = to_host(sm_of_cta, ctas);
  for (int sm : seen) require(sm >= 0 && sm < sm_count(), "chip_map: a CTA wrote no SM id");
  return seen;
}

struct Groups {  // disjoint sets of SM ids, each named by its lowest
  std::vector<int> parent;
  explicit Groups(int n) : parent(n) { std::iota(parent.begin(), parent.end(), 0); }
  int find(int a) { return parent[a] == a ? a : parent[a] = find(parent[a]); }
  void join(int a, int b) { parent[std::max(find(a), find(b))] = std::min(find(a), find(b)); }
};

void map_sms(int sms, bool clusters, int* sm_of_cta) {
  Groups gpcs(sms);
  std::vector<std::map<int, int>> partners(sms);  // of each SM: times seen in one cluster of 2
  if (clusters)
    for (int cluster : {2, 4, 6, 8, 10, 12, 14, 16}) {
      if (most_clusters(where, cluster, 128, one_cta_smem()) == 0) continue;
      for (int round = 0; round < ROUNDS; ++round) {
        auto seen = launch_and_read(sms * 4 / cluster * cluster, cluster, one_cta_smem(), sm_of_cta);
        for (size_t cta = 0; cta < seen.size(); ++cta) gpcs.join(seen[cta / cluster * cluster], seen[cta]);
        for (size_t cta = 0; cluster == 2 && cta < seen.size(); ++cta) ++partners[seen[cta]][seen[cta ^ 1]];
      }
    }
  std::map<int, int> gpc_number, tpc_number, gpc_size;
  std::vector<int> partner(sms, -1);
  std::vector<double> share(sms, 0);
  for (int sm = 0; sm < sms; ++sm) {
    int times = 0, all = 0;
    for (auto [other, count] : partners[sm]) {
      all += count;
      if (count > times) times = count, partner[sm] = other;
    }
    share[sm] = all ? (double)times / all : 0;
    gpc_number.emplace(gpcs.find(sm), (int)gpc_number.size());
    ++gpc_size[gpcs.find(sm)];
  }
  int total = 0;
  for (auto [first, size] : gpc_size) total += size;
  require(total == sms, "chip_map: groups of SMs add up");
  for (int sm = 0; sm < sms; ++sm) {
    bool pair = partner[sm] >= 0 && partner[partner[sm]] == sm;
    int first = pair ? std::min(sm, partner[sm]) : sm;
    int tpc = clusters ? tpc_number.emplace(first, (int)tpc_number.size()).first->second : -1;
    Json j("chip_map");
    j.put("part", "sm").put("sm", sm).put("tpc", tpc).put("gpc", clusters ? gpc_number[gpcs.find(sm)] : -1);
    j.put("gpc_sms", clusters ? gpc_size[gpcs.find(sm)] : -1).put("partner", partner[sm]).put("partner_share", share[sm]);
    j.put("spread", 0).put("repeats", ROUNDS).emit();
  }
}

void order_of(int sms, int ctas_per_sm, int cluster, int* sm_of_cta) {
  // Of this much shared memory exactly `ctas_per_sm` CTAs fit: less than 1 / n, more than 1 / (n + 1), 1 KiB reserved each.
  const size_t all = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  const size_t smem = std::min(most_smem(), (all / ctas_per_sm - 1024) / 1024 * 1024);
  int ctas = sms * ctas_per_sm;
  if (cluster > 1) ctas = most_clusters(where, cluster, 128, smem) * cluster;
  if (ctas == 0) return;
  int resident = 0;
  allow_smem(where, smem);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, where, 128, smem));
  require(resident == ctas_per_sm, "chip_map: CTAs an SM");
  std::vector<std::vector<int>> rounds;
  for (int round = 0; round < ROUNDS; ++round) {
    rounds.push_back(launch_and_read(ctas, cluster, smem, sm_of_cta));
    std::vector<int> load(sms);
    for (int sm : rounds.back()) ++load[sm];
    require(*std::max_element(load.begin(), load.end()) <= ctas_per_sm, "chip_map: CTAs are spread evenly");
  }
  double sum = 0;
  std::vector<double> of_round(ROUNDS, 0);
  for (int cta = 0; cta < ctas; ++cta) {
    int same = 0;
    for (int round = 1; round < ROUNDS; ++round) {
      same += rounds[round][cta] == rounds[0][cta];
      of_round[round] += (double)(rounds[round][cta] == rounds[0][cta]) / ctas;
    }
    double share = (double)same / (ROUNDS - 1);
    sum += share;
    Json j("chip_map");
    j.put("part", "order").put("ctas_per_sm", ctas_per_sm).put("cluster", cluster).put("cta", cta).put("sm", rounds[0][cta]);
    j.put("same_share", share).put("spread", 0).put("repeats", ROUNDS).emit();
  }
  of_round.erase(of_round.begin());
  Json j("chip_map");
  j.put("part", "order_all").put("ctas_per_sm", ctas_per_sm).put("cluster", cluster).put("ctas", ctas).put("same_share", sum / ctas);
  j.put("spread", spread(of_round)).put("repeats", ROUNDS).emit();
}

int main() {
  const int sms = sm_count();
  const bool clusters = capability() >= 90;
  auto* sm_of_cta = device_alloc<int>(8 * sms + 64);
  warm_up_clock(0.1);
  map_sms(sms, clusters, sm_of_cta);
  for (int cluster : {1, 2})
    for (int ctas_per_sm : {1, 2})
      if (cluster == 1 || clusters) order_of(sms, ctas_per_sm, cluster, sm_of_cta);
  return 0;
}
