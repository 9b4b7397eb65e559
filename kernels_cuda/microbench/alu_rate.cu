/* alu_rate: operations per cycle of an SM and dependent latency of single arithmetic, conversion and exchange instructions.
   Shapes     8 chains a thread, each operation reads the result of the one before; latency: one chain of one warp
   Launch     grid 1, block 32 * warps, no cluster
   On chip    no shared memory in the loop; registers as printed by ptxas (record .toml)
   Traffic    none in the loop
   Work       ops_per_instruction operations a lane: 2 for packed ones (cvt_e4m3x4: 4), 1 for an FMA     Bound  issue, pipe; latency
   Parts      rate, latency. The PTX text is what is counted; a negation or absolute value in it costs nothing. More than one
              machine instruction: ex2 without ftz (4 more, scaling), sin and cos (range factor first), packed ex2 and tanh
              (each half), rcp (and a maximum: two reciprocals in a row would vanish), cvt_e4m3x4 (2), redux (and a move out of a
              uniform register)
   Checked    one operation against the host (exact, or within the error of the approximation), and the loops bit by bit
              against as many single operations
   Model      operations of an epilogue or a softmax beside the tensor cores
   Reference  CUDA C++ Programming Guide, "Arithmetic Instructions", throughput table
   Targets    sm_80 sm_89 sm_90a sm_100a sm_103a sm_120a
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v alu_rate.cu -o alu_rate
   Run        ./alu_rate --repeats 9                           one JSON line a point */
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "../common/cta_window.cuh"
using namespace ts;

constexpr int CHAINS = 8, UNROLL = 16, LATENCY_UNROLL = 64, THREADS = 1024;
enum Kind { FLOATS, HALVES, BFLOATS, WORDS, DOUBLES };  // what the inputs are
enum Mode { RATE, LATENCY, SINGLE };

// ---------------------------------------------------------------- host reference: values in registers

float as_float(uint32_t u) { float f; std::memcpy(&f, &u, 4); return f; }
uint32_t as_word(float f) { uint32_t u; std::memcpy(&u, &f, 4); return u; }
float half_of(uint32_t u, int i) { return __half2float(__ushort_as_half((unsigned short)(u >> 16 * i))); }
float bfloat_of(uint32_t u, int i) { return as_float(u >> 16 * i << 16); }
uint32_t half_bits(float f) { return __half_as_ushort(__float2half(f)); }
uint32_t bfloat_bits(float f) { return __bfloat16_as_ushort(__float2bfloat16(f)); }
uint32_t pack_halves(float lo, float hi) { return half_bits(lo) | half_bits(hi) << 16; }
uint32_t fp8_of(uint32_t u) { return __nv_cvt_float_to_fp8(as_float(u), __NV_SATFINITE, __NV_E4M3); }
uint32_t pack_bfloats(float lo, float hi) { return bfloat_bits(lo) | bfloat_bits(hi) << 16; }
bool near(double got, double want, double tolerance) { return std::fabs(got - want) <= tolerance * std::max(1.0, std::fabs(want)); }
template <class F> bool near_halves(uint32_t got, F want, double tolerance) {
  return near(half_of(got, 0), want(0), tolerance) && near(half_of(got, 1), want(1), tolerance);
}
template <class F> bool near_bfloats(uint32_t got, F want, double tolerance) {
  return near(bfloat_of(got, 0), want(0), tolerance) && near(bfloat_of(got, 1), want(1), tolerance);
}

// ---------------------------------------------------------------- operations

#ifdef __CUDA_ARCH__
constexpr int ARCH = __CUDA_ARCH__;
#else
constexpr int ARCH = 0;
#endif
uint32_t warp_sum(const uint32_t* in, int i) {
  uint32_t sum = 0;
  for (int lane = 0; lane < 32; ++lane) sum += in[i / 32 * 32 + lane];
  return sum;
}

// x: the chain; a, b: the same for all threads. OK: whether `got` is right for x = in[i]. MIN: least architecture.
#define OP(NAME, PTX, T_, C, KIND, OPS, MIN, OK)                                                                   \
  struct NAME {                                                                                                    \
    using T = T_;                                                                                                  \
    static constexpr const char *name = #NAME, *ptx = PTX;                                                         \
    static constexpr int ops = OPS;                                                                                \
    static constexpr Kind kind = KIND;                                                                             \
    static __device__ __forceinline__ T apply(T x, T a, T b) {                                                     \
      if constexpr (ARCH >= MIN) asm volatile("{\n.reg .b16 lo, hi;\n" PTX ";\n}" : "+" C(x) : C(a), C(b));        \
      return x;                                                                                                    \
    }                                                                                                              \
    static bool ok(const T* in, int i, T x, T a, T b, T got) { return OK; }                                        \
  };
#define F(x) as_float(x)
#define OP32(NAME, PTX, KIND, OPS, OK) OP(NAME, PTX, uint32_t, "r", KIND, OPS, 800, OK)
namespace op {  // the names of mathematical functions too
// clang-format off
OP32(ffma, "fma.rn.f32 %0, %0, %1, %2", FLOATS, 1, F(got) == std::fma(F(x), F(a), F(b)))
OP32(fadd, "add.rn.f32 %0, %0, %2", FLOATS, 1, F(got) == F(x) + F(b))
OP32(fmul, "mul.rn.f32 %0, %0, %1", FLOATS, 1, F(got) == F(x) * F(a))
OP32(fmin, "neg.f32 %0, %0; min.f32 %0, %0, %2", FLOATS, 1, F(got) == std::min(-F(x), F(b)))
OP32(hfma2, "fma.rn.f16x2 %0, %0, %1, %2", HALVES, 2,
     near_halves(got, [&](int h) { return half_of(x, h) * half_of(a, h) + half_of(b, h); }, 1e-3))
OP32(hfma2_bf16, "fma.rn.bf16x2 %0, %0, %1, %2", BFLOATS, 2,
     near_bfloats(got, [&](int h) { return bfloat_of(x, h) * bfloat_of(a, h) + bfloat_of(b, h); }, 8e-3))
OP(dfma, "fma.rn.f64 %0, %0, %1, %2", double, "d", DOUBLES, 1, 800, got == std::fma(x, a, b))
OP32(ex2_ftz, "neg.f32 %0, %0; ex2.approx.ftz.f32 %0, %0", FLOATS, 1, near(F(got), std::exp2(-(double)F(x)), 1e-6))
OP32(ex2, "neg.f32 %0, %0; ex2.approx.f32 %0, %0", FLOATS, 1, near(F(got), std::exp2(-(double)F(x)), 1e-6))
OP32(ex2_f16x2, "ex2.approx.f16x2 %0, %0", HALVES, 2, near_halves(got, [&](int h) { return std::exp2((double)half_of(x, h)); }, 2e-3))
OP32(lg2, "abs.f32 %0, %0; lg2.approx.ftz.f32 %0, %0", FLOATS, 1, near(F(got), std::log2(std::fabs((double)F(x))), 1e-6))
OP32(rcp, "max.f32 %0, %0, %2; rcp.approx.ftz.f32 %0, %0", FLOATS, 1, near(F(got), 1.0 / std::max(F(x), F(b)), 1e-6))
OP32(rsqrt, "rsqrt.approx.ftz.f32 %0, %0", FLOATS, 1, near(F(got), 1.0 / std::sqrt((double)F(x)), 1e-6))
OP32(sqrt, "sqrt.approx.ftz.f32 %0, %0", FLOATS, 1, near(F(got), std::sqrt((double)F(x)), 1e-6))
OP32(sin, "sin.approx.ftz.f32 %0, %0", FLOATS, 1, near(F(got), std::sin((double)F(x)), 4e-6))
OP32(cos, "cos.approx.ftz.f32 %0, %0", FLOATS, 1, near(F(got), std::cos((double)F(x)), 4e-6))
OP32(tanh, "tanh.approx.f32 %0, %0", FLOATS, 1, near(F(got), std::tanh((double)F(x)), 2e-3))
OP32(tanh_f16x2, "tanh.approx.f16x2 %0, %0", HALVES, 2, near_halves(got, [&](int h) { return std::tanh((double)half_of(x, h)); }, 3e-3))
OP32(iadd3, "add.u32 %0, %0, %1; add.u32 %0, %0, %2", WORDS, 1, got == x + a + b)
OP32(imad, "mad.lo.u32 %0, %0, %1, %2", WORDS, 1, got == x * a + b)
OP32(lop3, "lop3.b32 %0, %0, %1, %2, 0x1E", WORDS, 1, got == (x ^ (a | b)))
OP32(shf, "shf.l.wrap.b32 %0, %0, %1, 7", WORDS, 1, got == (a << 7 | x >> 25))
OP32(popc, "popc.b32 %0, %0", WORDS, 1, got == (uint32_t)__builtin_popcount(x))
OP32(cvt_bf16x2, "cvt.rn.bf16x2.f32 %0, %0, %1", FLOATS, 2, got == pack_bfloats(F(a), F(x)))
OP32(cvt_f16x2, "cvt.rn.f16x2.f32 %0, %0, %1", FLOATS, 2, got == pack_halves(F(a), F(x)))
OP32(cvt_f32_f16, "mov.b32 {lo, hi}, %0; cvt.f32.f16 %0, hi", HALVES, 1, F(got) == half_of(x, 1))
OP32(shfl, "shfl.sync.bfly.b32 %0, %0, 1, 0x1f, 0xffffffff", WORDS, 1, got == in[i ^ 1])
OP32(redux, "redux.sync.add.u32 %0, %0, 0xffffffff", WORDS, 1, got == warp_sum(in, i))
OP(cvt_e4m3x4, "cvt.rn.satfinite.e4m3x2.f32 lo, %0, %1; cvt.rn.satfinite.e4m3x2.f32 hi, %2, %0; mov.b32 %0, {lo, hi}",
   uint32_t, "r", FLOATS, 4, 890,
   got == (fp8_of(a) | fp8_of(x) << 8 | fp8_of(x) << 16 | fp8_of(b) << 24))
OP(ex2_bf16x2, "ex2.approx.ftz.bf16x2 %0, %0", uint32_t, "r", BFLOATS, 2, 900,
   near_bfloats(got, [&](int h) { return std::exp2((double)bfloat_of(x, h)); }, 1e-2))
// clang-format on
}  // namespace op

// ---------------------------------------------------------------- kernel

// in: CHAINS rows of THREADS, then a and b for every thread (in registers, as in a kernel); out: CHAINS rows.
// RATE: steps * UNROLL operations of each chain; LATENCY: steps * LATENCY_UNROLL of the first chain; SINGLE: one of each.
template <class OP>
__global__ void __launch_bounds__(THREADS)
alu_kernel(const typename OP::T* in, typename OP::T* out, Mode mode, int steps, Elapsed* elapsed) {
  __shared__ CtaWindow window;
  typename OP::T x[CHAINS];
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) x[c] = in[c * THREADS + threadIdx.x];
  const typename OP::T a = in[CHAINS * THREADS + threadIdx.x], b = in[(CHAINS + 1) * THREADS + threadIdx.x];
  const long long t0 = window_open(window);
  if (mode == RATE) {
#pragma unroll 1
    for (int s = 0; s < steps; ++s)
#pragma unroll
      for (int u = 0; u < UNROLL; ++u)
#pragma unroll
        for (int c = 0; c < CHAINS; ++c) x[c] = OP::apply(x[c], a, b);
  } else if (mode == LATENCY) {
#pragma unroll 1
    for (int s = 0; s < steps; ++s)
#pragma unroll
      for (int u = 0; u < LATENCY_UNROLL; ++u) x[0] = OP::apply(x[0], a, b);
  } else {
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) x[c] = OP::apply(x[c], a, b);
  }
  window_close(window, t0, elapsed);
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) out[c * THREADS + threadIdx.x] = x[c];
}

// ---------------------------------------------------------------- launcher

// Values in [0.5, 1), and constants that keep a chain of products there for long.
double unit(int i, uint64_t seed) { return 0.5 + hash32(i + (seed << 40)) * (0.5 / 4294967296.0); }
void make_value(Kind, double& x, double v, double) { x = v; }
void make_value(Kind kind, uint32_t& x, double v, double w) {
  x = kind == FLOATS ? as_word((float)v) : kind == HALVES ? pack_halves((float)v, (float)w) : pack_bfloats((float)v, (float)w);
}
void make_word(double&, uint32_t) {}
void make_word(uint32_t& x, uint32_t w) { x = w; }

template <class OP> void measure(int repeats) {
  using T = typename OP::T;
  const int n = CHAINS * THREADS;
  std::vector<T> in(n);
  T a, b;
  for (int i = 0; i < n; ++i) make_value(OP::kind, in[i], unit(i, 1), unit(i, 2));
  make_value(OP::kind, a, 0.998, 0.996);
  make_value(OP::kind, b, 0.0017, 0.0031);
  if (OP::kind == WORDS) {
    for (int i = 0; i < n; ++i) make_word(in[i], hash32(i + (3ull << 40)));
    make_word(a, 0x9E3779B9u), make_word(b, 0x7F4A7C15u);
  }
  T *x = device_alloc<T>(n + 2 * THREADS), *y = device_alloc<T>(n + 2 * THREADS), *z = device_alloc<T>(n);
  Elapsed* elapsed = device_alloc<Elapsed>(1);
  in.resize(n + THREADS, a);
  in.resize(n + 2 * THREADS, b);
  for (T* p : {x, y}) CHECK(cudaMemcpy(p, in.data(), in.size() * sizeof(T), cudaMemcpyHostToDevice));
  auto launch = [&](const T* from, T* to, int warps, Mode mode, int steps) {
    alu_kernel<OP><<<1, 32 * warps>>>(from, to, mode, steps, elapsed);
    CHECK_LAUNCH();
  };
  const std::string name = std::string("alu_rate: ") + OP::name;
  poison(y, n * sizeof(T));
  launch(x, y, 32, SINGLE, 1);
  auto got = to_host(y, n);
  for (int i = 0; i < n; ++i) require(OP::ok(in.data(), i, in[i], a, b, got[i]), name + ": one operation");
  for (Mode mode : {RATE, LATENCY}) {
    const int steps = mode == RATE ? 2 : 1, times = mode == RATE ? steps * UNROLL : LATENCY_UNROLL;
    poison(z, n * sizeof(T));
    launch(x, z, 32, mode, steps);
    launch(x, y, 32, SINGLE, 1);
    for (int i = 1; i < times; ++i) launch(y, y, 32, SINGLE, 1);
    size_t compared = (mode == RATE ? n : THREADS) * sizeof(T);  // of LATENCY the first chain
    auto want = to_host(y, n), loop = to_host(z, n);
    require(std::memcmp(want.data(), loop.data(), compared) == 0, name + (mode == RATE ? ": rate loop" : ": latency loop"));
  }
  auto emit = [&](const char* part, int warps, const Timing& t, double instructions) {  // of the SM, of the chain
    double each = median(t.cycles) / instructions;
    Json j("alu_rate");
    j.put("part", part).put("op", OP::name).put("ptx", OP::ptx).put("warps", warps).put("ops_per_instruction", OP::ops);
    j.put("cycles_per_instruction", each);
    if (part[0] == 'r') j.put("ops_per_cycle_per_sm", 32.0 * OP::ops / each);
    j.put("repeats", repeats).put("spread", spread(t.cycles)).emit();
  };
  const int steps = 100;
  for (int warps : {4, 16, 32})
    emit("rate", warps, time_ctas([&] { launch(x, y, warps, RATE, steps); }, elapsed, 1, repeats),
         (double)steps * UNROLL * CHAINS * warps);
  emit("latency", 1, time_ctas([&] { launch(x, y, 1, LATENCY, steps); }, elapsed, 1, repeats), (double)steps * LATENCY_UNROLL);
  for (T* p : {x, y, z}) CHECK(cudaFree(p));
  CHECK(cudaFree(elapsed));
}

template <class... OPS> void measure_all(int repeats) { (measure<OPS>(repeats), ...); }

int main(int argc, char** argv) {
  Args args(argc, argv);
  const int repeats = args.get("--repeats", 9), capability = compute_capability();
  warm_up_clock(0.1);
  measure_all<op::ffma, op::fadd, op::fmul, op::fmin, op::hfma2, op::hfma2_bf16, op::dfma>(repeats);
  measure_all<op::ex2_ftz, op::ex2, op::ex2_f16x2, op::lg2, op::rcp, op::rsqrt, op::sqrt, op::sin, op::cos>(repeats);
  measure_all<op::tanh, op::tanh_f16x2, op::iadd3, op::imad, op::lop3, op::shf, op::popc>(repeats);
  measure_all<op::cvt_bf16x2, op::cvt_f16x2, op::cvt_f32_f16, op::shfl, op::redux>(repeats);
  if (capability >= 89) measure<op::cvt_e4m3x4>(repeats);
  if (capability >= 90) measure<op::ex2_bf16x2>(repeats);
  return 0;
}
