/* l2_residency: repeated launches read the same W bytes (and write W / 8): how much of W does L2 still hold?
   Shapes     in: W bytes; out: W / 8 bytes when --writes; W = 1..100 MiB, 8 points an octave from 8 MiB
   Launch     grid SMs * 4, block 256; CTA b reads 4 KiB blocks b, b + grid, ...; `readers` = 2: each block is read by two
              CTAs half a grid apart (as tiles that several SMs share); graph of `nodes` equal launches
   On chip    smem 0 B; registers as printed by ptxas (record .toml)
   Traffic    W bytes a launch from L2 (share h) or DRAM (1 - h)
   Work       one addition a word                             Bound  launch, then l2, then dram
   Checked    the sum of every launch against an order-independent checksum; written vectors bit-exact
   Model      cost/cache: hit share of repeated launches, h = (t_dram(W) - t(W)) / (t_dram(W) - t_l2(W)), with
              t_dram the time of the same launch over rotating windows (nothing resident) and t_l2 a straight line
              through the points of 2..8 MiB; points print seconds and seconds_rotating, `derive` draws the line
   Reference  none; Nsight Compute on the same binary with --mode stream gives lts__t_sectors_op_read_lookup_hit.sum
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v l2_residency.cu -o l2_residency
   Run        ./l2_residency --nodes 40 --replays 7            one JSON line a point; --mode stream --mib 20 for ncu */
#include "../common/tilesight.cuh"
using namespace ts;
using u64 = unsigned long long;

constexpr int BLOCK_BYTES = 4096, THREADS = 256;

template <bool WRITES>
__global__ void __launch_bounds__(THREADS) sweep(const unsigned char* in, uint4* out, int blocks, int readers, u64* total) {
  u64 sum = 0;
  int part = gridDim.x / readers, first = blockIdx.x % part;
  constexpr int UNROLL = 4;
  for (int b = first; b < blocks; b += UNROLL * part) {
    uint4 v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      v[u] = b + u * part < blocks ? __ldcg((const uint4*)(in + (size_t)(b + u * part) * BLOCK_BYTES) + threadIdx.x)
                                   : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      sum += sum_words(v[u]);
      if (WRITES && b + u * part < blocks && threadIdx.x % 8 == 0 && blockIdx.x < part)
        out[((size_t)(b + u * part) * THREADS + threadIdx.x) / 8] = v[u];
    }
  }
  block_add(total, sum);
}
// Vector i of out is vector 8 i of in.
__global__ void count_wrong(const uint4* in, const uint4* out, size_t vectors, u64* wrong) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < vectors; i += (size_t)gridDim.x * blockDim.x) {
    uint4 a = in[8 * i], b = out[i];
    if (a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w) atomicAdd(wrong, 1ull);
  }
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  int nodes = args.get("--nodes", 40), replays = args.get("--replays", 7), sms = sm_count(), grid = sms * 4;
  size_t pool = (size_t)2048 << 20;
  auto* in = device_alloc<unsigned char>(pool);
  auto* out = device_alloc<uint4>(pool / 8 / 16);
  auto* total = device_alloc<u64>(2);
  fill_words(in, pool, 4);
  warm_up_clock();

  auto launch = [&](size_t offset, int blocks, int readers, bool writes, cudaStream_t stream) {
    uint4* to = out + offset / 8 / 16;
    if (writes) sweep<true><<<grid, THREADS, 0, stream>>>(in + offset, to, blocks, readers, total);
    else sweep<false><<<grid, THREADS, 0, stream>>>(in + offset, to, blocks, readers, total);
  };
  if (args.get("--mode", "graph") == "stream") {
    for (int i = 0; i < nodes; ++i) launch(0, args.get("--mib", 20) * 256, 1, false, 0);
    CHECK(cudaDeviceSynchronize());
    return 0;
  }
  std::vector<double> sizes_mib = {1, 2, 2.5, 3, 4, 5, 6, 7};
  for (int i = 0; i <= 29; ++i) sizes_mib.push_back(8 * std::pow(2.0, i / 8.0));
  for (double more : {42.5, 43.5, 44.5, 46.0, 47.0, 48.0, 51.0, 110.0, 128.0, 256.0, 512.0}) sizes_mib.push_back(more);
  for (int readers : {1, 2})
    for (bool writes : {false, true})
      for (double mib : sizes_mib) {
        int blocks = (int)(mib * (1 << 20) / BLOCK_BYTES);
        size_t bytes = (size_t)blocks * BLOCK_BYTES, windows = pool / bytes;
        CHECK(cudaMemset(total, 0, 16));
        if (writes) poison(out, bytes / 8);
        launch(0, blocks, readers, writes, 0);
        if (writes) count_wrong<<<1056, 256>>>((const uint4*)in, out, bytes / 128, total + 1);
        auto seen = to_host(total, 2);
        require(seen[0] == readers * checksum(in, bytes), "l2_residency: sum");
        require(seen[1] == 0, "l2_residency: written vectors");
        auto t = time_graph([&](cudaStream_t s) { launch(0, blocks, readers, writes, s); }, nodes, replays);
        // Rotating: between two uses of a window the chip reads `span` >= 512 MiB of others, so nothing is in L2.
        size_t next = 0, used = std::min<size_t>(windows, std::max<size_t>(4, (512u << 20) / bytes));
        auto cold = time_graph([&](cudaStream_t s) { launch((next++ % used) * bytes, blocks, readers, writes, s); }, (int)used, 3);
        Json j("l2_residency");
        j.put("bytes", bytes).put("written_bytes", writes ? bytes / 8 : (size_t)0).put("readers", readers).put("nodes", nodes);
        j.put("seconds", median(t)).put("bytes_per_s", bytes / median(t)).put("spread", spread(t));
        j.put("seconds_rotating", median(cold)).put("spread_rotating", spread(cold)).emit();
      }
  return 0;
}
