/* launch_descriptor: what it costs a kernel to make its own TMA descriptors before the first load.
   Shapes     in: (rows, cols) bf16, cols = 4096; each descriptor describes it; one box of 64 x 64 per descriptor is loaded
   Launch     grid 1 or SMs, block 128, no cluster; graph of 100 nodes
   On chip    1 KiB + 8 KiB a box dynamic; registers as printed by ptxas (record .toml)
   Traffic    8 KiB a descriptor and CTA from L2, 128 B written and read back a descriptor and CTA when made on the device
   Work       one addition a word                             Bound  launch, latency
   Methods    parameter: descriptors made on the host, kernel parameters. device: warp 0 zeroes 128 B in shared memory, one
              thread sets the fields (tensormap.replace), the warp copies it to a global workspace with the release fence
              (tensormap.cp_fenceproxy) and acquires it (fence.proxy.tensormap), one descriptor after the other, as
              compilers emit for descriptors made in the kernel. device_release_all: all copied first, then acquired.
              global: ready descriptors in global memory. loads: plain 16-byte loads of the same boxes, no descriptor
   Checked    device descriptors equal the host's 128 bytes but for hint bits; the words loaded against plain loads
   Model      launch: seconds per descriptor made on the device = slope over descriptors, minus that of `parameter`
   Reference  PTX ISA, "tensormap.replace", "tensormap.cp_fenceproxy"
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no tensor copies)
   Build      nvcc -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v launch_descriptor.cu -o launch_descriptor
   Run        ./launch_descriptor --replays 25                 one JSON line a point */
#include "../common/tilesight.cuh"
using namespace ts;
using u64 = unsigned long long;

constexpr int BOX = 64, BOX_BYTES = BOX * 128, MOST = 3, COLS = 4096, ROWS = 4096;
enum Method { PARAMETER, DEVICE, DEVICE_RELEASE_ALL, GLOBAL, LOADS };
struct Maps { CUtensorMap map[MOST]; };

// Fields of a 2-D bf16 row-major map with the 128-byte swizzle; `stride` is the row pitch in bytes, shifted by `shift`.
__device__ void set_fields(uint32_t d, const void* base, uint32_t rows, uint32_t cols, u64 stride, int shift) {
  u64 s = stride >> shift;
  asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(d), "l"(base) : "memory");
  asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], 1;" ::"r"(d) : "memory");
  asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(d), "r"(BOX) : "memory");
  asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(d), "r"(BOX) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(d), "r"(cols) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(d), "r"(rows) : "memory");
  asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(d), "l"(s) : "memory");
  asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(d), "r"(1) : "memory");
  asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(d), "r"(1) : "memory");
  asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 10;" ::"r"(d) : "memory");
  asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" ::"r"(d) : "memory");
  asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;" ::"r"(d) : "memory");
  asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;" ::"r"(d) : "memory");
}
__device__ void release_to(CUtensorMap* global, uint32_t d) {  // whole warp
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(global),
               "r"(d) : "memory");
}
__device__ void acquire(const CUtensorMap* global) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(global) : "memory");
}
__device__ void make(unsigned char* scratch, CUtensorMap* to, const void* base, int shift) {  // warp 0
  uint32_t d = smem_u32(scratch);
  ((uint32_t*)scratch)[threadIdx.x % 32] = 0;
  __syncwarp();
  if (threadIdx.x == 0) set_fields(d, base, ROWS, COLS, COLS * 2, shift);
  __syncwarp();
  release_to(to, d);
}

// workspace: (CTAs, MOST) descriptors; made_only: stop after making them (no load).
template <int METHOD>
__global__ void __launch_bounds__(128) load_boxes(const __grid_constant__ Maps maps, const unsigned char* in, CUtensorMap* workspace,
                                                  int count, int shift, int made_only, u64* total) {
  extern __shared__ unsigned char raw[];
  __shared__ __align__(128) unsigned char scratch[MOST][128];
  __shared__ uint64_t bar;
  unsigned char* smem = align_1024(raw);
  CUtensorMap* own = workspace + (size_t)blockIdx.x * MOST;
  if (threadIdx.x == 0) {
    mbar_init(smem_u32(&bar), 1);
    mbar_init_fence();
  }
  __syncthreads();
  if ((METHOD == DEVICE || METHOD == DEVICE_RELEASE_ALL) && threadIdx.x < 32) {
    for (int i = 0; i < count; ++i) {
      make(scratch[i], own + i, in, shift);
      if (METHOD == DEVICE) acquire(own + i);
    }
    if (METHOD == DEVICE_RELEASE_ALL)
      for (int i = 0; i < count; ++i) acquire(own + i);
  }
  if (made_only) return;
  __syncthreads();
  int col = blockIdx.x % (COLS / BOX) * BOX;
  u64 sum = 0;
  if (METHOD == LOADS) {
    for (int b = 0; b < count; ++b)
      for (int i = threadIdx.x; i < BOX_BYTES / 16; i += blockDim.x)
        sum += sum_words(__ldcg((const uint4*)(in + ((size_t)(b * BOX + i / 8) * COLS + col) * 2) + i % 8));
  } else {
    if (threadIdx.x == 0 && count) {
      mbar_expect(smem_u32(&bar), count * BOX_BYTES);
      for (int b = 0; b < count; ++b)
        tma_load_2d(smem_u32(smem + b * BOX_BYTES), METHOD == PARAMETER ? &maps.map[b] : own + b, col, b * BOX, smem_u32(&bar));
    }
    if (count) mbar_wait(smem_u32(&bar), 0);
    for (int i = threadIdx.x; i < count * BOX_BYTES / 16; i += blockDim.x) sum += sum_words(((const uint4*)smem)[i]);
  }
  block_add(total + blockIdx.x % 64, sum);
}

int main(int argc, char** argv) {
  Args args(argc, argv);
  int replays = args.get("--replays", 25), sms = sm_count(), smem = 1024 + MOST * BOX_BYTES;
  auto* in = device_alloc<unsigned char>((size_t)ROWS * COLS * 2);
  auto* workspace = device_alloc<CUtensorMap>((size_t)sms * MOST);
  auto* total = device_alloc<u64>(64);
  fill_words(in, (size_t)ROWS * COLS * 2, 10);
  Maps maps;
  for (auto& m : maps.map) m = tensor_map_bf16(in, ROWS, COLS, COLS, BOX, BOX, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE);

  auto launch = [&](Method m, int grid, int count, int shift, int made_only, cudaStream_t s) {
    auto go = [&](auto kernel) { kernel<<<grid, 128, smem, s>>>(maps, in, workspace, count, shift, made_only, total); };
    if (m == PARAMETER) go(load_boxes<PARAMETER>);
    if (m == DEVICE) go(load_boxes<DEVICE>);
    if (m == DEVICE_RELEASE_ALL) go(load_boxes<DEVICE_RELEASE_ALL>);
    if (m == GLOBAL) go(load_boxes<GLOBAL>);
    if (m == LOADS) go(load_boxes<LOADS>);
    CHECK_LAUNCH();
  };
  // The stride field counts bytes or 16-byte units, by assembler version: take the one that gives the host's 128 bytes.
  int shift = -1, least = 9;
  for (int s : {0, 4}) {
    poison(workspace, sizeof(CUtensorMap) * MOST);
    launch(DEVICE, 1, 1, s, 1, 0);
    auto made = to_host(workspace, 1);
    int bits = 0;
    for (int w = 0; w < 16; ++w) {
      u64 x = ((u64*)&made[0])[w], y = ((u64*)&maps.map[0])[w];
      bits += __builtin_popcountll(x ^ y);
      if (x != y) std::fprintf(stderr, "shift %d word %d: device %016llx host %016llx\n", s, w, x, y);
    }
    if (bits < least) shift = s, least = bits;
  }
  require(shift >= 0, "launch_descriptor: device descriptor equals the host's but for a few hint bits");
  CHECK(cudaMemset(total, 0, 512));
  auto sum_of = [&](Method m, int count) {
    CHECK(cudaMemset(total, 0, 512));
    launch(m, sms, count, shift, 0, 0);
    u64 sum = 0;
    for (u64 x : to_host(total, 64)) sum += x;
    return sum;
  };
  for (int count = 1; count <= MOST; ++count) {
    u64 expected = sum_of(LOADS, count);
    require(expected != 0, "launch_descriptor: reference read nothing");
    for (Method m : {PARAMETER, DEVICE, DEVICE_RELEASE_ALL, GLOBAL}) require(sum_of(m, count) == expected, "launch_descriptor: sum");
  }
  warm_up_clock();
  static const char* names[] = {"parameter", "device", "device_release_all", "global", "loads"};
  for (Method m : {PARAMETER, DEVICE, DEVICE_RELEASE_ALL, GLOBAL, LOADS})
    for (int grid : {1, sms})
      for (int count : {0, 1, 2, 3})
        for (int made_only : {0, 1}) {
          if (made_only && m != DEVICE && m != PARAMETER) continue;
          auto t = time_graph([&](cudaStream_t s) { launch(m, grid, count, shift, made_only, s); }, 100, replays);
          Json j("launch_descriptor");
          j.put("method", names[m]).put("grid", grid).put("descriptors", count).put("made_only", made_only);
          j.put("seconds", median(t)).put("spread", spread(t)).emit();
        }
  return 0;
}
