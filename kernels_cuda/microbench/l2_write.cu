/* l2_write: store bandwidth into a footprint that stays in L2, and bandwidth of reading and writing the same lines.
   Shapes     data: footprint of about 1, 2, 4, 8, 16 MiB, a multiple of SMs * 128 B; one slice an SM
   Launch     grid SMs, one CTA an SM (forced by shared memory), block 1024
   On chip    dynamic smem reserved, not used; registers as printed by ptxas (record .toml)
   Parts      write        16-byte stores, pass after pass over the own slice
              read_modify  16-byte load (L1 bypassed), then a store of a value that depends on it to the same address
   Traffic    footprint bytes written a pass (read_modify: and as many read), all L2; no DRAM but for evictions of others
   Work       a multiplication a vector                       Bound  l2
   Time       seconds: first begin to last end on the global timer, >= 300 us; begin is behind one warm pass and one barrier,
              end behind a fence that waits for the stores
   Checked    poisoned (write) or random (read_modify), one pass, every vector bit-exact; every timed launch again
   Model      l2.store_bytes_per_s
   Reference  PTX ISA, "Cache Operators"
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v l2_write.cu -o l2_write
   Run        ./l2_write --repeats 9 --us 400                  one JSON line a point */
#include "../common/memory.cuh"
using namespace ts;

constexpr int THREADS = 1024, LINE_VECTORS = 8, UNROLL = 4;

__device__ __forceinline__ uint4 vector_at(uint32_t i) {
  uint32_t x = i * 2654435761u;
  return make_uint4(x, x ^ 0x5bd1e995u, ~x, x + 77u);
}
// vector_at(i) ^ (old & mask); mask = 0 when timed: neighbours in time may then overtake each other without harm.
__device__ __forceinline__ uint4 modified(uint32_t i, uint4 old, uint32_t mask) {
  uint4 v = vector_at(i);
  return make_uint4(v.x ^ (old.x & mask), v.y ^ (old.y & mask), v.z ^ (old.z & mask), v.w ^ (old.w & mask));
}
// before == nullptr: vector i must be vector_at(i).
__global__ void count_wrong(const uint4* data, const uint4* before, size_t vectors, u64* wrong) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < vectors; i += (size_t)gridDim.x * blockDim.x) {
    uint4 a = data[i], b = before ? modified((uint32_t)i, before[i], ~0u) : vector_at((uint32_t)i);
    if (a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w) atomicAdd(wrong, 1ull);
  }
}

template <bool READ>
__global__ void __launch_bounds__(THREADS, 1) write_cyclic(uint4* data, uint32_t length, uint32_t warm, uint32_t passes,
                                                           uint32_t mask, unsigned* arrived, Stamp* stamps) {
  Stamp s{};
#pragma unroll 1
  for (int timed = 0; timed < 2; ++timed) {
    if (timed) {
      grid_barrier(arrived);
      s = stamp_begin();
    }
    SliceWalk walk(blockIdx.x, gridDim.x, length, false);
    const uint32_t count = (timed ? passes : warm) * length;
    uint32_t k = threadIdx.x;
    for (; k + (UNROLL - 1) * THREADS < count; k += UNROLL * THREADS) {
      uint32_t at[UNROLL];
      uint4 old[UNROLL] = {};
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        at[u] = walk.next();
        if (READ) old[u] = load_l2(data + at[u]);
      }
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) store_16(data + at[u], modified(at[u], old[u], mask));
    }
    for (; k < count; k += THREADS) {
      uint32_t at = walk.next();
      store_16(data + at, modified(at, READ ? load_l2(data + at) : make_uint4(0, 0, 0, 0), mask));
    }
  }
  __threadfence();
  stamp_end(s, stamps);
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9), sms = sm_count();
  const double target_s = args.get("--us", 400.0) * 1e-6;
  const size_t line_of_all = (size_t)sms * LINE_VECTORS * 16, most = ((size_t)16 << 20) + line_of_all, smem = one_cta_smem();
  auto* data = device_alloc<uint4>(most / 16);
  auto* before = device_alloc<uint4>(most / 16);
  auto* arrived = device_alloc<unsigned>(1);
  auto* stamps = device_alloc<Stamp>(sms);
  auto* wrong = device_alloc<u64>(1);
  allow_smem(write_cyclic<false>, smem);
  allow_smem(write_cyclic<true>, smem);
  fill_words(data, most, 12);
  require_l1_bypassed(data, "l2_write");
  warm_up_clock(0.1);
  for (bool read : {false, true})
    for (size_t mib : {1, 2, 4, 8, 16}) {
      const size_t n = (mib << 20) / line_of_all, footprint = n * line_of_all;
      const double moved = (double)footprint * (read ? 2 : 1);  // a pass
      auto run = [&](uint32_t warm, uint32_t passes, uint32_t mask) {
        CHECK(cudaMemset(arrived, 0, sizeof(unsigned)));
        auto kernel = read ? write_cyclic<true> : write_cyclic<false>;
        kernel<<<sms, THREADS, smem>>>(data, (uint32_t)(n * LINE_VECTORS), warm, passes, mask, arrived, stamps);
        CHECK_LAUNCH();
        return rate_of(to_host(stamps, sms), passes * moved / sms);
      };
      auto check = [&](const uint4* old) {
        CHECK(cudaMemset(wrong, 0, 8));
        count_wrong<<<1056, 256>>>(data, old, footprint / 16, wrong);
        CHECK_LAUNCH();
        require(to_host(wrong, 1)[0] == 0, "l2_write: every vector");
      };
      if (read) fill_words(data, footprint, 13 + mib);
      else poison(data, footprint);
      CHECK(cudaMemcpy(before, data, footprint, cudaMemcpyDeviceToDevice));
      run(0, 1, read ? ~0u : 0u);
      check(read ? before : nullptr);
      const uint32_t first = (uint32_t)(((size_t)128 << 20) / footprint);
      run(1, first, 0);
      const uint32_t passes = (uint32_t)std::max(3.0, std::ceil(first * target_s / run(1, first, 0).seconds));
      std::vector<double> per_s, per_cycle, seconds, clock;
      for (int r = 0; r < repeats; ++r) {
        Rate x = run(1, passes, 0);
        seconds.push_back(x.seconds);
        per_s.push_back(passes * moved / x.seconds);
        per_cycle.push_back(x.per_cycle);
        clock.push_back(x.clock_hz);
      }
      check(nullptr);
      Json j("l2_write");
      j.put("part", read ? "read_modify" : "write").put("footprint_bytes", footprint).put("passes", (int)passes).put("sms", sms);
      j.put("read_bytes", (double)(read ? passes * (double)footprint : 0)).put("written_bytes", passes * (double)footprint);
      j.put("seconds", median(seconds)).put("bytes_per_s", median(per_s)).put("bytes_per_cycle", median(per_cycle));
      j.put("bytes_per_cycle_per_sm", median(per_cycle) / sms).put("clock_hz", median(clock));
      j.put("spread", spread(per_s)).put("repeats", repeats).emit();
    }
  return 0;
}
