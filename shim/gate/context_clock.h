/*
 * context_clock.h - the event clock of one context of a device, the one in which the process first launched behind a
 * wait, shared by its threads. Its first reference is an event in a stream of the shim's own, which completes while it
 * is looked at: one of the program's streams may only be looked at when its work is over.
 */
#ifndef VG_GATE_CONTEXT_CLOCK_H
#define VG_GATE_CONTEXT_CLOCK_H
#include <pthread.h>

#include "gate/event_clock.h"

struct vg_context_clock {
  pthread_mutex_t mutex; /* taken last of all */
  CUcontext context;     /* NULL: none yet */
  struct vg_event_clock events;
  int64_t least_late_ns; /* by the clock, events completed so long after they were recorded, at least */
  uint64_t compared_ns;  /* when that was last looked at; 0: never */
};

void vg_context_clock_begin(struct vg_context_clock *clock, CUcontext context); /* the thread's current one */
/* With the thread in capture mode RELAXED: when an event completed that has been seen to be complete; 0: unknown. */
uint64_t vg_context_clock_read(struct vg_context_clock *clock, CUcontext context, CUevent event);
/* The same: did it complete as soon as it was recorded, by a call that took from begin_ns to end_ns? The clock may be
 * late by as long as events are seen late: compared with those that took least lately. */
bool vg_context_clock_is_at_once(struct vg_context_clock *clock, CUcontext context, CUevent event, uint64_t begin_ns,
                                 uint64_t end_ns);
/* The event, which completed at at_ns, is not needed any more, unless the clock needs it. Returns one that is not
 * needed in its place. */
CUevent vg_context_clock_renew(struct vg_context_clock *clock, CUcontext context, CUevent event, uint64_t at_ns,
                               uint64_t now_ns);
void vg_context_clock_forget(struct vg_context_clock *clock, CUcontext context); /* its events are gone with it */

#endif
