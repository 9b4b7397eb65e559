/* moments.cuh: weighted mean and variance of x, and the sums of g and g * (x - mean), in one pass over a row.
   Thread     shifted by the thread's first x: n = sum w, s1 = sum w (x - s), s2 = sum w (x - s)^2, g = sum g, gx = sum g (x - s)
   Merge      centred: mean, m2 = sum w (x - mean)^2, gx = sum g (x - mean); exact for equal x
   Gradient   of y = (x - mean) r, r = rsqrt(m2 / n + 1e-5): dx = r (g - (w / n) (sum g + y sum g y))
   Reference  Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979) */
#pragma once
#include "row_data.cuh"

namespace ts {

constexpr float EPSILON = 1e-5f;

struct Moments {
  float n, mean, m2, g, gx;
  __device__ void merge(const Moments& b) {
    const float sum = n + b.n, d = b.mean - mean, share = n > 0 ? __fdividef(b.n, sum) : 1;
    const float to_here = d * share, to_there = to_here - d;  // the new mean is mean + to_here = b.mean + to_there
    m2 += b.m2 + d * to_here * n;
    gx += b.gx - g * to_here - b.g * to_there;
    mean += to_here;
    g += b.g;
    n = sum;
  }
};

struct ShiftedMoments {
  float shift, n, s1, s2, g, gx;
  __device__ void start(float x) { shift = x; }
  // w = null: weights of 1
  template <int V> __device__ void add(const float (&x)[V], const float* w, const float (&grad)[V], int count) {
    float weights[V], first[V], second[V], grads[V], products[V];
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const bool in = e < count;
      const float d = x[e] - shift;
      weights[e] = !in ? 0 : w ? w[e] : 1;
      first[e] = in ? weights[e] * d : 0;
      second[e] = in ? first[e] * d : 0;
      grads[e] = in ? grad[e] : 0;
      products[e] = in ? grad[e] * d : 0;
    }
    n += sum_of(weights), s1 += sum_of(first), s2 += sum_of(second), g += sum_of(grads), gx += sum_of(products);
  }
  __device__ Moments close() const {
    const float d = n > 0 ? s1 / n : 0;
    return {n, shift + d, fmaxf(s2 - s1 * d, 0), g, gx - g * d};
  }
};

// dx = r g - w (a + b (x - mean))
struct Gradient {
  float mean, r, a, b;
  __device__ static Gradient of(const Moments& m) {
    const float r = rsqrtf(m.m2 / m.n + EPSILON), per = r / m.n;
    return {m.mean, r, per * m.g, per * r * r * m.gx};
  }
};

}  // namespace ts
