/* test_arbiter_trace.c - the trace of the arbiter against slices whose state is set by hand: each difference from the
 * last round becomes one event, none while it is off, and unread events are counted as lost. */
#include "arbiter/trace.h"
#include "check.h"

static struct vg_core core;
static struct vg_trace trace;
static uint32_t waiting[VG_SLICES_MAX];
static struct vg_trace_event events[VG_TRACE_EVENTS_MAX];

static struct vg_core_slice *begin(void) {
  vg_trace_switch(&trace, false);
  core = (struct vg_core){.slice_count = 1};
  core.slices[0] = (struct vg_core_slice){.present = true, .id = 7};
  waiting[0] = 0;
  CHECK(vg_trace_switch(&trace, true) == 0);
  return &core.slices[0];
}

static int round_at(uint64_t now_ns) {
  vg_trace_round(&trace, &core, waiting, now_ns);
  return vg_trace_read(&trace, events, VG_TRACE_EVENTS_MAX);
}

static void is(int index, uint64_t time_ns, uint32_t kind, uint64_t value) {
  CHECK(events[index].slice_id == 7 && events[index].lost == 0);
  CHECK(events[index].time_ns == time_ns);
  CHECK(events[index].kind == kind);
  CHECK(events[index].value == value);
}

static void a_lease_is_traced_from_open_to_drained(void) {
  struct vg_core_slice *slice = begin();
  CHECK(round_at(1) == 0);
  slice->out.word = 1 << VG_GATE_EPOCH_SHIFT | VG_GATE_COUNT;
  slice->gate.state = VG_CORE_OPEN;
  slice->in.outstanding = true;
  waiting[0] = 3;
  CHECK(round_at(100) == 3);
  is(0, 100, VG_TRACE_OPEN, slice->out.word);
  is(1, 100, VG_TRACE_WAITS, 3);
  is(2, 100, VG_TRACE_OUTSTANDING, 1);
  CHECK(round_at(150) == 0);
  slice->out.word = 2 << VG_GATE_EPOCH_SHIFT | VG_GATE_CLOSED;
  slice->gate.state = VG_CORE_DRAINING;
  slice->gate.close_ns = 200;
  CHECK(round_at(200) == 1);
  is(0, 200, VG_TRACE_CLOSE, slice->out.word);
  slice->gate.state = VG_CORE_OVERLAP;
  CHECK(round_at(300) == 1);
  is(0, 300, VG_TRACE_OVERLAP, 0);
  slice->gate.state = VG_CORE_SHUT;
  slice->in.outstanding = false;
  slice->in.drained_ns = 350;
  waiting[0] = 0;
  CHECK(round_at(400) == 3);
  is(0, 350, VG_TRACE_DRAINED, 150);
  is(1, 400, VG_TRACE_WAITS, 0);
  is(2, 400, VG_TRACE_OUTSTANDING, 0);
}

static void counters_are_traced_at_a_bounded_rate(void) {
  struct vg_core_slice *slice = begin();
  int told = 0;
  for (uint64_t now_ns = VG_TRACE_COUNTER_NS; now_ns < 11 * VG_TRACE_COUNTER_NS; now_ns += VG_TRACE_COUNTER_NS / 100) {
    slice->stats.launches++;
    slice->stats.charged_ns += 10;
    told += round_at(now_ns);
  }
  CHECK(told == 20);
  slice->stats.launches = 5000;
  CHECK(round_at(20 * VG_TRACE_COUNTER_NS) == 2);
  is(0, 20 * VG_TRACE_COUNTER_NS, VG_TRACE_LAUNCHES, 5000);
  is(1, 20 * VG_TRACE_COUNTER_NS, VG_TRACE_CHARGED, slice->stats.charged_ns);
}

static void another_slice_in_the_same_place_begins_anew(void) {
  struct vg_core_slice *slice = begin();
  slice->in.outstanding = true;
  CHECK(round_at(1) == 1);
  slice->id = 8;
  CHECK(round_at(2) == 1);
  CHECK(events[0].slice_id == 8 && events[0].kind == VG_TRACE_OUTSTANDING && events[0].value == 1);
  slice->present = false;
  slice->in.outstanding = false;
  CHECK(round_at(3) == 0);
}

static void unread_events_are_counted(void) {
  begin();
  for (uint32_t i = 1; i <= VG_TRACE_EVENTS_MAX + 5; i++) {
    waiting[0] = i;
    vg_trace_round(&trace, &core, waiting, i);
  }
  CHECK(vg_trace_read(&trace, events, 1) == 1);
  CHECK(events[0].lost == 5 && events[0].time_ns == 6);
  CHECK(vg_trace_read(&trace, events, VG_TRACE_EVENTS_MAX) == VG_TRACE_EVENTS_MAX - 1);
  CHECK(events[0].lost == 0 && events[VG_TRACE_EVENTS_MAX - 2].time_ns == VG_TRACE_EVENTS_MAX + 5);
}

static void the_regime_is_the_devices(void) {
  begin();
  core.regime = VG_REGIME_ARBITRATED;
  CHECK(round_at(5) == 1);
  CHECK(events[0].slice_id == 0 && events[0].kind == VG_TRACE_REGIME && events[0].value == VG_REGIME_ARBITRATED);
  CHECK(round_at(6) == 0);
}

static void off_keeps_nothing(void) {
  struct vg_core_slice *slice = begin();
  CHECK(vg_trace_switch(&trace, false) == 0);
  slice->in.outstanding = true;
  CHECK(round_at(1) == 0);
  CHECK(vg_trace_switch(&trace, true) == 0);
  CHECK(round_at(2) == 1); /* begins with what is */
  waiting[0] = 1;
  vg_trace_round(&trace, &core, waiting, 3);
  CHECK(vg_trace_switch(&trace, true) == 0); /* again: loses nothing */
  CHECK(round_at(4) == 1);
  CHECK(vg_trace_switch(&trace, false) == 0);
}

int main(void) {
  RUN(a_lease_is_traced_from_open_to_drained);
  RUN(counters_are_traced_at_a_bounded_rate);
  RUN(another_slice_in_the_same_place_begins_anew);
  RUN(unread_events_are_counted);
  RUN(the_regime_is_the_devices);
  RUN(off_keeps_nothing);
  return 0;
}
