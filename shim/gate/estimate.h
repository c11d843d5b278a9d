/*
 * estimate.h - how long a launch of one function with one size of grid takes on the device: a moving estimate from
 * timings of some launches. Under the lock of the work that it belongs to; the work's own thread reads without it.
 */
#ifndef VG_GATE_ESTIMATE_H
#define VG_GATE_ESTIMATE_H
#include "base/prim.h"

#define VG_ESTIMATE_SAMPLES 32
#define VG_ESTIMATE_SAMPLES_FIRST 4 /* this many are taken as soon as possible */

/* Whether a kernel waits for kernels on other devices. */
enum vg_collective { VG_COLLECTIVE_UNKNOWN, VG_COLLECTIVE_NOT, VG_COLLECTIVE };

struct vg_estimate {  /* what each launch looks at comes first; a cache line, so that a table needs no multiplication */
  uint64_t key;       /* function and grid_class; 0: unused */
  int64_t charge;     /* what a launch takes of a tally, see below */
  uint32_t countdown; /* launches until the next one is timed; 0: one is being timed */
  uint32_t grid_class; /* log2 of the threads launched */
  const void *function;
  uint64_t cost_ns;     /* 0: unknown yet */
  uint32_t row_ns;      /* of launches in a row, one after the other took so long at most, the last time; 0: unknown */
  uint32_t count;       /* samples taken so far */
  uint32_t most_us;     /* of a graph that waits for something else: its kernels' time; 0: no limit */
  uint8_t postponed;    /* timings put off because the stream was empty */
  uint8_t collective;   /* enum vg_collective: looked up for gangs only */
  uint8_t spoilt;       /* timings in which the thread was held up */
  bool without_call;    /* the samples are, see vg_estimate_sample() */
  uint64_t *samples_ns; /* the last VG_ESTIMATE_SAMPLES */
} __attribute__((aligned(16)));
_Static_assert(sizeof(struct vg_estimate) == 64, "a power of two");

/* A tally (thread_work.h) counts time and launches in one number, and a launch takes its charge from it at once: ns in
 * the upper bits, launches in the lower ones. Each takes 1 ns at least, so a full tally has fewer than 2^24. */
#define VG_TALLY_LAUNCH_BITS 24
#define VG_TALLY_MOST_NS (1ll << (VG_TALLY_LAUNCH_BITS - 1)) /* that a tally has space for */

static inline uint64_t vg_estimate_limited(const struct vg_estimate *estimate, uint64_t cost_ns) {
  uint64_t most_ns = estimate->most_us * 1000ull;
  return most_ns && cost_ns > most_ns ? most_ns : cost_ns;
}

/* What takes as long as that, is unknown (0) or waits inside, fits in no tally. Launching threads look at
 * both numbers without the lock. */
static inline void vg_estimate_set_cost(struct vg_estimate *estimate, uint64_t cost_ns) {
  cost_ns = vg_estimate_limited(estimate, cost_ns);
  bool known = cost_ns && !estimate->most_us; /* a graph that waits has a marker behind each launch */
  int64_t charged_ns = known && cost_ns < VG_TALLY_MOST_NS ? (int64_t)cost_ns : VG_TALLY_MOST_NS;
  VG_STORE_RELAXED(&estimate->cost_ns, cost_ns);
  VG_STORE_RELAXED(&estimate->charge, charged_ns << VG_TALLY_LAUNCH_BITS | 1);
}

/* A launch has been timed; without_call: and how long its call took is not in the sample, which it is in others.
 * Returns the cost that is counted for that launch. */
uint64_t vg_estimate_sample(struct vg_estimate *estimate, uint64_t sample_ns, bool without_call);
#define VG_ESTIMATE_ROW_NS 16000 /* of longer kernels what a launch and its events take is a small part: no rows */
/* So many launches in a row have been timed together, which took elapsed_ns; 0: a row could not be timed. */
void vg_estimate_row(struct vg_estimate *estimate, uint32_t launches, uint64_t elapsed_ns);
void vg_estimate_limit(struct vg_estimate *estimate, bool limited, uint64_t most_ns);
uint64_t vg_estimate_guess(void); /* the cost of a function's first launch */
/* After how many launches the next one is timed, if each takes likely_ns. */
uint32_t vg_estimate_next_timing(const struct vg_estimate *estimate, uint64_t likely_ns);

static inline uint64_t vg_estimate_cost(const struct vg_estimate *estimate) {
  return VG_LIKELY(estimate->cost_ns) ? estimate->cost_ns : vg_estimate_guess();
}

#endif
