/* row_reduce.cuh: from the partials of threads to the statistics of a row: by shuffles in a warp, through shared memory in a
   CTA, through distributed shared memory in a cluster.
   Partial    a struct of at most 8 floats with merge(other), associative up to rounding, and whose value-initialised state
              holds nothing
   Protocols  published: partials are pushed to every CTA of the cluster between two cluster barriers;
              fast: they are pushed with st.async into one of two sets of slots and counted off an mbarrier: no barrier
   Order      merges take a fixed order: a repeat gives the same bits
   Model      tilesight/dsmem: exchanges a row, bytes of partials
   Reference  Chan, Golub, LeVeque (1979) for merges; PTX ISA, "st.async", "barrier.cluster" */
#pragma once
#include "row_data.cuh"

namespace ts {

constexpr int MOST_CLUSTER = 16, MOST_WARPS = 16, MOST_STAGES = 8;

enum Protocol { ALONE, PUBLISHED, FAST };
inline const char* const PROTOCOLS[] = {"none", "published", "fast"};

// A partial in 16-byte pieces.
template <class Partial> struct Packed {
  static constexpr int WORDS = sizeof(Partial) / 4, PIECES = (WORDS + 3) / 4;
  static_assert(WORDS <= 8, "partials are at most 8 floats");
  float4 piece[PIECES];
  __device__ static Packed from(const Partial& p) {
    Packed out{};
#pragma unroll
    for (int i = 0; i < WORDS; ++i) ((float*)out.piece)[i] = ((const float*)&p)[i];
    return out;
  }
  __device__ Partial partial() const {
    Partial p;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) ((float*)&p)[i] = ((const float*)piece)[i];
    return p;
  }
};

// Static shared memory of a CTA: barriers of its copies, partials of its warps, slots that other CTAs write.
template <class Partial> struct Mailbox {
  Packed<Partial> warps[2][MOST_WARPS];
  Packed<Partial> slots[2][MOST_CLUSTER];
  uint64_t arrived[2];       // of the two sets of slots
  uint64_t full[MOST_STAGES];
};

// Merges the partials of groups of `width` lanes, a power of two. The result is in all lanes, in each by its own order of
// operands: the same bits where merge commutes.
template <class Partial> __device__ __forceinline__ Partial merge_lanes(Partial mine, int width) {
  for (int step = 1; step < width; step *= 2) {
    Partial other;
#pragma unroll
    for (int i = 0; i < Packed<Partial>::WORDS; ++i)
      ((float*)&other)[i] = __shfl_xor_sync(~0u, ((const float*)&mine)[i], step);
    mine.merge(other);
  }
  return mine;
}
template <class Partial> __device__ __forceinline__ Partial merge_warp(Partial mine) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    Partial other;
#pragma unroll
    for (int i = 0; i < Packed<Partial>::WORDS; ++i)
      ((float*)&other)[i] = __shfl_xor_sync(~0u, ((const float*)&mine)[i], step);
    mine.merge(other);
  }
  return mine;
}
// Merges `count` stored partials; all lanes of the warp call it and get the result.
template <class Partial>
__device__ __forceinline__ Partial merge_stored(const Packed<Partial>* stored, int count) {
  const int lane = threadIdx.x % 32, width = count > 1 ? 1 << (32 - __clz(count - 1)) : 1, at = lane & (width - 1);
  return merge_lanes(at < count ? stored[at].partial() : Partial{}, width);
}

// Merges over the CTAs of the cluster. `mine`: this CTA's partial, in all lanes of warp 0. `turn` counts exchanges.
// planted: leaves out the barrier that makes the slots of others visible, so that a race checker has something to find.
template <class Partial>
__device__ __forceinline__ Partial exchange(Mailbox<Partial>& box, const Partial& mine, int turn, int cluster, int rank,
                                            int protocol, bool planted) {
  constexpr int PIECES = Packed<Partial>::PIECES;
  const int set = protocol == FAST ? turn & 1 : 0, lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    const Packed<Partial> packed = Packed<Partial>::from(mine);
    const uint32_t bar = smem_u32(&box.arrived[set]), slot = smem_u32(&box.slots[set][rank]);
    if (protocol == FAST && lane == 0) mbar_expect(bar, cluster * PIECES * 16);
    if (lane < cluster * PIECES) {
      const int peer = lane / PIECES, part = lane % PIECES;
      const float4 piece = PIECES == 1 || part == 0 ? packed.piece[0] : packed.piece[PIECES - 1];
      const uint32_t there = at_rank(slot + 16 * part, peer);
      if (protocol == FAST) store_async_16(there, piece, at_rank(bar, peer));
      else store_remote_16(there, piece);
    }
    __syncwarp();
  }
  if (protocol == FAST) mbar_wait_cluster(smem_u32(&box.arrived[set]), (turn >> 1) & 1);
  else if (!planted) cluster_sync();
  const Partial all = merge_stored(box.slots[set], cluster);
  if (protocol == PUBLISHED) cluster_sync();
  return all;
}

// All threads call it once a row with their own partials; everyone gets the statistics of the row. One __syncthreads a row:
// what a thread did before it is done for the CTA, and `after` is run by thread 0 then.
template <class Partial, class After>
__device__ __forceinline__ Partial reduce_row(Mailbox<Partial>& box, Partial mine, int turn, int cluster, int rank, int protocol,
                                              bool planted, After after) {
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  mine = merge_warp(mine);
  if (threadIdx.x % 32 == 0) box.warps[turn & 1][warp] = Packed<Partial>::from(mine);
  __syncthreads();
  if (threadIdx.x == 0) after();
  if (protocol == ALONE) return merge_stored(box.warps[turn & 1], warps);
  if (warp == 0) mine = merge_stored(box.warps[turn & 1], warps);
  return exchange(box, mine, turn, cluster, rank, protocol, planted);
}

}  // namespace ts
