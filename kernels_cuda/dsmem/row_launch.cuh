/* row_launch.cuh: how the kernels of row_kernel.cuh are launched: what is legal, and which block, slots and grid a variant gets.
   Rule       choose() is the rule, from resources alone; tilesight/dsmem mirrors it. plan() adds what the GPU says
   Reference  CUDA C++ Programming Guide, "Thread Block Clusters", "Occupancy Calculator" */
#pragma once
#include <climits>
#include "row_kernel.cuh"

namespace ts {

enum Variant { CLUSTER, STAGED, REREAD };
inline const char* const VARIANTS[] = {"cluster", "staged", "reread"};

struct RowConfig {
  int variant = STAGED, protocol = ALONE, cluster = 1;
  int load = -1, block = 0, keep = -1, stages = 0, one_shot = -1;  // as choose() says unless set
  int units = 0;  // rows worked on at a time, 0: as plan() says
  int load_hint = LOAD_EVICT_FIRST, store_hint = STORE_STREAM;  // nothing is used again
  bool planted = false;
};

// What a workload holds on chip for a slice.
struct Held { int inputs, shared, batch; };

// Vectors a thread and input that kernels exist for. Registers that hold a row: 4 a vector.
constexpr int KEEPS[] = {1, 2, 4, 8, 16};
constexpr int MOST_KEPT_REGISTERS = 64, LEAST_BLOCK = 64, SMALL_BLOCK = 128;
constexpr int CTA_BYTES = 3072;  // at most, besides slots: mailbox, what the GPU takes for a CTA
constexpr bool can_keep(int keep, int inputs) { return 4 * keep * inputs <= MOST_KEPT_REGISTERS; }
constexpr int most_keep(int inputs) { return inputs == 1 ? 16 : inputs == 2 ? 8 : 4; }

inline long long slice_elements(long long cols, int cluster, int element_bytes) {
  const long long vector = 16 / element_bytes, even = (cols + cluster - 1) / cluster;
  return (even + vector - 1) / vector * vector;
}
inline int round_up(int n, int to) { return (n + to - 1) / to * to; }

// Vectors a thread and input to hold in registers: as many as there is a kernel for, unless a block of 64 threads needs fewer;
// 0 where the block can't hold the slice. block = 0: any up to 512 threads.
inline int choose_keep(int vectors, int inputs, int block) {
  int chosen = 0;
  for (int keep : KEEPS)
    if (can_keep(keep, inputs) && keep * (block ? block : MOST_BLOCK) >= vectors)
      if (chosen == 0 || (!block && vectors > LEAST_BLOCK * keep / 2)) chosen = keep;
  return chosen;
}
inline int block_that_keeps(int vectors, int keep) { return std::max(LEAST_BLOCK, round_up((vectors + keep - 1) / keep, 32)); }

// The launch rule. slice_bytes: of one input, on chip; smem: dynamic shared memory that a CTA may have. What is set stays.
//   reread    one row a CTA; one batch of vectors a thread and input, at most 512 threads
//   staged, cluster
//     load    bulk copies; split where a slot does not hold the slice: the first 512 * keep vectors of an input are loaded into
//             registers directly, the rest stays in the slot
//     keep    see choose_keep; 0 leaves the slice in its slot
//     block   just enough threads for the slice, 64 to 512; 512 with keep = 0
//     stages  one slot; two with keep = 0 where they fit, because a slot is then free only after the row is written
//     grid    persistent; one row a CTA where a single CTA can't load ahead (split, or keep = 0 with one slot)
//   staged, two or more CTAs an SM, no shared inputs: one row a CTA, one slot. Where more than 128 threads would be needed to
//             keep the row in registers, it stays in its slot (keep = 0) and the CTAs of an SM have 1024 threads together
//   rows that do not start at multiples of 16 bytes: one slot, filled element by element, persistent
inline void choose_reread(RowConfig& c, const Held& held, int vectors) {
  if (!c.block) c.block = std::min(MOST_BLOCK, round_up((vectors + held.batch - 1) / held.batch, 32));
  c.load = c.keep = c.stages = 0, c.one_shot = 1;
}
inline void choose_small(RowConfig& c, const Held& held, int vectors, int fit) {
  if (c.keep < 0) c.keep = choose_keep(vectors, held.inputs, c.block);
  if (!c.block && (c.keep == 0 || block_that_keeps(vectors, c.keep) > SMALL_BLOCK)) {
    const int shared_out = std::min(MOST_BLOCK, std::max(SMALL_BLOCK, 2 * MOST_BLOCK / fit / 32 * 32));
    c.keep = 0, c.block = std::min(shared_out, round_up(vectors, 32));
  }
  c.stages = c.one_shot = 1;
}
inline void choose(RowConfig& c, const Held& held, int slice_bytes, bool aligned, size_t smem) {
  const int vectors = std::max(1, slice_bytes / 16);
  const size_t slot = (size_t)held.inputs * slice_bytes, shared = (size_t)held.shared * slice_bytes;
  if (c.variant == REREAD) return choose_reread(c, held, vectors);
  if (c.load < 0) c.load = slot + shared <= smem ? BULK : SPLIT;
  if (!aligned) c.load = ELEMENTS, c.keep = 0, c.stages = 1, c.one_shot = std::max(0, c.one_shot);
  if (c.load == SPLIT) c.keep = most_keep(held.inputs), c.block = MOST_BLOCK;
  if (c.load != BULK) c.stages = 1;
  const int fit = (int)(smem / (slot + shared + CTA_BYTES));
  const bool alone = c.cluster == 1 && held.shared == 0, small = alone && c.load == BULK && fit >= 2;
  if (small && c.keep <= 0 && c.stages <= 1 && c.one_shot != 0) choose_small(c, held, vectors, fit);
  if (c.keep < 0) c.keep = choose_keep(vectors, held.inputs, c.block);
  if (!c.block) c.block = c.keep ? block_that_keeps(vectors, c.keep) : MOST_BLOCK;
  if (!c.stages) c.stages = c.keep == 0 && 2 * slot + shared <= smem ? 2 : 1;
  if (c.one_shot < 0) c.one_shot = alone && (c.load == SPLIT || (c.keep == 0 && c.stages == 1));
}

template <class W, class T> using RowKernel = void (*)(RowArgs<W, T>);

template <class W, class T> struct RowPlan {
  RowConfig config;
  RowKernel<W, T> kernel = nullptr;
  bool aligned = false;
  int slice = 0, slice_bytes = 0, registers = 0, ctas_per_sm = 0, active = 0, units = 0;
  size_t smem = 0;
  std::string reason;  // why it is not legal; empty when it is
};

template <class W, class T, int LOAD, int I = 0> RowKernel<W, T> keeping_kernel(int keep) {
  if constexpr (I == sizeof(KEEPS) / sizeof(int)) {
    return nullptr;
  } else {
    if constexpr (can_keep(KEEPS[I], W::INPUTS))
      if (keep == KEEPS[I]) return row_staged<W, T, LOAD, KEEPS[I]>;
    return keeping_kernel<W, T, LOAD, I + 1>(keep);
  }
}
template <class W, class T> RowKernel<W, T> row_kernel_of(const RowConfig& c, bool aligned) {
  if (c.variant == REREAD) return aligned ? row_reread<W, T, true> : row_reread<W, T, false>;
  if (c.load == ELEMENTS) return row_staged<W, T, ELEMENTS, 0>;
  if (c.load == DIRECT) return keeping_kernel<W, T, DIRECT>(c.keep);
  if (c.load == SPLIT) return c.keep == most_keep(W::INPUTS) ? row_staged<W, T, SPLIT, most_keep(W::INPUTS)> : nullptr;
  return c.keep ? keeping_kernel<W, T, BULK>(c.keep) : row_staged<W, T, BULK, 0>;
}

// Dynamic shared memory of a CTA.
template <class W, class T> size_t row_smem(const RowConfig& c, int slice_bytes) {
  if (c.variant == REREAD || c.load == DIRECT) return 0;
  if (c.load == SPLIT) return (size_t)W::INPUTS * std::max(0, slice_bytes - 16 * c.keep * c.block);
  return ((size_t)c.stages * W::INPUTS + W::SHARED) * slice_bytes;
}
// The two places that say whether a combination is legal; empty, or why it is not. This one comes before the rule.
inline std::string why_impossible(const RowConfig& c, int cols, int element_bytes) {
  if (c.variant == CLUSTER && (c.cluster < 2 || c.cluster > MOST_CLUSTER || c.cluster & (c.cluster - 1)))
    return "clusters have 2, 4, 8 or 16 CTAs, not " + std::to_string(c.cluster);
  const long long slice_bytes = slice_elements(cols, c.cluster, element_bytes) * element_bytes;
  if (slice_bytes > INT_MAX) return "a slice has " + std::to_string(slice_bytes) + " B, and offsets in it 31 bits";
  return "";
}
template <class W, class T> std::string why_illegal(const RowPlan<W, T>& p, size_t most) {
  const RowConfig& c = p.config;
  if (c.variant == CLUSTER && capability() < 90) return "no clusters below compute capability 9.0";
  if (p.smem > most) return "a slice keeps " + std::to_string(p.smem) + " B, a CTA has " + std::to_string(most);
  if (c.block < 32 || c.block > MOST_BLOCK || c.block % 32)
    return "a block has 32 to " + std::to_string(MOST_BLOCK) + " threads in whole warps, not " + std::to_string(c.block);
  if (c.stages > MOST_STAGES) return "at most " + std::to_string(MOST_STAGES) + " slots, not " + std::to_string(c.stages);
  if (c.keep > 0 && c.load != SPLIT && (long long)c.keep * c.block * 16 < p.slice_bytes) return "registers don't hold the slice";
  return p.kernel ? "" : "no kernel keeps " + std::to_string(c.keep) + " vectors";
}

template <class W, class T> RowPlan<W, T> plan(RowConfig c, int rows, int cols) {
  RowPlan<W, T> p;
  if (c.variant != CLUSTER) c.cluster = 1, c.protocol = ALONE;
  p.aligned = (size_t)cols * sizeof(T) % 16 == 0;
  p.config = c;
  p.reason = why_impossible(c, cols, sizeof(T));
  if (!p.reason.empty()) return p;
  p.slice = (int)slice_elements(cols, c.cluster, sizeof(T));
  p.slice_bytes = p.slice * (int)sizeof(T);
  const size_t most = most_smem() - sizeof(Mailbox<typename W::Partial>) - 256;
  choose(c, {W::INPUTS, W::SHARED, REREAD_BATCH<W, T>}, p.slice_bytes, p.aligned, most);
  p.config = c;
  p.smem = row_smem<W, T>(c, p.slice_bytes);
  p.kernel = row_kernel_of<W, T>(c, p.aligned);
  p.reason = why_illegal(p, most);
  if (!p.reason.empty()) return p;
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, p.kernel));
  p.registers = attributes.numRegs;
  allow_smem(p.kernel, p.smem);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&p.ctas_per_sm, p.kernel, c.block, p.smem));
  p.active = c.variant == CLUSTER ? most_clusters(p.kernel, c.cluster, c.block, p.smem) : p.ctas_per_sm * sm_count();
  if (p.active == 0) return p.reason = "no cluster of " + std::to_string(c.cluster) + " such CTAs fits on the GPU", p;
  p.units = std::min(rows, c.one_shot ? rows : c.units ? c.units : p.active);
  const int rounds = (rows + p.units - 1) / p.units;
  p.units = (rows + rounds - 1) / rounds;  // as few as take the same number of rounds
  return p;
}

template <class W, class T> struct RowLaunch {
  RowPlan<W, T> plan;
  RowArgs<W, T> args;
  RowLaunch(const RowPlan<W, T>& p, RowArgs<W, T> a, int rows, int cols) : plan(p), args(a) {
    args.rows = rows, args.cols = cols, args.slice = p.slice, args.slice_bytes = p.slice_bytes;
    args.cluster = p.config.cluster, args.stages = p.config.stages, args.protocol = p.config.protocol;
    args.load_hint = p.config.load_hint, args.store_hint = p.config.store_hint, args.planted = p.config.planted;
  }
  void operator()(cudaStream_t stream = 0) const {
    if (plan.config.cluster == 1) {
      plan.kernel<<<plan.units, plan.config.block, plan.smem, stream>>>(args);
      CHECK_LAUNCH();
    } else {
      ClusterLaunch(plan.units, plan.config.cluster, plan.config.block, plan.smem, stream)(plan.kernel, args);
    }
  }
};

}  // namespace ts
