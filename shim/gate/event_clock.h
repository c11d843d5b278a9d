/*
 * event_clock.h - when events of a context completed, by the host's clock (CLOCK_MONOTONIC): a reference event, whose
 * completion is known there, relates the device's clock to it.
 */
#ifndef VG_GATE_EVENT_CLOCK_H
#define VG_GATE_EVENT_CLOCK_H
#include "base/prim.h"
#include "gen/abi/cuda_abi.h"

struct vg_event_clock {
  CUevent reference;     /* NULL: none yet */
  uint64_t reference_ns; /* when it completed: the least that observations allow */
  uint64_t made_ns;      /* when it became the reference */
  uint64_t observed_ns;  /* of the last observation */
};

/* When an event completed that was seen to be complete at now_ns; 0: unknown, since there is no reference, or the event
 * has no time. Call it with the thread in capture mode RELAXED. */
uint64_t vg_event_clock_read(struct vg_event_clock *clock, CUevent event, uint64_t now_ns);
/* Is there no reference, or an old one, whose distance is a coarse number of milliseconds? */
bool vg_event_clock_is_old(const struct vg_event_clock *clock, uint64_t now_ns);
/* Makes an event the reference, which completed at done_ns. Returns the one before, or NULL. */
CUevent vg_event_clock_set(struct vg_event_clock *clock, CUevent event, uint64_t done_ns, uint64_t now_ns);

#endif
