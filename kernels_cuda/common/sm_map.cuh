/* sm_map.cuh: which SMs share a TPC and a GPC, found from the clusters that form, and where the CTAs of a launch are.
   Method     SMs seen in one cluster (2 to 16 CTAs, one CTA an SM) are of one GPC; two SMs that always form clusters of 2 with
              each other are a TPC
   Limits     TPCs that the scheduler never combines with others stay groups of their own; without clusters (sm_80, sm_89) all
              groups are -1
   Reference  PTX ISA, %smid; CUDA C++ Programming Guide, "Thread Block Clusters" */
#pragma once
#include <map>
#include <numeric>

#include "cluster.cuh"

namespace ts {

constexpr int MAP_ROUNDS = 20;

static __global__ void __launch_bounds__(128) where(int* sm_of_cta) {
  if (threadIdx.x != 0) return;
  sm_of_cta[blockIdx.x] = smid();
  for (long long start = cycles(); cycles() - start < 60000;) {}  // stay, so that all SMs are needed
}

inline std::vector<int> launch_and_read(int ctas, int cluster, size_t smem, int* sm_of_cta) {
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
  for (int sm : seen) require(sm >= 0 && sm < sm_count(), "sm_map: a CTA wrote no SM id");
  return seen;
}

struct Groups {  // disjoint sets of SM ids, each named by its lowest
  std::vector<int> parent;
  explicit Groups(int n) : parent(n) { std::iota(parent.begin(), parent.end(), 0); }
  int find(int a) { return parent[a] == a ? a : parent[a] = find(parent[a]); }
  void join(int a, int b) { parent[std::max(find(a), find(b))] = std::min(find(a), find(b)); }
};

struct SmMap {                                     // one entry an SM
  std::vector<int> gpc, gpc_sms, tpc, partner;     // gpc, tpc: numbered by their lowest SM; partner: -1 if none
  std::vector<double> partner_share;               // of the SM's clusters of 2 that were with that partner
};

inline SmMap find_sm_map(int sms, bool clusters, int* sm_of_cta) {
  Groups gpcs(sms);
  std::vector<std::map<int, int>> partners(sms);  // of each SM: times seen in one cluster of 2
  if (clusters)
    for (int cluster : {2, 4, 6, 8, 10, 12, 14, 16}) {
      if (most_clusters(where, cluster, 128, one_cta_smem()) == 0) continue;
      for (int round = 0; round < MAP_ROUNDS; ++round) {
        auto seen = launch_and_read(sms * 4 / cluster * cluster, cluster, one_cta_smem(), sm_of_cta);
        for (size_t cta = 0; cta < seen.size(); ++cta) gpcs.join(seen[cta / cluster * cluster], seen[cta]);
        for (size_t cta = 0; cluster == 2 && cta < seen.size(); ++cta) ++partners[seen[cta]][seen[cta ^ 1]];
      }
    }
  SmMap map{std::vector<int>(sms, -1), std::vector<int>(sms, -1), std::vector<int>(sms, -1), std::vector<int>(sms, -1),
            std::vector<double>(sms, 0)};
  std::map<int, int> gpc_number, tpc_number, gpc_size;
  for (int sm = 0; sm < sms; ++sm) {
    int times = 0, all = 0;
    for (auto [other, count] : partners[sm]) {
      all += count;
      if (count > times) times = count, map.partner[sm] = other;
    }
    map.partner_share[sm] = all ? (double)times / all : 0;
    gpc_number.emplace(gpcs.find(sm), (int)gpc_number.size());
    ++gpc_size[gpcs.find(sm)];
  }
  int total = 0;
  for (auto [first, size] : gpc_size) total += size;
  require(total == sms, "sm_map: groups of SMs add up");
  if (!clusters) return map;
  for (int sm = 0; sm < sms; ++sm) {
    bool pair = map.partner[sm] >= 0 && map.partner[map.partner[sm]] == sm;
    int first = pair ? std::min(sm, map.partner[sm]) : sm;
    map.tpc[sm] = tpc_number.emplace(first, (int)tpc_number.size()).first->second;
    map.gpc[sm] = gpc_number[gpcs.find(sm)];
    map.gpc_sms[sm] = gpc_size[gpcs.find(sm)];
  }
  return map;
}

}  // namespace ts
