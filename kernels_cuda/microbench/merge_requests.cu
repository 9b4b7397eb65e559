/* merge_requests: SMs that ask for the same lines at the same time, or a little later: how much more do they get together?
   Shapes     in: 16 MiB that stay in L2, in chunks of 16 KiB; groups of `sharers` CTAs next to each other in launch order walk the
              same chunks. The set is cut in one region a group; a group reads its region, then the region of the group
              half a chip away, and so on: no SM reads a line twice in a launch, no two groups meet
   Launch     grid SMs, one CTA an SM (forced by registers or shared memory), block 1024 (loads) or 128 (others), no cluster
   On chip    loads: more than 32 registers, no shared memory, so that L1 has room; others: ring of 6 chunks; registers as
              printed by ptxas (record .toml)
   Methods    loads     ld.global, 16 B a thread, 8 in flight a thread (up to 128 KiB an SM)
              cp_async  cp.async.cg, 16 B a thread, 5 chunks in flight (80 KiB an SM)
              bulk      cp.async.bulk of a chunk, 6 in flight (96 KiB an SM); sm_90 and later
   Skew       sharer i of a group begins at one common moment + skew * i / (sharers - 1) cycles of its own clock. The moment is a
              step of the global timer, which all SMs see at once (part time_base: how far it is from what round trips between
              SMs say, an upper limit of the error of the skew). After that nothing holds the skew but equal work, kept short
              (2.25 MiB an SM): skew_begin_cycles and skew_end_cycles say what it was (last minus first, median group); a
              follower that is served faster closes up
   Traffic    `steps` chunks a CTA, from L2; no DRAM after the warm-up launch
   Work       loads: one addition a word; else none when timed    Bound  l2 lookups (few sharers), SM port (many)
   Columns    bytes_per_cycle: asked, sum over SMs; lookup_share_inferred: bytes_per_cycle at sharers = 1 over that at this point,
              the share of requests that still needed a lookup; true only while lookups bind, a lower rate limit (SM port)
              makes it too large. It is null when --sharers leaves 1 out
              asked_bytes: of one launch; launches: of kernels merge_*
   Checked    sum of what arrived against a loop of plain loads over the same addresses (loads: every launch)
   Model      merging.*; record merge_counted counts lookups with Nsight Compute: checks, warm-up and time base have other names
              than merge_*, and all launches of merge_* in a point are alike
   Reference  PTX ISA, "cp.async", "cp.async.bulk"
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a (sm_80 sm_89: no cp.async.bulk, that method left out)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v merge_requests.cu -o merge_requests
   Run        ./merge_requests --repeats 9                     one JSON line a point
              ./merge_requests --method bulk --sharers 4 --skew 200 --repeats 3      one point; --sharers all */
#include "../common/memory.cuh"
using namespace ts;

constexpr int CHUNK = 16384, SLOTS = 6, COPY_THREADS = 128, LOAD_THREADS = 1024;
constexpr size_t SET = (size_t)16 << 20;

struct Walk { int sharers, groups, own, stride, steps, skew_cycles; };  // own, steps: chunks; stride: regions

Walk walk_of(int sms, int sharers, int skew, int steps) {
  int groups = (sms + sharers - 1) / sharers, stride = groups > 2 ? groups / 2 + 1 : groups - 1;
  return {sharers, groups, (int)(SET / CHUNK) / groups, stride, steps, skew};
}
struct Cursor {  // where a CTA reads: offset() now, then advance()
  int own, groups, stride, region, at = 0;
  __device__ Cursor(const Walk& w) : own(w.own), groups(w.groups), stride(w.stride), region(blockIdx.x / w.sharers) {}
  __device__ __forceinline__ uint32_t offset() const { return (uint32_t)(region * own + at) * CHUNK; }
  __device__ __forceinline__ void advance() {
    if (++at < own) return;
    at = 0;
    region += stride;
    if (region >= groups) region -= groups;
  }
};
__device__ __forceinline__ int delay_of(const Walk& w) {
  return w.sharers > 1 ? w.skew_cycles * (int)(blockIdx.x % w.sharers) / (w.sharers - 1) : 0;
}

__global__ void reference_sum(const unsigned char* in, Walk w, u64* total) {
  u64 sum = 0;
  for (int i = 0; i < w.steps; ++i) {
    int chunk = (blockIdx.x / w.sharers + i / w.own * w.stride) % w.groups * w.own + i % w.own;
    for (int b = threadIdx.x * 16; b < CHUNK; b += blockDim.x * 16) sum += sum_words(*(const uint4*)(in + (size_t)chunk * CHUNK + b));
  }
  block_add(total, sum);
}
__global__ void warm_set(const uint4* in, u64* total) {
  u64 sum = 0;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < SET / 16; i += gridDim.x * blockDim.x) sum += sum_words(load_l2(in + i));
  block_add(total, sum);
}

// steps % 8 == 0
__global__ void __launch_bounds__(LOAD_THREADS, 1) merge_loads(const unsigned char* in, Walk w, CommonStart start, Stamp* stamps,
                                                              u64* total) {
  constexpr int CHUNKS = 8, PER_CHUNK = CHUNK / 16 / LOAD_THREADS;
  Cursor c(w);
  const unsigned char* mine = in + threadIdx.x * 16;
  u64 sum = 0;
  start_together(start, delay_of(w));
  Stamp s = stamp_begin();
  for (int i = 0; i < w.steps; i += CHUNKS) {
    uint4 v[CHUNKS * PER_CHUNK];
#pragma unroll
    for (int u = 0; u < CHUNKS; ++u, c.advance())
#pragma unroll
      for (int k = 0; k < PER_CHUNK; ++k) v[u * PER_CHUNK + k] = load_l1((const uint4*)(mine + c.offset()) + k * LOAD_THREADS);
#pragma unroll
    for (int u = 0; u < CHUNKS * PER_CHUNK; ++u) sum += sum_words(v[u]);
  }
  stamp_end(s, stamps);
  block_add(total, sum);
}

// steps % SLOTS == 0. Copies run up to SLOTS - 1 chunks further than what is counted, and never past the set.
template <bool SUM>
__device__ __forceinline__ void cp_async_body(const unsigned char* in, const Walk& w, const CommonStart& start, Stamp* stamps, u64* total) {
  extern __shared__ __align__(128) unsigned char smem[];
  Cursor c(w);
  const unsigned char* mine = in + threadIdx.x * 16;
  const uint32_t dst = smem_u32(smem) + threadIdx.x * 16;
  auto issue = [&](int slot) {
    const unsigned char* src = mine + c.offset();
#pragma unroll
    for (int i = 0; i < CHUNK / 16 / COPY_THREADS; ++i)
      cp_async16(dst + slot * CHUNK + i * COPY_THREADS * 16, src + i * COPY_THREADS * 16);
    cp_async_commit();
    c.advance();
  };
  u64 sum = 0;
  start_together(start, delay_of(w));
  Stamp s = stamp_begin();
  for (int i = 0; i < SLOTS - 1; ++i) issue(i);
  for (int round = 0; round < w.steps / SLOTS; ++round)
#pragma unroll
    for (int slot = 0; slot < SLOTS; ++slot) {
      issue((slot + SLOTS - 1) % SLOTS);
      cp_async_wait<SLOTS - 1>();
      if (SUM)  // a thread reads what it copied itself
        for (int b = threadIdx.x * 16; b < CHUNK; b += COPY_THREADS * 16) sum += sum_words(*(const uint4*)(smem + slot * CHUNK + b));
    }
  stamp_end(s, stamps);
  cp_async_wait<0>();
  if (SUM) block_add(total, sum);
}
__global__ void __launch_bounds__(COPY_THREADS, 1) merge_cp_async(const unsigned char* in, Walk w, CommonStart start,
                                                                  Stamp* stamps, u64* total) {
  cp_async_body<false>(in, w, start, stamps, total);
}
__global__ void __launch_bounds__(COPY_THREADS, 1) check_cp_async(const unsigned char* in, Walk w, CommonStart start,
                                                                  Stamp* stamps, u64* total) {
  cp_async_body<true>(in, w, start, stamps, total);
}

// As above; copies run SLOTS chunks further.
template <bool SUM>
__device__ __forceinline__ void bulk_body(const unsigned char* in, const Walk& w, const CommonStart& start, Stamp* stamps, u64* total) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char smem[];
  __shared__ uint64_t full[SLOTS];
  Cursor c(w);
  const uint32_t dst = smem_u32(smem), bar = smem_u32(full);
  auto issue = [&](int slot) {  // one thread
    mbar_expect(bar + slot * 8, CHUNK);
    bulk_load(dst + slot * CHUNK, in + c.offset(), CHUNK, bar + slot * 8);
    c.advance();
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i < SLOTS; ++i) mbar_init(bar + i * 8, 1);
    mbar_init_fence();
  }
  u64 sum = 0;
  const int rounds = w.steps / SLOTS;
  start_together(start, delay_of(w));
  Stamp s = stamp_begin();
  if (threadIdx.x == 0)
    for (int i = 0; i < SLOTS; ++i) issue(i);
  if (SUM || threadIdx.x == 0)
    for (int round = 0; round < rounds; ++round)
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
        mbar_wait(bar + slot * 8, round & 1);
        if (SUM) {
          for (int b = threadIdx.x * 16; b < CHUNK; b += COPY_THREADS * 16) sum += sum_words(*(const uint4*)(smem + slot * CHUNK + b));
          __syncthreads();
        }
        if (threadIdx.x == 0) issue(slot);
      }
  stamp_end(s, stamps);
  if (threadIdx.x == 0)
    for (int i = 0; i < SLOTS; ++i) mbar_wait(bar + i * 8, rounds & 1);  // nothing may land after the CTA has left
  if (SUM) block_add(total, sum);
#endif
}
__global__ void __launch_bounds__(COPY_THREADS, 1) merge_bulk(const unsigned char* in, Walk w, CommonStart start,
                                                              Stamp* stamps, u64* total) {
  bulk_body<false>(in, w, start, stamps, total);
}
__global__ void __launch_bounds__(COPY_THREADS, 1) check_bulk(const unsigned char* in, Walk w, CommonStart start,
                                                              Stamp* stamps, u64* total) {
  bulk_body<true>(in, w, start, stamps, total);
}

// Last minus first of a group, median over complete groups; each clock counts from the common moment.
double group_skew(const std::vector<Stamp>& stamps, const std::vector<long long>& step, int sharers, bool end) {
  std::vector<double> skews;
  for (size_t g = 0; g + sharers <= stamps.size(); g += sharers) {
    long long first = INT64_MAX, last = INT64_MIN;
    for (size_t i = g; i < g + sharers; ++i) {
      long long t = (end ? stamps[i].cycles_end : stamps[i].cycles_begin) - step[i];
      first = std::min(first, t);
      last = std::max(last, t);
    }
    skews.push_back((double)(last - first));
  }
  return median(skews);
}

using Kernel = void (*)(const unsigned char*, Walk, CommonStart, Stamp*, u64*);
struct Method { const char* name; Kernel timed, checked; int threads; };

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9), sms = sm_count(), steps = std::max(1, args.get("--steps", 144) / 24) * 24;
  const std::string only_method = args.get("--method", "all"), only_sharers = args.get("--sharers", "every");
  const int only_skew = args.get("--skew", -1);
  auto* in = device_alloc<unsigned char>(SET);
  auto* total = device_alloc<u64>(1);
  auto* stamps = device_alloc<Stamp>(sms);
  auto* flags = device_alloc<u64>(2);
  auto* step = device_alloc<long long>(sms);
  fill_words(in, SET, 16);
  warm_up_clock(0.1);
  require_l1_bypassed(in, "merge_requests");
  const CommonStart start{(unsigned*)flags, flags + 1, step};
  warm_set<<<sms, 512>>>((const uint4*)in, total);
  CHECK_LAUNCH();

  std::vector<Method> methods = {{"loads", merge_loads, merge_loads, LOAD_THREADS},
                                 {"cp_async", merge_cp_async, check_cp_async, COPY_THREADS}};
  if (device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9) methods.push_back({"bulk", merge_bulk, check_bulk, COPY_THREADS});
  const size_t ring = (size_t)SLOTS * CHUNK;
  if (ring > (size_t)device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - 1024) {
    Json("merge_requests").put("part", "skipped").put("reason", "shared memory too small for the ring").emit();
    return 0;
  }
  for (const Method& m : methods) {
    if (only_method != "all" && only_method != m.name) continue;
    const size_t smem = m.timed == merge_loads ? 0 : std::max(ring, one_cta_smem());  // loads in flight live in L1
    allow_smem(m.timed, smem);
    allow_smem(m.checked, smem);
    auto run = [&](Kernel kernel, const Walk& w) {
      CHECK(cudaMemset(flags, 0, 16));
      kernel<<<sms, m.threads, smem>>>(in, w, start, stamps, total);
      CHECK_LAUNCH();
      return to_host(stamps, sms);
    };
    double alone = NAN;  // bytes per cycle at sharers = 1
    for (int sharers : {1, 2, 4, 8, 16, sms})
      for (int skew : {0, 100, 200, 400, 800, 1600}) {
        const std::string name = sharers == sms ? "all" : std::to_string(sharers);
        if (only_sharers != "every" && only_sharers != name && only_sharers != std::to_string(sharers)) continue;
        if (sharers == 1 ? skew != 0 : only_skew >= 0 && skew != only_skew) continue;
        const Walk w = walk_of(sms, sharers, skew, steps);
        CHECK(cudaMemset(total, 0, 8));
        reference_sum<<<sms, 128>>>(in, w, total);
        const u64 expected = to_host(total, 1)[0];
        CHECK(cudaMemset(total, 0, 8));
        run(m.checked, w);
        require(to_host(total, 1)[0] == expected && expected != 0, std::string("merge_requests: sum, ") + m.name);
        std::vector<double> per_cycle, begin, end;
        double cycles_sum = 0, ns_sum = 0;
        for (int r = 0; r < repeats; ++r) {
          CHECK(cudaMemset(total, 0, 8));
          auto seen = run(m.timed, w);
          if (m.timed == m.checked) require(to_host(total, 1)[0] == expected, "merge_requests: sum, loads");
          Rate x = rate_of(seen, (double)steps * CHUNK);
          per_cycle.push_back(x.per_cycle);
          cycles_sum += x.cycles_sum;
          ns_sum += x.ns_sum;
          const auto steps_seen = to_host(step, sms);
          begin.push_back(group_skew(seen, steps_seen, sharers, false));
          end.push_back(group_skew(seen, steps_seen, sharers, true));
        }
        if (sharers == 1) alone = median(per_cycle);
        const double clock_hz = cycles_sum / (ns_sum * 1e-9);  // of all repeats: one window is short for the global timer
        Json j("merge_requests");
        j.put("part", "rate").put("method", m.name).put("sharers", sharers).put("skew_cycles", skew).put("steps", steps).put("sms", sms);
        j.put("bytes_per_cycle", median(per_cycle)).put("bytes_per_cycle_per_sm", median(per_cycle) / sms);
        j.put("bytes_per_s", median(per_cycle) * clock_hz).put("clock_hz", clock_hz);
        j.put("lookup_share_inferred", alone / median(per_cycle)).put("skew_begin_cycles", median(begin));
        j.put("skew_end_cycles", median(end)).put("spread", spread(per_cycle)).put("repeats", repeats);
        const int ahead = m.timed == merge_loads ? 0 : m.timed == merge_bulk ? SLOTS : SLOTS - 1;  // copies beyond the counted
        j.put("asked_bytes", (size_t)CHUNK * (steps + ahead) * sms).put("launches", repeats + (m.timed == m.checked)).emit();
      }
  }
  std::vector<double> trips, errors, errors_p90;
  for (int i = 0; i < repeats; ++i) {
    const TimeBase base = measure_time_base();
    trips.push_back(base.round_trip_cycles);
    errors.push_back(base.error_cycles);
    errors_p90.push_back(base.error_p90_cycles);
  }
  Json j("merge_requests");
  j.put("part", "time_base").put("error_cycles", median(errors)).put("error_p90_cycles", median(errors_p90));
  j.put("round_trip_cycles", median(trips)).put("spread", spread(errors)).put("repeats", repeats);
  j.put("launches", 0).emit();
  return 0;
}
