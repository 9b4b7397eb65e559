/* copy_stream.cuh: one thread that copies from global into shared memory at a given pace, as a load beside other work.
   On chip    STREAM_RING bytes of shared memory and STREAM_SLOTS mbarriers
   Pace       a copy of STREAM_CHUNK bytes each `interval_cycles`, as far as the ring allows; integers only, because a
              double-precision instruction has to wait for the tensor cores
   Reference  PTX ISA, cp.async.bulk */
#pragma once
#include "wgmma.cuh"

namespace ts {

constexpr int STREAM_SLOTS = 6, STREAM_CHUNK = 16384, STREAM_RING = STREAM_SLOTS * STREAM_CHUNK;

struct CopyStream {
  const unsigned char* base;      // first chunk of this thread
  unsigned long long step, span;  // distance between its chunks; it starts again when it has walked `span` bytes
  int interval_cycles;            // 0: no copies
};

// Copies until *done reaches `parties`; *bytes holds the running total. Returns the cycles it ran.
__device__ __forceinline__ long long copy_stream(const CopyStream& s, uint32_t ring_address, uint32_t bars_address,
                                                 volatile int* done, int parties, volatile unsigned long long* bytes) {
  *bytes = 0;
  if (s.interval_cycles <= 0) return 0;
  const uint32_t ring = once(ring_address), bars = once(bars_address);
  const long long start = cycles();
  long long next = start;
  unsigned long long at = 0, total = 0;
  int slot = 0, phase = 1, issued = 0;
  while (*done < parties) {
    if (cycles() < next) continue;
    next += s.interval_cycles;
    mbar_wait(bars + 8 * slot, phase);  // passes at once in the first round
    mbar_expect(bars + 8 * slot, STREAM_CHUNK);
    bulk_load(ring + slot * STREAM_CHUNK, s.base + at, STREAM_CHUNK, bars + 8 * slot);
    at += s.step;
    if (at >= s.span) at = 0;
    total += STREAM_CHUNK;
    *bytes = total;
    issued = min(issued + 1, STREAM_SLOTS);
    if (++slot == STREAM_SLOTS) slot = 0, phase ^= 1;
  }
  const long long ran = cycles() - start;
  for (int i = 0; i < issued; ++i) {  // nothing may land after the CTA has left
    if (--slot < 0) slot = STREAM_SLOTS - 1, phase ^= 1;
    mbar_wait(bars + 8 * slot, phase ^ 1);
  }
  return ran;
}

}  // namespace ts
