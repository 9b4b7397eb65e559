/* row_kernel.cuh: kernels of reduction-reuse workloads: a row is reduced to a few statistics, then used again element by
   element. row_staged keeps the row on chip, in one CTA or in the CTAs of a cluster; row_reread reads it once more.
   Workload   W::INPUTS row inputs, the first W::STATISTIC_INPUTS of them needed for the statistics; W::SHARED inputs that are
              the same for all rows; W::OUTPUTS row outputs of type W::Out<T>; W::ROW_SCALAR: one float a row besides.
              W::Running: start(vector), add(vector, count), close() -> W::Partial; W::finish(partial, cols) -> W::Final;
              W::apply(final, vector, results). A vector is float[INPUTS + SHARED][VECTOR<T>], shared inputs last
   Shapes     row-major (rows, cols), rows contiguous; any rows >= 1, cols >= 1
   Slices     CTA r of P takes columns from r * slice; slice = ceil(cols / P) rounded up to 16 bytes; it may be empty
   Staged     BULK: a ring of `stages` slots in dynamic shared memory, filled by bulk copies one or more rows ahead. KEEP > 0:
              the slice is taken from its slot into KEEP vectors a thread and input, and the slot is filled anew while the row
              is reduced, exchanged and written. KEEP = 0: the slice stays in its slot.
              DIRECT: no slots; KEEP vectors a thread and input are loaded from global memory into registers.
              SPLIT: these go to registers directly, and the rest of the slice to a slot, where it stays
   Slow path  ELEMENTS: rows do not start at multiples of 16 bytes; one slot, filled element by element
   Model      tilesight/dsmem */
#pragma once
#include "row_reduce.cuh"

namespace ts {

constexpr int MOST_BLOCK = 32 * MOST_WARPS;
// Vectors a thread and input that are loaded before the first is used, where they do not stay in registers.
template <class W, class T> constexpr int BATCH_OF = sizeof(T) == 4 && W::INPUTS < 3 ? 4 : 2;
template <class W, class T> constexpr int REREAD_BATCH = (sizeof(T) == 4 ? 4 : 2) * (W::INPUTS == 1 ? 2 : 1);

enum Load { BULK, DIRECT, SPLIT, ELEMENTS };
inline const char* const LOADS[] = {"bulk", "direct", "split", "elements"};

template <class W, class T> struct RowArgs {
  const T* in[W::INPUTS + W::SHARED];
  typename W::template Out<T>* out[W::OUTPUTS];
  float* scalar;  // one a row, where W::ROW_SCALAR
  int rows, cols;
  int slice, slice_bytes;  // elements of a CTA's slice; its bytes on chip, a multiple of 16
  int cluster, stages, protocol, load_hint, store_hint;
  bool planted;
};

template <class W, class T> struct Slice {
  static constexpr int V = VECTOR<T>, ALL = W::INPUTS + W::SHARED;
  int rank, begin, count, vectors;  // first column, elements, vectors (the last one may be partly filled)
  __device__ explicit Slice(const RowArgs<W, T>& a) {
    rank = blockIdx.x % a.cluster;
    begin = min(rank * a.slice, a.cols);
    count = min(a.slice, a.cols - begin);
    vectors = (count + V - 1) / V;
  }
};

// Writes a vector of results; `count` elements of it, all when ALIGNED.
template <class W, class T, bool ALIGNED>
__device__ __forceinline__ void write_results(const RowArgs<W, T>& a, size_t at, int count,
                                              const float (&out)[W::OUTPUTS][VECTOR<T>]) {
#pragma unroll
  for (int k = 0; k < W::OUTPUTS; ++k) {
    if (ALIGNED) store_vector(a.out[k] + at, out[k], a.store_hint);
    else
#pragma unroll
      for (int e = 0; e < VECTOR<T>; ++e)
        if (e < count) store_one(a.out[k] + at + e, out[k][e]);
  }
}

// ---------------------------------------------------------------- the row stays on chip

// The slices that a CTA works on, one row after the other ("turns"): where they lie and how they get there.
template <class W, class T, int LOAD, int KEEP> struct Staging {
  static constexpr int V = VECTOR<T>, ALL = W::INPUTS + W::SHARED, BATCH = LOAD == SPLIT ? 2 : BATCH_OF<W, T>;
  static constexpr bool ALIGNED = LOAD != ELEMENTS, COPIES = LOAD == BULK || LOAD == SPLIT;
  static constexpr bool IN_SLOT = KEEP == 0 || LOAD == SPLIT;  // vectors stay in the slot until the row is written
  static_assert(LOAD == BULK || (LOAD == ELEMENTS) == (KEEP == 0), "direct loads go to registers, single elements to a slot");
  using Kept = uint4[KEEP > 0 ? KEEP : 1][W::INPUTS];

  const RowArgs<W, T>& a;
  const Slice<W, T> slice;
  const int units, first, block, thread, in_registers;  // in_registers: vectors of a slice that never come to the slot
  const int stride, slot_bytes;                         // bytes of an input in a slot, bytes of a slot
  unsigned char* const slots;
  uint64_t* const full;

  __device__ Staging(const RowArgs<W, T>& a, unsigned char* slots, uint64_t* full)
      : a(a), slice(a), units(gridDim.x / a.cluster), first(blockIdx.x / a.cluster), block(blockDim.x), thread(threadIdx.x),
        in_registers(LOAD == SPLIT ? KEEP * block : 0), stride(max(0, a.slice_bytes - 16 * in_registers)),
        slot_bytes(W::INPUTS * stride), slots(slots), full(full) {}

  __device__ long long row(int turn) const { return first + (long long)turn * units; }
  __device__ const unsigned char* slot(int turn) const { return slots + turn % a.stages * slot_bytes; }
  __device__ unsigned char* shared() const { return slots + a.stages * slot_bytes; }  // inputs of all rows: their slice stays
  __device__ int filled(int i) const { return ALIGNED ? V : min(V, slice.count - i * V); }

  // By thread 0: starts the copies of a row into its slot.
  __device__ void fill(int turn) const {
    if (!COPIES || row(turn) >= a.rows) return;
    const uint32_t bar = smem_u32(full + turn % a.stages), to = smem_u32(slot(turn));
    const int from = slice.begin + in_registers * V, bytes = max(0, slice.count - in_registers * V) * (int)sizeof(T);
    const bool all = LOAD == BULK && turn == 0;
    mbar_expect(bar, bytes * (W::INPUTS + (all ? W::SHARED : 0)));
    if (bytes == 0) return;
    const uint64_t policy = l2_policy(a.load_hint);
    for (int k = 0; k < W::INPUTS; ++k) bulk_load_hint(to + k * stride, a.in[k] + row(turn) * a.cols + from, bytes, bar, policy);
    for (int k = 0; k < W::SHARED && all; ++k) bulk_load(smem_u32(shared()) + k * stride, a.in[W::INPUTS + k] + from, bytes, bar);
  }
  // By all threads: rows that do not start at multiples of 16 bytes.
  __device__ void fill_slowly(int turn) const {
    for (int k = 0; k < ALL && (k < W::INPUTS || turn == 0); ++k) {
      T* to = (T*)(k < W::INPUTS ? slots + k * stride : shared() + (k - W::INPUTS) * stride);
      const T* from = a.in[k] + (k < W::INPUTS ? row(turn) * a.cols : 0) + slice.begin;
      for (int i = thread; i < slice.count; i += block) to[i] = from[i];
    }
    __syncthreads();
  }
  __device__ __forceinline__ void wait(int turn) const { mbar_wait(smem_u32(full + turn % a.stages), turn / a.stages & 1); }

  __device__ __forceinline__ void take(int turn, int i, uint4 (&raw)[W::INPUTS]) const {
#pragma unroll
    for (int k = 0; k < W::INPUTS; ++k) raw[k] = *(const uint4*)(slot(turn) + k * stride + 16 * (i - in_registers));
  }
  __device__ __forceinline__ void take_directly(int turn, int i, uint4 (&raw)[W::INPUTS]) const {
#pragma unroll
    for (int k = 0; k < W::INPUTS; ++k)
      raw[k] = load_once((const uint4*)(a.in[k] + row(turn) * a.cols + slice.begin) + i, a.load_hint);
  }
  __device__ __forceinline__ void floats(int i, const uint4 (&raw)[W::INPUTS], float (&v)[ALL][V]) const {
#pragma unroll
    for (int k = 0; k < W::INPUTS; ++k) decode(raw[k], v[k]);
#pragma unroll
    for (int k = 0; k < W::SHARED; ++k) {
      if (LOAD == DIRECT || LOAD == SPLIT) decode(__ldg((const uint4*)(a.in[W::INPUTS + k] + slice.begin) + i), v[W::INPUTS + k]);
      else decode(*(const uint4*)(shared() + k * stride + 16 * i), v[W::INPUTS + k]);
    }
  }

  // use(i, vector, whether it is the thread's first) for the vectors of this thread. FRESH: the row has not been taken yet.
  template <bool FRESH, class Use> __device__ __forceinline__ void each(int turn, Kept& kept, Use use) const {
    if (FRESH && LOAD == BULK) wait(turn);
    if (FRESH && KEEP > 0)
#pragma unroll
      for (int j = 0; j < KEEP; ++j)
        if (const int i = thread + j * block; i < slice.vectors)
          if (LOAD == BULK) take(turn, i, kept[j]);
          else take_directly(turn, i, kept[j]);
    if (KEEP > 0)
#pragma unroll
      for (int j = 0; j < KEEP; ++j)
        if (const int i = thread + j * block; i < slice.vectors) {
          float v[ALL][V];
          floats(i, kept[j], v);
          use(i, v, j == 0);
        }
    if (FRESH && LOAD == SPLIT) wait(turn);
    if (IN_SLOT)
      for (int i = thread + in_registers; i < slice.vectors; i += BATCH * block) each_in_slot(turn, i, use);
  }
  template <class Use> __device__ __forceinline__ void each_in_slot(int turn, int from, Use use) const {
    uint4 raw[BATCH][W::INPUTS];
#pragma unroll
    for (int j = 0; j < BATCH; ++j)
      if (const int i = from + j * block; i < slice.vectors) take(turn, i, raw[j]);
#pragma unroll
    for (int j = 0; j < BATCH; ++j)
      if (const int i = from + j * block; i < slice.vectors) {
        float v[ALL][V];
        floats(i, raw[j], v);
        use(i, v, KEEP == 0 && j == 0 && from == thread);
      }
  }
};

template <class W, class T, int LOAD, int KEEP>
__global__ void __launch_bounds__(MOST_BLOCK, LOAD == BULK && KEEP == 0 ? 2 : 1) row_staged(const RowArgs<W, T> a) {
  using S = Staging<W, T, LOAD, KEEP>;
  extern __shared__ __align__(128) unsigned char slots[];
  __shared__ Mailbox<typename W::Partial> box;
  const S s(a, slots, box.full);
  if (threadIdx.x == 0) {
    for (int i = 0; i < a.stages; ++i) mbar_init(smem_u32(&box.full[i]), 1);
    for (int i = 0; i < 2; ++i) mbar_init(smem_u32(&box.arrived[i]), 1);
    mbar_init_fence();
    for (int i = 0; i < a.stages; ++i) s.fill(i);
  }
  __syncthreads();
  if (a.cluster > 1) cluster_sync();  // nobody writes to a CTA that has not begun

  for (int turn = 0; s.row(turn) < a.rows; ++turn) {
    if (LOAD == ELEMENTS) s.fill_slowly(turn);
    typename S::Kept kept;
    typename W::Running running{};
    s.template each<true>(turn, kept, [&](int i, const float (&v)[S::ALL][S::V], bool starts) {
      if (starts) running.start(v);
      running.add(v, s.filled(i));
    });
    const auto all = reduce_row(box, running.close(), turn, a.cluster, s.slice.rank, a.protocol, a.planted, [&] {
      if (!S::IN_SLOT) s.fill(turn + a.stages);  // the row is in registers
    });
    const typename W::Final final = W::finish(all, a.cols);
    const size_t base = (size_t)s.row(turn) * a.cols + s.slice.begin;
    s.template each<false>(turn, kept, [&](int i, const float (&v)[S::ALL][S::V], bool) {
      float out[W::OUTPUTS][S::V];
      W::apply(final, v, out);
      write_results<W, T, S::ALIGNED>(a, base + (size_t)i * S::V, s.filled(i), out);
    });
    if (W::ROW_SCALAR && s.slice.rank == 0 && threadIdx.x == 0) a.scalar[s.row(turn)] = W::scalar(final);
    if (S::IN_SLOT) {
      __syncthreads();  // nobody needs the slot any more
      if (threadIdx.x == 0) s.fill(turn + a.stages);
    }
  }
  if (a.cluster > 1) cluster_sync();  // nobody leaves before its slots are read
}

// ---------------------------------------------------------------- the row is read again

// One row a CTA. The second pass goes backwards: what the first one read last is still in a cache.
template <class W, class T, bool ALIGNED>
__global__ void __launch_bounds__(MOST_BLOCK, 2) row_reread(const RowArgs<W, T> a) {
  using S = Slice<W, T>;
  constexpr int V = S::V, BATCH = REREAD_BATCH<W, T>;
  __shared__ Mailbox<typename W::Partial> box;
  const int block = blockDim.x, thread = threadIdx.x, vectors = (a.cols + V - 1) / V;
  const int turns = (vectors + BATCH * block - 1) / (BATCH * block);
  const size_t base = (size_t)blockIdx.x * a.cols;
  auto filled = [&](int i) { return ALIGNED ? V : min(V, a.cols - i * V); };
  auto load = [&](int i, int inputs, bool last, Raw<T> (&raw)[S::ALL]) {
#pragma unroll
    for (int k = 0; k < S::ALL; ++k) {
      if (k < W::INPUTS && k >= inputs) continue;
      const T* p = a.in[k] + (k < W::INPUTS ? base : 0) + (size_t)i * V;
      if (ALIGNED) raw[k].vector = last && k < W::INPUTS ? __ldcs((const uint4*)p) : __ldg((const uint4*)p);
      else
#pragma unroll
        for (int e = 0; e < V; ++e) raw[k].element[e] = e < filled(i) ? p[e] : T(0.0f);
    }
  };
  auto each = [&](int turn, int inputs, bool last, auto use) {
    const int i = thread + turn * BATCH * block;
    Raw<T> raw[BATCH][S::ALL];
#pragma unroll
    for (int j = 0; j < BATCH; ++j)
      if (i + j * block < vectors) load(i + j * block, inputs, last, raw[j]);
#pragma unroll
    for (int j = 0; j < BATCH; ++j)
      if (i + j * block < vectors) {
        float v[S::ALL][V];
#pragma unroll
        for (int k = 0; k < S::ALL; ++k) decode(raw[j][k].vector, v[k]);
        use(i + j * block, v, j == 0 && turn == 0);
      }
  };
  typename W::Running running{};
  for (int turn = 0; turn < turns; ++turn)
    each(turn, W::STATISTIC_INPUTS, false, [&](int i, const float (&v)[S::ALL][V], bool starts) {
      if (starts) running.start(v);
      running.add(v, filled(i));
    });
  const auto all = reduce_row(box, running.close(), 0, 1, 0, ALONE, false, [] {});
  const typename W::Final final = W::finish(all, a.cols);
  for (int turn = turns - 1; turn >= 0; --turn)
    each(turn, W::INPUTS, true, [&](int i, const float (&v)[S::ALL][V], bool) {
      float out[W::OUTPUTS][V];
      W::apply(final, v, out);
      write_results<W, T, ALIGNED>(a, base + (size_t)i * V, filled(i), out);
    });
  if (W::ROW_SCALAR && threadIdx.x == 0) a.scalar[blockIdx.x] = W::scalar(final);
}

}  // namespace ts
