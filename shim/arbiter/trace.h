/*
 * trace.h - events for `vgpu trace`: after each round the state of every slice is compared with that after the last
 * one, and each difference becomes an event in a bounded ring. Without a reader the oldest are lost, and counted. Costs
 * nothing while it is off. Called by arbiter.c under its lock.
 */
#ifndef VG_ARBITER_TRACE_H
#define VG_ARBITER_TRACE_H
#include <stdbool.h>
#include <stdint.h>

#include "arbiter/arbiter.h"
#include "arbiter/device.h"

#define VG_TRACE_EVENTS_MAX 16384
#define VG_TRACE_COUNTER_NS 1000000ull /* launches and device time of a slice become events at most this often */

struct vg_trace_slice { /* as in its last events */
  uint64_t id;
  uint32_t word;
  uint32_t waiting;
  enum vg_core_state state;
  bool outstanding;
  uint64_t launches;
  uint64_t charged_ns;
  uint64_t counters_ns;
};

struct vg_trace {
  struct vg_trace_event *events; /* NULL: off */
  uint32_t first, count;
  uint32_t lost;
  uint32_t regime; /* as in its last event */
  struct vg_trace_slice slices[VG_SLICES_MAX];
};

int vg_trace_switch(struct vg_trace *trace,
                    bool on); /* 0 or -ENOMEM; switched on again, it begins with the present state */
/* waiting: the threads at the gate of each slice of the core. */
void vg_trace_round(struct vg_trace *trace, const struct vg_core *core, const uint32_t *waiting, uint64_t now_ns);
/* The thread ran later than it had asked for. */
void vg_trace_late(struct vg_trace *trace, uint64_t now_ns, uint64_t late_ns);
int vg_trace_read(struct vg_trace *trace, struct vg_trace_event *ret_events, int capacity);

#endif
