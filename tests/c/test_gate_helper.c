/*
 * test_gate_helper.c - the helper's rounds: seeing that nothing is outstanding, resting, being woken, draining.
 */
#include <unistd.h>

#include "fake_pages.h"
#include "session/helper_wake.h"

static void a_program_that_never_waits_becomes_idle(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  for (int i = 0; i < 20; i++) launch(LAUNCH_NS);
  CHECK(rang());
  CHECK(serve_until_idle() && rang());
  CHECK(report()->busy_ns >= 20 * LAUNCH_NS && !report()->busy_since_ns && !report()->active_since_ns);
  CHECK(report()->done_ns > 0);
  /* Nothing is watched: the helper has nothing to do, and leaves the work in the books. */
  VG_STORE(&control.watch, 0);
  launch(LAUNCH_NS);
  vg_prim_sleep_until_ns(fake_end_of(fake_stream(1)));
  uint64_t now_ns = vg_prim_now_ns();
  CHECK(vg_gate_service(now_ns) >= now_ns + 50 * VG_NS_PER_MS && report()->outstanding == 1);
  end();
}

static void an_idle_helper_rests(void) {
  begin(VG_WATCH_USAGE);
  launch(LAUNCH_NS);
  CHECK(serve_until_idle());
  uint64_t now_ns = vg_prim_now_ns();
  CHECK(vg_gate_service(now_ns) != UINT64_MAX);               /* for a moment it looks often */
  CHECK(vg_gate_service(now_ns + VG_NS_PER_S) == UINT64_MAX); /* then it waits to be woken */
  CHECK(device()->gate->helper_rests);
  rang();
  launch(LAUNCH_NS);
  CHECK(!device()->gate->helper_rests && rang()); /* the arbiter looks rarely, too */
  CHECK(vg_gate_service(vg_prim_now_ns()) != UINT64_MAX);
  end();
}

/* Of a slice with many processes most do nothing: when one of their helpers looks around and answers what the gate says
 * at that moment, it keeps resting, and does not come back for the next word, and the one after that. */
static void an_idle_helper_answers_and_rests_on(void) {
  begin(VG_WATCH_USAGE);
  uint64_t now_ns = vg_prim_now_ns() + VG_NS_PER_S;
  control.neighbour_waits = VG_NEIGHBOUR_WAITS;
  for (int i = 0; i < 4; i++, now_ns += VG_NS_PER_MS) {
    set_gate(i % 2 ? VG_GATE_COUNT : VG_GATE_CLOSED);
    CHECK(vg_gate_service(now_ns) == UINT64_MAX && device()->gate->helper_rests);
    CHECK(i % 2 || report()->drained_word == control.gate);
  }
  end();
}

static uint32_t on_its_way; /* 1: a launch stands in the driver; 2: it may end */

static void *launch_refused(void *unused) {
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, fake_stream(2), false, &functions[1], 1024);
  VG_STORE(&on_its_way, 1);
  while (VG_LOAD(&on_its_way) != 2) vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS / 10);
  vg_gate_leave(&ticket, CUDA_ERROR_INVALID_VALUE);
  return unused;
}

/* While a launch is on its way nothing can be given up, and if the driver refuses it no event shows its end: the helper
 * keeps looking, or a neighbour would wait for a process that has nothing to run. */
static void a_helper_does_not_rest_before_it_has_given_up(void) {
  begin(VG_WATCH_USAGE);
  control.neighbour_waits = VG_NEIGHBOUR_WAITS;
  on_its_way = 0;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, launch_refused, NULL) == 0);
  while (VG_LOAD(&on_its_way) != 1) sleep_ns(VG_NS_PER_MS / 10);
  launch(LAUNCH_NS);
  synchronize(fake_stream(1));
  CHECK(!report()->outstanding && report()->given_up_word != control.gate);
  uint64_t later_ns = vg_prim_now_ns() + VG_NS_PER_S;
  CHECK(vg_gate_service(later_ns) != UINT64_MAX && !device()->gate->helper_rests);
  VG_STORE(&on_its_way, 2);
  pthread_join(thread, NULL);
  CHECK(vg_gate_service(later_ns) == UINT64_MAX && report()->given_up_word == control.gate);
  end();
}

static void *rest(void *woken) {
  uint64_t deadline_ns = vg_prim_now_ns() + 20 * VG_NS_PER_S;
  vg_helper_sleep(&header.helper_wake, header.helper_wake, deadline_ns);
  VG_STORE((bool *)woken, vg_prim_now_ns() < deadline_ns);
  return NULL;
}

static void *launch_once(void *unused) {
  launch(LAUNCH_NS);
  return unused;
}

static bool begun(void) {
  struct vg_gate_state *gate = device()->gate;
  pthread_mutex_lock(&gate->mutex);
  bool is = gate->busy.since_ns || gate->waiters;
  pthread_mutex_unlock(&gate->mutex);
  return is;
}

/* The helper looks whether the daemon is there: rarely while nothing happens, but never after the fact. */
static void a_resting_helper_is_woken_by_whatever_begins(void) {
  for (int kind = 0; kind < 3; kind++) {
    begin(0);
    pthread_t helper, launcher;
    bool woken = false;
    uint64_t later_ns = vg_prim_now_ns(), limit_ns = later_ns + 5 * VG_NS_PER_S;
    if (kind == 0) set_gate(VG_GATE_SOLO);
    if (kind == 1) set_gate(VG_GATE_CLOSED);
    vg_helper_awake();
    do { /* a closed gate is drained first */
      CHECK(vg_prim_now_ns() < limit_ns);
      later_ns += VG_NS_PER_S;
    } while (vg_gate_service(later_ns) != UINT64_MAX || !device()->gate->helper_rests);
    CHECK(pthread_create(&helper, NULL, rest, &woken) == 0);
    CHECK(pthread_create(&launcher, NULL, launch_once, NULL) == 0);
    pthread_join(helper, NULL);
    CHECK(woken);
    while (kind != 0 && !begun()) vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS); /* is woken just before */
    /* and does not rest while a thread waits, work is outstanding, or any may be, at a gate that counts nothing */
    CHECK(vg_gate_service(later_ns) <= later_ns + 50 * VG_NS_PER_MS);
    if (kind == 1) set_gate(VG_GATE_COUNT);
    pthread_join(launcher, NULL);
    end();
  }
}

/* Between its last look and its sleep the helper may lose its processor. */
static void a_wake_up_just_before_the_sleep_is_not_lost(void) {
  begin(VG_WATCH_USAGE);
  vg_helper_awake();
  CHECK(vg_gate_service(vg_prim_now_ns() + VG_NS_PER_S) == UINT64_MAX && device()->gate->helper_rests);
  launch(LAUNCH_NS);
  bool woken = false;
  rest(&woken);
  CHECK(woken);
  end();
}

static void nothing_is_written_into_the_file_that_took_a_resting_ones_doorbell(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  CHECK(vg_gate_service(vg_prim_now_ns() + VG_NS_PER_S) == UINT64_MAX);
  int file = vg_prim_memfd("stranger", false), number = device()->doorbell_fd;
  CHECK(dup2(file, number) == number);
  launch(LAUNCH_NS);
  CHECK(lseek(file, 0, SEEK_END) == 0 && device()->doorbell_fd == -1);
  vg_prim_close(file);
  vg_prim_close(number);
  end();
}

static void idleness_is_seen_beside_a_capture(void) {
  begin(VG_WATCH_USAGE);
  for (int i = 0; i < 9; i++) launch(LAUNCH_NS); /* the last one before the capture has no marker */
  fake_capture_begin(fake_stream(7));
  uint64_t end_ns = fake_end_of(fake_stream(1));
  CHECK(serve_until_idle() && vg_prim_now_ns() >= end_ns);
  for (int i = 0; i < 20; i++) launch(LAUNCH_NS);
  end_ns = fake_end_of(fake_stream(1));
  CHECK(serve_until_idle() && vg_prim_now_ns() >= end_ns);
  fake_capture_end(fake_stream(7));
  end();
}

/* The helper's rounds until the closed word is reported as drained. */
static void serve_until_drained(void) {
  uint64_t limit_ns = vg_prim_now_ns() + 20 * VG_NS_PER_S;
  while (VG_LOAD(&report()->drained_word) != control.gate) {
    CHECK(vg_prim_now_ns() < limit_ns);
    uint64_t due_ns = vg_gate_service(vg_prim_now_ns()), most_ns = vg_prim_now_ns() + VG_NS_PER_MS;
    vg_prim_sleep_until_ns(due_ns < most_ns ? due_ns : most_ns);
  }
}

/* Before, during and after its drain a capture begins; at a gate that counts, and after one that did not. */
static void a_drain_ends_beside_a_capture(void) {
  for (int kind = 0; kind < 4; kind++) {
    begin(0);
    bool solo = kind == 3;
    if (solo) set_gate(VG_GATE_SOLO);
    uint64_t begin_ns = vg_prim_now_ns();
    for (int i = 0; i < 10; i++) launch(LAUNCH_NS);
    if (kind == 0 || solo) fake_capture_begin(fake_stream(7));
    for (int i = 0; i < 10; i++) launch(LAUNCH_NS);
    if (kind == 1) fake_capture_begin(fake_stream(7));
    uint64_t end_ns = begin_ns + 20 * LAUNCH_NS; /* later where this thread had no processor between two launches */
    set_gate(VG_GATE_CLOSED);
    vg_gate_service(vg_prim_now_ns());
    if (kind == 2) fake_capture_begin(fake_stream(7));
    serve_until_drained();
    CHECK(VG_LOAD(&report()->drained_ns) + 10 * VG_NS_PER_US >= end_ns && !report()->outstanding);
    fake_capture_end(fake_stream(7));
    end();
  }
}

/* Their costs are known, and the device is idle again. */
static void calibrate(void) {
  for (int i = 0; i < 20; i++) launch(LAUNCH_NS);
  synchronize(fake_stream(1));
  CHECK(!report()->outstanding);
}

/* Ten launches' worth, and less than a pause of a hundred. */
static bool is_work_alone(uint64_t busy_ns) {
  return busy_ns > 9 * LAUNCH_NS && busy_ns < 30 * LAUNCH_NS;
}

/* The helper has no processor for long after the gate was closed: the device was done long before. */
static bool late_drain(void) {
  begin(VG_WATCH_USAGE);
  calibrate();
  uint64_t before_ns = report()->busy_ns;
  for (int i = 0; i < 10; i++) launch(LAUNCH_NS);
  uint64_t end_ns = fake_end_of(fake_stream(1));
  set_gate(VG_GATE_CLOSED);
  sleep_ns(100 * LAUNCH_NS);
  serve_until_drained();
  uint64_t busy_ns = report()->busy_ns - before_ns;
  printf("  drained %.2f ms late, busy for %.2f ms\n", ((double)report()->drained_ns - (double)end_ns) / 1e6,
         (double)busy_ns / 1e6);
  bool exact = is_work_alone(busy_ns) && report()->drained_ns < end_ns + 20 * LAUNCH_NS;
  end();
  return exact;
}

/* Nor has the launching thread one: until it continues, the device is idle although its work counts as outstanding. */
static bool pause_among_launches(void) {
  begin(VG_WATCH_USAGE);
  VG_STORE(&control.bound_ns, 2 * VG_NS_PER_MS);
  calibrate();
  uint64_t before_ns = report()->busy_ns;
  for (int i = 0; i < 5; i++) launch(LAUNCH_NS);
  sleep_ns(100 * LAUNCH_NS);
  for (int i = 0; i < 5; i++) launch(LAUNCH_NS);
  synchronize(fake_stream(1));
  uint64_t busy_ns = report()->busy_ns - before_ns;
  printf("  busy for %.2f ms\n", (double)busy_ns / 1e6);
  end();
  return is_work_alone(busy_ns);
}

/* This thread may be kept from running in any attempt; what is counted wrongly is wrong in all. */
static bool one_of_ten(bool (*attempt)(void)) {
  for (int i = 0; i < 10; i++)
    if (attempt()) return true;
  return false;
}

static void a_late_drain_ends_when_the_device_was_done(void) {
  CHECK(one_of_ten(late_drain));
}

static void a_pause_among_launches_is_no_work(void) {
  CHECK(one_of_ten(pause_among_launches));
}

/* The word was drained before the daemon stood still; work that was launched by the timetable is behind it then. */
static void what_was_launched_without_the_daemon_is_drained_when_it_is_back(void) {
  begin(0);
  launch(LAUNCH_NS);
  set_gate(VG_GATE_CLOSED);
  serve_until_drained();
  control.max_milli = 500;
  control.coast_period_us = control.coast_slots[0].end_us = 20000;
  control.coast_slot_count = 1;
  vg_session.mode = VG_MODE_COAST;
  vg_gate_daemon_gone(device());
  for (int i = 0; i < 5; i++) launch(LAUNCH_NS);
  CHECK(report()->outstanding);
  vg_gate_daemon_back(device());
  CHECK(serve_until_idle() && report()->drained_word == control.gate);
  end();
}

/* It looks again 50 ms later, and what begins at the next lease would count as running until then. */
static void a_helper_behind_its_drain_is_woken_by_work_of_the_next_lease(void) {
  begin(VG_WATCH_USAGE);
  launch(LAUNCH_NS);
  set_gate(VG_GATE_CLOSED);
  serve_until_drained();
  vg_helper_awake();
  CHECK(vg_gate_service(vg_prim_now_ns()) != UINT64_MAX && !device()->gate->helper_rests);
  set_gate(VG_GATE_COUNT);
  pthread_t launcher;
  CHECK(pthread_create(&launcher, NULL, launch_once, NULL) == 0);
  bool woken = false;
  rest(&woken);
  CHECK(woken);
  pthread_join(launcher, NULL);
  end();
}

int main(void) {
  RUN(a_program_that_never_waits_becomes_idle);
  RUN(an_idle_helper_rests);
  RUN(an_idle_helper_answers_and_rests_on);
  RUN(a_helper_does_not_rest_before_it_has_given_up);
  RUN(a_resting_helper_is_woken_by_whatever_begins);
  RUN(a_wake_up_just_before_the_sleep_is_not_lost);
  RUN(a_helper_behind_its_drain_is_woken_by_work_of_the_next_lease);
  RUN(nothing_is_written_into_the_file_that_took_a_resting_ones_doorbell);
  RUN(idleness_is_seen_beside_a_capture);
  RUN(a_drain_ends_beside_a_capture);
  RUN(a_late_drain_ends_when_the_device_was_done);
  RUN(a_pause_among_launches_is_no_work);
  RUN(what_was_launched_without_the_daemon_is_drained_when_it_is_back);
  return 0;
}
