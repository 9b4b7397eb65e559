/* l2_read: read bandwidth against footprint, from far below L2 to 4 times L2, by one launch that walks it again and again.
   Shapes     in: footprint = lines * SMs * 128 B, in one slice of `lines` lines an SM; 8 footprints an octave from 256 KiB to
              4 times the L2 size; up to a quarter of L2 the mean over 8 places, as the hash of addresses treats each differently
   Launch     grid SMs, one CTA an SM (forced by shared memory), block 1024
   On chip    dynamic smem reserved, not used; registers as printed by ptxas (record .toml)
   Parts      own       SM s always reads slice s: a line is read by one SM only
              rotating  in pass p SM s reads slice (s + p) mod SMs: each line is asked by all SMs in turn, once a pass
   Traffic    footprint bytes a pass, from L2 (share h) or DRAM (1 - h); passes follow without barrier or seam, so that between
              two reads of a line everybody else reads about one footprint. In `rotating` and below about 8 MiB the loads in
              flight of an SM reach into the following passes, so that SMs may meet on a line
   Work       one addition a word                             Bound  l2, then dram
   Time       seconds: first begin to last end on the global timer, >= 300 us; begin is behind one warm pass and one barrier
   Checked    sum of every launch against (passes + 1) times the checksum; ld.global.cg bypasses L1: one address again and
              again takes the latency of L2 (part l1_bypass)
   Model      cost/cache: time = bytes * (h / rate_l2 + (1 - h) / rate_dram)
   Reference  PTX ISA, "Cache Operators"
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v l2_read.cu -o l2_read
   Run        ./l2_read --repeats 9 --us 400                   one JSON line a point; --part own for one of the two */
#include "../common/memory.cuh"
using namespace ts;

constexpr int THREADS = 1024, LINE_VECTORS = 8, UNROLL = 4, PLACES = 8;

__global__ void __launch_bounds__(THREADS, 1) read_cyclic(const uint4* in, uint32_t length, int rotating, uint32_t passes,
                                                          unsigned* arrived, Stamp* stamps, u64* total) {
  u64 sum = 0;
  Stamp s{};
#pragma unroll 1
  for (int timed = 0; timed < 2; ++timed) {
    if (timed) {
      grid_barrier(arrived);
      s = stamp_begin();
    }
    SliceWalk walk(blockIdx.x, gridDim.x, length, rotating);
    const uint32_t count = (timed ? passes : 1) * length;
    uint32_t k = threadIdx.x;
    for (; k + (UNROLL - 1) * THREADS < count; k += UNROLL * THREADS) {
      uint4 v[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) v[u] = load_l2(in + walk.next());
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) sum += sum_words(v[u]);
    }
    for (; k < count; k += THREADS) sum += sum_words(load_l2(in + walk.next()));
  }
  stamp_end(s, stamps);
  block_add(total, sum);
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9), sms = sm_count();
  const double target_s = args.get("--us", 400.0) * 1e-6;
  const std::string only = args.get("--part", "all");
  const size_t l2_bytes = device_attribute(cudaDevAttrL2CacheSize), line_of_all = (size_t)sms * LINE_VECTORS * 16;
  const size_t most = 4 * l2_bytes + line_of_all, smem = one_cta_smem();
  auto* in = device_alloc<unsigned char>(most);
  auto* arrived = device_alloc<unsigned>(1);
  auto* stamps = device_alloc<Stamp>(sms);
  auto* total = device_alloc<u64>(1);
  fill_words(in, most, 11);
  allow_smem(read_cyclic, smem);
  warm_up_clock(0.1);
  std::vector<double> bypass;
  for (int i = 0; i < repeats; ++i) bypass.push_back(require_l1_bypassed(in, "l2_read"));
  Json("l2_read").put("part", "l1_bypass").put("cycles_per_load", median(bypass)).put("l1_cycles_per_load", repeat_load_cycles<true>(in))
      .put("spread", spread(bypass)).put("repeats", repeats).emit();

  std::vector<size_t> lines;  // of a slice
  for (int i = 0; 262144 * std::pow(2.0, i / 8.0) <= 4.0 * l2_bytes; ++i) {
    size_t n = std::max<size_t>(1, std::llround(262144 * std::pow(2.0, i / 8.0) / line_of_all));
    if (lines.empty() || n != lines.back()) lines.push_back(n);
  }
  for (const char* part : {"own", "rotating"}) {
    if (only != "all" && only != part) continue;
    for (size_t n : lines) {
      const size_t footprint = n * line_of_all;
      // A few lines an L2 slice lie unevenly: the mean over several places of the buffer. Large footprints have one.
      const int places = footprint <= l2_bytes / 4 ? PLACES : 1;
      const size_t step = (most - footprint) / places / 128 * 128;
      std::vector<u64> once;
      for (int at = 0; at < places; ++at) once.push_back(checksum(in + at * step, footprint));
      auto run = [&](int at, uint32_t passes) {
        CHECK(cudaMemset(arrived, 0, sizeof(unsigned)));
        CHECK(cudaMemset(total, 0, 8));
        read_cyclic<<<sms, THREADS, smem>>>((const uint4*)(in + at * step), n * LINE_VECTORS, part[0] == 'r', passes, arrived, stamps, total);
        CHECK_LAUNCH();
        require(to_host(total, 1)[0] == (passes + 1) * once[at] && once[at] != 0, "l2_read: sum");
        return rate_of(to_host(stamps, sms), (double)passes * n * LINE_VECTORS * 16);
      };
      run(0, 1);
      const uint32_t first = (uint32_t)std::max<size_t>(3, ((size_t)256 << 20) / footprint);
      const uint32_t passes = (uint32_t)std::max(3.0, std::ceil(first * target_s / run(0, first).seconds));
      std::vector<double> per_s, per_cycle, seconds, clock;  // of each round over the places
      for (int r = 0; r < repeats; ++r) {
        double s = 0, cycle = 0, hz = 0;
        for (int at = 0; at < places; ++at) {
          Rate x = run(at, passes);
          s += x.seconds / places, cycle += x.per_cycle / places, hz += x.clock_hz / places;
        }
        seconds.push_back(s), per_s.push_back((double)passes * footprint / s), per_cycle.push_back(cycle), clock.push_back(hz);
      }
      Json j("l2_read");
      j.put("part", part).put("footprint_bytes", footprint).put("l2_bytes", l2_bytes).put("passes", (int)passes).put("places", places).put("sms", sms);
      j.put("seconds", median(seconds)).put("bytes_per_s", median(per_s)).put("bytes_per_cycle", median(per_cycle));
      j.put("bytes_per_cycle_per_sm", median(per_cycle) / sms).put("clock_hz", median(clock));
      j.put("spread", spread(per_s)).put("repeats", repeats).emit();
    }
  }
  return 0;
}
