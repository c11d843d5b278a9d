/*
 * arbiter_core.h - the decisions of the arbiter, pure: no clock, no pages, no system calls. arbiter.c (the thread)
 * fills the inputs, calls vg_core_step() with the time, and publishes the outputs; tests do the same with a fake clock.
 *
 * Algorithm (DESIGN D6): an HTB shell with start-time fair excess. Each slice has two buckets, guarantee (rate min) and
 * cap (rate max); both may go negative, which is debt. One slice holds the device at a time. Who is owed most of its
 * guarantee comes first; when nobody is owed anything, the smallest virtual time does. A lease is extended rather than
 * granted anew, given up early by a holder with nothing to run, charged after it has drained, and open-ended while
 * nobody else wants the device. A holder that does not drain in time keeps its gate shut while the next one's opens:
 * the hardware slices between them and the time is split.
 */
#ifndef VG_ARBITER_CORE_H
#define VG_ARBITER_CORE_H
#include <stdbool.h>
#include <stdint.h>

#include "arbiter.h"

#define VG_CORE_SLICES_MAX 128
#define VG_CORE_NEVER UINT64_MAX
#define VG_CORE_COAST_PERIOD_US 20000

enum vg_core_state {
  VG_CORE_SHUT,     /* gate closed, nothing outstanding */
  VG_CORE_OPEN,     /* gate open: the holder */
  VG_CORE_DRAINING, /* gate closed, work outstanding, nobody else runs yet */
  VG_CORE_OVERLAP,  /* gate closed, work still outstanding, somebody else runs beside it */
};

struct vg_core_slice {
  uint64_t id;
  bool present;
  struct vg_slice_params params;
  /* inputs */
  bool attached;              /* has at least one process */
  bool wants;                 /* a launching thread waits at the closed gate */
  bool outstanding;           /* work outstanding */
  bool quiet;                 /* every process has given up the present word (open) or drained it (closed) */
  bool regrets;               /* a process has given the present word up, and one of its threads waits at the gate */
  bool noticed;               /* some process has noticed the present closed word: not a stopped one */
  uint64_t drained_ns;        /* when quiet under a closed word: the last process's drain */
  uint64_t drain_expected_ns; /* under a closed word: the last process\'s own forecast; 0 = none */
  uint64_t busy_total_ns;     /* monotone: device time with work outstanding, as reported */
  uint64_t active_total_ns;   /* monotone: time with work outstanding or a thread at the gate */
  uint64_t done_total_ns;     /* monotone: calibrated cost of completed work */
  /* outputs */
  uint32_t word;         /* the gate word */
  uint64_t lease_end_ns; /* 0 = open end */
  uint64_t bound_ns;
  uint32_t neighbour_waits; /* VG_NOBODY_WAITS .. */
  uint32_t watch;           /* VG_WATCH_* */
  /* state */
  enum vg_core_state state;
  bool owed_class;  /* the present lease was granted from the guarantee */
  bool was_wanting; /* to see a wake-up from idle */
  bool overran;     /* has been counted as an overrun since its gate was shut */
  int64_t guarantee_ns;
  int64_t cap_ns;
  uint64_t virtual_ns;
  uint64_t grant_ns;
  uint64_t idle_since_ns; /* the holder: nothing outstanding since then; 0 = it has */
  uint64_t close_ns;
  uint64_t rescue_ns; /* overlapping: when the gate is opened or closed again for a moment, see rescue() */
  uint64_t busy_seen_ns;
  uint64_t served;             /* order of grants, for ties */
  struct vg_slice_stats stats; /* charged_ns, grants, early_releases, overruns */
};

struct vg_core {
  struct vg_arbiter_params params;
  struct vg_core_slice slices[VG_CORE_SLICES_MAX];
  int slice_count; /* slots in use or once used */
  uint64_t last_ns;
  uint64_t served;
};

void vg_core_init(struct vg_core *core, const struct vg_arbiter_params *params, uint64_t now_ns);
struct vg_core_slice *vg_core_find(struct vg_core *core, uint64_t id);
/* Adds or changes a slice; NULL when the table is full. A new slice starts with full buckets. */
struct vg_core_slice *vg_core_set(struct vg_core *core, uint64_t id, const struct vg_slice_params *params);
void vg_core_remove(struct vg_core *core, uint64_t id);
/* One round: charges, closes, grants. Returns when it must be called again at the latest (VG_CORE_NEVER: only on news).
 */
uint64_t vg_core_step(struct vg_core *core, uint64_t now_ns);
/* The static timetable of a slice for the time without a daemon (DESIGN D9): at most capacity slots of
 * VG_CORE_COAST_PERIOD_US; returns how many. Minima first, the rest to those who may borrow, by weight, up to max. */
int vg_core_coast_slots(const struct vg_core *core, uint64_t id, struct vg_coast_slot *ret_slots, int capacity);

#endif
