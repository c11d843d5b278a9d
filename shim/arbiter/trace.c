/* trace.c - see trace.h. */
#include "arbiter/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int vg_trace_switch(struct vg_trace *trace, bool on) {
  if (on == (trace->events != NULL)) return 0;
  free(trace->events);
  memset(trace, 0, sizeof *trace);
  if (!on) return 0;
  trace->events = calloc(VG_TRACE_EVENTS_MAX, sizeof *trace->events);
  return trace->events ? 0 : -ENOMEM;
}

static void note(struct vg_trace *trace, uint64_t time_ns, uint64_t slice_id, uint32_t kind, uint64_t value) {
  if (trace->count == VG_TRACE_EVENTS_MAX) {
    trace->first = (trace->first + 1) % VG_TRACE_EVENTS_MAX;
    trace->count--;
    trace->lost++;
  }
  trace->events[(trace->first + trace->count++) % VG_TRACE_EVENTS_MAX] =
      (struct vg_trace_event){.time_ns = time_ns, .slice_id = slice_id, .kind = kind, .value = value};
}

static bool drains(enum vg_core_state state) {
  return state == VG_CORE_DRAINING || state == VG_CORE_OVERLAP;
}

static void note_gate(struct vg_trace *trace, const struct vg_trace_slice *seen, const struct vg_core_slice *slice,
                      uint64_t now_ns) {
  if (drains(seen->state) && !drains(slice->gate.state))
    note(trace, slice->in.drained_ns, slice->id, VG_TRACE_DRAINED, slice->in.drained_ns - slice->gate.close_ns);
  if (seen->word != slice->out.word) {
    bool closed = (slice->out.word & VG_GATE_STATE_MASK) == VG_GATE_CLOSED;
    note(trace, now_ns, slice->id, closed ? VG_TRACE_CLOSE : VG_TRACE_OPEN, slice->out.word);
  }
  if (seen->state != VG_CORE_OVERLAP && slice->gate.state == VG_CORE_OVERLAP)
    note(trace, now_ns, slice->id, VG_TRACE_OVERLAP, 0);
}

static void note_counters(struct vg_trace *trace, struct vg_trace_slice *seen, const struct vg_core_slice *slice,
                          uint64_t now_ns) {
  if (now_ns < seen->counters_ns + VG_TRACE_COUNTER_NS) return;
  if (seen->launches == slice->stats.launches && seen->charged_ns == slice->stats.charged_ns) return;
  if (seen->launches != slice->stats.launches) note(trace, now_ns, slice->id, VG_TRACE_LAUNCHES, slice->stats.launches);
  if (seen->charged_ns != slice->stats.charged_ns)
    note(trace, now_ns, slice->id, VG_TRACE_CHARGED, slice->stats.charged_ns);
  seen->launches = slice->stats.launches;
  seen->charged_ns = slice->stats.charged_ns;
  seen->counters_ns = now_ns;
}

static void note_slice(struct vg_trace *trace, struct vg_trace_slice *seen, const struct vg_core_slice *slice,
                       uint32_t waiting, uint64_t now_ns) {
  if (seen->id != slice->id) *seen = (struct vg_trace_slice){.id = slice->id};
  note_gate(trace, seen, slice, now_ns);
  if (seen->waiting != waiting) note(trace, now_ns, slice->id, VG_TRACE_WAITS, waiting);
  if (seen->outstanding != slice->in.outstanding)
    note(trace, now_ns, slice->id, VG_TRACE_OUTSTANDING, slice->in.outstanding);
  note_counters(trace, seen, slice, now_ns);
  seen->word = slice->out.word;
  seen->state = slice->gate.state;
  seen->waiting = waiting;
  seen->outstanding = slice->in.outstanding;
}

void vg_trace_round(struct vg_trace *trace, const struct vg_core *core, const uint32_t *waiting, uint64_t now_ns) {
  if (!trace->events) return;
  if (trace->regime != core->regime) note(trace, now_ns, 0, VG_TRACE_REGIME, core->regime);
  trace->regime = core->regime;
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present) note_slice(trace, &trace->slices[i], &core->slices[i], waiting[i], now_ns);
}

void vg_trace_late(struct vg_trace *trace, uint64_t now_ns, uint64_t late_ns) {
  if (trace->events) note(trace, now_ns, 0, VG_TRACE_LATE, late_ns);
}

int vg_trace_read(struct vg_trace *trace, struct vg_trace_event *ret_events, int capacity) {
  int read = 0;
  for (; trace->count && read < capacity; read++) {
    ret_events[read] = trace->events[trace->first];
    ret_events[read].lost = trace->lost;
    trace->lost = 0;
    trace->first = (trace->first + 1) % VG_TRACE_EVENTS_MAX;
    trace->count--;
  }
  return read;
}
