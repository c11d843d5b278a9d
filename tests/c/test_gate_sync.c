/*
 * test_gate_sync.c - what the program has waited for is not outstanding any more, and nothing else.
 */
#include "fake_pages.h"
#include "own_clock.h"

static void record(CUevent event, CUstream stream) {
  vg_gate_recorded(vg_gate_epoch_begin(), event, stream, false);
}

static void wait_until(CUevent event, uint64_t end_ns) {
  struct vg_gate_point point;
  vg_gate_event_begin(event, &point);
  vg_prim_sleep_until_ns(end_ns);
  vg_gate_event_reached(&point);
}

static void wait_for(CUevent event, CUstream stream) {
  wait_until(event, fake_end_of(stream));
}

/* As of a program that waits for an event: what it had launched before the event is done, at once. */
static void an_event_covers_what_was_before_it(void) {
  static struct CUevent_st event, other;
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  launch(LAUNCH_NS);
  record(&event, fake_stream(1));
  CHECK(rang());
  wait_for(&event, fake_stream(1));
  CHECK(rang() && report()->outstanding == 0);
  launch(LAUNCH_NS);
  record(&event, fake_stream(1));
  uint64_t end_ns = fake_end_of(fake_stream(1));
  launch(500 * LAUNCH_NS); /* behind the event */
  wait_until(&event, end_ns);
  CHECK(report()->outstanding == 1);
  launch_into(fake_stream(2), &functions[0], LAUNCH_NS);
  record(&other, fake_stream(2));
  wait_for(&other, fake_stream(2)); /* of another stream */
  CHECK(report()->outstanding == 1);
  record(&event, fake_stream(1)); /* now it stands behind all of them */
  wait_for(&event, fake_stream(1));
  CHECK(report()->outstanding == 0);
  launch(LAUNCH_NS);
  vg_gate_capture_begin();
  record(&event, fake_stream(1)); /* may have become a node of a graph: says nothing */
  vg_gate_capture_end();
  wait_for(&event, fake_stream(1));
  CHECK(report()->outstanding == 1);
  end();
}

/* Of the streams that share the last place only the one of the last launch is known by name. */
static void a_wait_for_one_stream_leaves_those_that_share_its_place(void) {
  const uint64_t long_ns = 50 * VG_NS_PER_MS; /* none of it ends while the others are launched */
  begin(VG_WATCH_USAGE);
  control.bound_ns = 100 * VG_NS_PER_S; /* so that no thread looks for completed work */
  launch(long_ns);
  synchronize(fake_stream(1)); /* what it costs is known */
  for (uintptr_t i = 1; i <= VG_WORK_STREAMS + 2; i++) launch_into(fake_stream(i), &functions[0], long_ns);
  const struct vg_stream *last = &device()->gate->works->streams[VG_WORK_STREAMS - 1];
  uint64_t cost_ns = last->cost_ns;
  CHECK(last->shared && last->handle == fake_stream(VG_WORK_STREAMS + 2));
  synchronize(fake_stream(VG_WORK_STREAMS + 2));
  CHECK(cost_ns && last->cost_ns == cost_ns);
  synchronize(fake_stream(VG_WORK_STREAMS)); /* known as none of them any more */
  CHECK(last->cost_ns == cost_ns && report()->outstanding);
  CHECK(serve_until_idle());
  end();
}

int main(void) {
  RUN(an_event_covers_what_was_before_it);
  RUN(a_wait_for_one_stream_leaves_those_that_share_its_place);
  return 0;
}
