/* quantise_int8: q = round(x / scale), half to even, with scale = max |x| / 127 of the row; a row of zeros gives scale 0, zeros.
   Defined    for finite x. In any case q is -127 to 127: a row with infinite elements gives scale inf, their signs times 127
              and 0 elsewhere; elements that are no number don't count for the scale, and their q is any. Where the scale is
              below the least normal float its rounding may make quotients larger than 127: these are 127 too
   Shapes     x: (rows, cols) row-major, float or bf16; q: int8, the same shape; scale: rows floats; any rows >= 1, cols >= 1
   Launch     row_launch.cuh: cluster P = 2, 4, 8, 16, staged and reread; block <= 512, persistent or one row a CTA
   On chip    x of a slice in a ring of slots and in registers (see row_kernel.cuh)
   Traffic    5 B per element in float (x, q) from DRAM; reread: 9 B
   Work       about 8 flop per element                         Bound  dram
   Exchange   one a row, 1 float a CTA: the maximum
   Checked    every q against float32 division and rounding in a host loop, exact; scale to 1e-6    Model  tilesight/dsmem
   Rounding   the quotient is that of IEEE division, from the reciprocal and two corrections; stores round it half to even
   Reference  Dettmers et al., "LLM.int8()" (2022), for row-wise absmax; Markstein (1990), for division
   Targets    sm_90a sm_100a sm_103a sm_120a (others: no clusters)
   Build      nvcc -O3 -std=c++17 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xptxas -v quantise_int8.cu -o quantise_int8
   Run        ./quantise_int8 --rows 4096 --cols 65536       one JSON line a variant */
#include "row_main.cuh"
using namespace ts;

struct Largest {
  float most;
  __device__ void merge(const Largest& b) { most = fmaxf(most, b.most); }
};

struct QuantiseInt8 {
  static constexpr const char* NAME = "quantise_int8";
  static constexpr int INPUTS = 1, STATISTIC_INPUTS = 1, SHARED = 0, OUTPUTS = 1;  // x; q
  static constexpr bool ROW_SCALAR = true, EXACT = true;
  template <class T> using Out = int8_t;

  __host__ __device__ static float sample(int, float normal, int kind) {
    return kind == LARGE_MEAN ? 1000 + normal : kind == EQUAL ? 0 : normal;
  }
  static void reference(const Row& in, Row& out, double& scale, double&) {
    double most = 0;
    for (double v : in[0]) most = std::max(most, std::fabs(v));
    scale = most / 127;
    const float rounded = (float)most / 127;
    for (size_t i = 0; i < in[0].size(); ++i) {
      const float x = (float)in[0][i], q = rounded == 0 ? 0 : std::isinf(x) ? std::copysign(127.0f, x) : x / rounded;
      out[0][i] = std::min(127.0, std::max(-127.0, (double)std::nearbyint(q)));
    }
  }

  using Partial = Largest;
  struct Running {
    Largest p;
    template <int V> __device__ void start(const float (&)[1][V]) {}
    template <int V> __device__ void add(const float (&v)[1][V], int count) {
#pragma unroll
      for (int e = 0; e < V; ++e) p.most = fmaxf(p.most, e < count ? fabsf(v[0][e]) : 0);
    }
    __device__ Partial close() const { return p; }
  };
  struct Final { float scale, factor, divisor, inverse; };  // divisor = scale * factor is far from the least float
  __device__ static Final finish(const Partial& p, int) {
    const float scale = p.most / 127, factor = scale < 1e-25f ? 1.2676506e30f : 1;  // 2^100
    const float divisor = scale * factor;
    // infinite scale: apply() takes finite elements to less than 1/2, and keeps the signs of infinite ones
    if (isinf(scale)) return {scale, 1, -1, 7.1746481e-43f};  // 2^-140
    return {scale, factor, divisor, scale > 0 ? __fdiv_rn(1, divisor) : 0};
  }
  template <int V> __device__ static void apply(const Final& f, const float (&v)[1][V], float (&out)[1][V]) {
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const float x = v[0][e] * f.factor;
      float q = x * f.inverse;
      q = fmaf(fmaf(-q, f.divisor, x), f.inverse, q);  // now off by at most one unit in the last place
      out[0][e] = fmaf(fmaf(-q, f.divisor, x), f.inverse, q);
    }
  }
  __device__ static float scalar(const Final& f) { return f.scale; }
};

int main(int argc, char** argv) { return row_main<QuantiseInt8>(argc, argv, 4096); }
