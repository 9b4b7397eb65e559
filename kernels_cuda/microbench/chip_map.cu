/* chip_map: which SMs share a TPC and a GPC, and on which SM each CTA of a launch starts.
   Shapes     none
   Launch     map: clusters of 2..16 CTAs, one CTA an SM, 20 launches a size; order: plain launches and clusters of 2, 1 and 2
              CTAs an SM, all resident at once; block 128
   On chip    dynamic shared memory decides the CTAs an SM; registers as printed by ptxas (record .toml)
   Traffic    none                                            Work  none             Bound  none
   Parts      sm: one line an SM: gpc (SMs seen in one cluster, numbered by their lowest SM; an SM group that is never seen
              with others has its own number), tpc (pairs that form clusters of 2), share of the SM's clusters of 2 that were
              with that partner. order: one line a CTA of the first of 20 launches, same_share: share of the launches that
              put this CTA on the same SM. order_all: the mean of it over CTAs. Without clusters gpc and tpc are -1.
              small: one line a CTA of grids of 8 to 120 CTAs where 1 or 2 fit on an SM. small_all: prefix_share: share of these
              CTAs that are where the full grid launched just before has them, most_per_sm: CTAs on the fullest SM
   Checked    every CTA wrote an SM id; resident CTAs are spread evenly over the SMs; groups add up to the SM count
   Model      hardware_profiles: gpc.count, gpc.sms_per_gpc; order of tiles over SMs
   Reference  PTX ISA, %smid; device_limits.cu for the groups
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v chip_map.cu -o chip_map
   Run        ./chip_map                                       JSON lines: one an SM, one a CTA of the order */
#include "../common/sm_map.cuh"
using namespace ts;

void map_sms(int sms, bool clusters, int* sm_of_cta) {
  const SmMap map = find_sm_map(sms, clusters, sm_of_cta);
  for (int sm = 0; sm < sms; ++sm) {
    Json j("chip_map");
    j.put("part", "sm").put("sm", sm).put("tpc", map.tpc[sm]).put("gpc", map.gpc[sm]).put("gpc_sms", map.gpc_sms[sm]);
    j.put("partner", map.partner[sm]).put("partner_share", map.partner_share[sm]);
    j.put("spread", 0).put("repeats", MAP_ROUNDS).emit();
  }
}

// Of this much shared memory exactly `ctas_per_sm` CTAs fit: less than 1 / n, more than 1 / (n + 1), 1 KiB reserved each.
size_t smem_of(int ctas_per_sm) {
  const size_t all = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  return std::min(most_smem(), (all / ctas_per_sm - 1024) / 1024 * 1024);
}

void order_of(int sms, int ctas_per_sm, int cluster, int* sm_of_cta) {
  const size_t smem = smem_of(ctas_per_sm);
  int ctas = sms * ctas_per_sm;
  if (cluster > 1) ctas = most_clusters(where, cluster, 128, smem) * cluster;
  if (ctas == 0) return;
  int resident = 0;
  allow_smem(where, smem);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, where, 128, smem));
  require(resident == ctas_per_sm, "chip_map: CTAs an SM");
  std::vector<std::vector<int>> rounds;
  for (int round = 0; round < MAP_ROUNDS; ++round) {
    rounds.push_back(launch_and_read(ctas, cluster, smem, sm_of_cta));
    std::vector<int> load(sms);
    for (int sm : rounds.back()) ++load[sm];
    require(*std::max_element(load.begin(), load.end()) <= ctas_per_sm, "chip_map: CTAs are spread evenly");
  }
  double sum = 0;
  std::vector<double> of_round(MAP_ROUNDS, 0);
  for (int cta = 0; cta < ctas; ++cta) {
    int same = 0;
    for (int round = 1; round < MAP_ROUNDS; ++round) {
      same += rounds[round][cta] == rounds[0][cta];
      of_round[round] += (double)(rounds[round][cta] == rounds[0][cta]) / ctas;
    }
    double share = (double)same / (MAP_ROUNDS - 1);
    sum += share;
    Json j("chip_map");
    j.put("part", "order").put("ctas_per_sm", ctas_per_sm).put("cluster", cluster).put("cta", cta).put("sm", rounds[0][cta]);
    j.put("same_share", share).put("spread", 0).put("repeats", MAP_ROUNDS).emit();
  }
  of_round.erase(of_round.begin());
  Json j("chip_map");
  j.put("part", "order_all").put("ctas_per_sm", ctas_per_sm).put("cluster", cluster).put("ctas", ctas).put("same_share", sum / ctas);
  j.put("spread", spread(of_round)).put("repeats", MAP_ROUNDS).emit();
}

// Grids that leave SMs without a CTA, or some with fewer than fit.
void order_of_small(int sms, int ctas_per_sm, int ctas, int* sm_of_cta) {
  const size_t smem = smem_of(ctas_per_sm);
  std::vector<std::vector<int>> full, part;
  for (int round = 0; round < MAP_ROUNDS; ++round) {
    full.push_back(launch_and_read(sms * ctas_per_sm, 1, smem, sm_of_cta));
    part.push_back(launch_and_read(ctas, 1, smem, sm_of_cta));
  }
  std::vector<double> prefix(MAP_ROUNDS, 0), most(MAP_ROUNDS, 0);
  for (int round = 0; round < MAP_ROUNDS; ++round) {
    std::vector<int> load(sms);
    for (int cta = 0; cta < ctas; ++cta) {
      prefix[round] += (double)(part[round][cta] == full[round][cta]) / ctas;
      most[round] = std::max(most[round], (double)++load[part[round][cta]]);
    }
  }
  for (int cta = 0; cta < ctas; ++cta) {
    int same = 0;
    for (int round = 1; round < MAP_ROUNDS; ++round) same += part[round][cta] == part[0][cta];
    Json j("chip_map");
    j.put("part", "small").put("ctas_per_sm", ctas_per_sm).put("cluster", 1).put("ctas", ctas).put("cta", cta);
    j.put("sm", part[0][cta]).put("same_share", (double)same / (MAP_ROUNDS - 1)).put("spread", 0).put("repeats", MAP_ROUNDS).emit();
  }
  Json j("chip_map");
  j.put("part", "small_all").put("ctas_per_sm", ctas_per_sm).put("cluster", 1).put("ctas", ctas).put("prefix_share", median(prefix));
  j.put("most_per_sm", median(most)).put("spread", spread(prefix)).put("repeats", MAP_ROUNDS).emit();
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
  for (int ctas : {8, 16, 32, 64, 96, 120})
    for (int ctas_per_sm : {1, 2}) order_of_small(sms, ctas_per_sm, ctas, sm_of_cta);
  return 0;
}
