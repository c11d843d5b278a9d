/*
 * estimate.h - what a launch of one function with one size of grid takes on the device, as a moving estimate from
 * timings of a launch now and then. Under the lock of the work that it belongs to; its thread looks without.
 */
#ifndef VG_GATE_ESTIMATE_H
#define VG_GATE_ESTIMATE_H
#include "base/prim.h"

#define VG_ESTIMATE_SAMPLES 32
#define VG_ESTIMATE_SAMPLES_FIRST 4 /* so many are taken as soon as can be */

/* Does a kernel wait for kernels on other devices? */
enum vg_collective { VG_COLLECTIVE_UNKNOWN, VG_COLLECTIVE_NOT, VG_COLLECTIVE };

struct vg_estimate {
  const void *function;
  uint32_t grid_class;                      /* log2 of the threads launched */
  uint32_t countdown;                       /* launches until the next one is timed; 0: one is being timed */
  uint32_t postponed;                       /* timings put off since the stream was empty */
  uint32_t count;                           /* samples taken so far */
  enum vg_collective collective;            /* looked up for gangs only */
  uint64_t cost_ns;                         /* 0: not known yet */
  uint64_t samples_ns[VG_ESTIMATE_SAMPLES]; /* the last ones */
};

/* A launch has been timed. Returns what that launch counts for. */
uint64_t vg_estimate_sample(struct vg_estimate *estimate, uint64_t sample_ns);
uint64_t vg_estimate_guess(void); /* what the first launch of its kind counts for */
uint32_t
vg_estimate_next_timing(const struct vg_estimate *estimate); /* how many launches until the next one is timed? */

static inline uint64_t vg_estimate_cost(const struct vg_estimate *estimate) {
  return VG_LIKELY(estimate->cost_ns) ? estimate->cost_ns : vg_estimate_guess();
}

#endif
