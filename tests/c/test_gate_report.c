/*
 * test_gate_report.c - what the gate reports to the arbiter: when work is outstanding, what has completed, how long
 * threads waited.
 */
#include "fake_pages.h"

static void edges_ring_once_each_and_only_if_wanted(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  launch(LAUNCH_NS);
  CHECK(rang() && report()->outstanding == 1 && report()->busy_since_ns && report()->active_since_ns);
  launch(LAUNCH_NS);
  CHECK(!rang());
  synchronize(fake_stream(1));
  CHECK(rang() && report()->outstanding == 0 && !report()->busy_since_ns && !report()->active_since_ns);
  CHECK(report()->busy_ns >= 2 * LAUNCH_NS && report()->active_ns >= report()->busy_ns);
  synchronize(fake_stream(1));
  CHECK(!rang());
  VG_STORE(&control.watch, VG_WATCH_USAGE);
  launch(LAUNCH_NS);
  synchronize(fake_stream(1));
  CHECK(!rang() && report()->outstanding == 0);
  end();
}

static void what_is_done_adds_up(void) {
  begin(0);
  uint64_t before_ns = 0;
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < 50; i++) launch(LAUNCH_NS);
    synchronize(fake_stream(1));
    CHECK(report()->done_ns >= before_ns);
    uint64_t done_ns = report()->done_ns - before_ns;
    if (round) CHECK(done_ns > 45 * LAUNCH_NS && done_ns < 55 * LAUNCH_NS); /* its cost is known by now */
    before_ns = report()->done_ns;
  }
  launch_into(fake_stream(1), &functions[1],
              20 * LAUNCH_NS); /* a function's first launch counts with its measured time */
  synchronize(fake_stream(1));
  uint64_t first_ns = report()->done_ns - before_ns;
  CHECK(first_ns > 18 * LAUNCH_NS && first_ns < 22 * LAUNCH_NS);
  CHECK(report()->launches == 201);
  end();
}

/* Each stream is timed as if it had the device alone, but together they have not had it twice. */
static void what_runs_side_by_side_counts_once(void) {
  begin(0);
  for (int i = 0; i < 100; i++) launch_into(fake_stream(1 + (uintptr_t)i % 2), &functions[i % 2], LAUNCH_NS);
  synchronize(fake_stream(1));
  synchronize(fake_stream(2));
  CHECK(report()->outstanding == 0 && report()->done_ns > 0);
  CHECK(report()->done_ns <= report()->busy_ns);
  end();
}

static void *launch_and_wait(void *argument) {
  CUstream stream = fake_stream((uintptr_t)argument);
  for (int i = 1; i <= 500; i++) {
    launch_into(stream, &functions[(uintptr_t)argument % 8], 2 * VG_NS_PER_US);
    if (i % 10 == 0) synchronize(stream);
  }
  return NULL;
}

/* Each thread keeps its own books, and edges come and go all the time. */
static void threads_add_up(void) {
  pthread_t threads[4];
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, launch_and_wait, (void *)(i + 1)) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK(report()->outstanding == 0 && !report()->busy_since_ns && !report()->active_since_ns);
  CHECK(report()->launches == 2000);
  CHECK(report()->done_ns > 0 && report()->done_ns <= report()->busy_ns);
  CHECK(vg_gate_outstanding(device()) == 0);
  end();
}

static void *wait_at_the_gate(void *unused) {
  (void)unused;
  launch(LAUNCH_NS);
  return NULL;
}

static void waiting_is_activity(void) {
  begin(VG_WATCH_USAGE);
  launch(LAUNCH_NS);
  set_gate(VG_GATE_CLOSED);
  pthread_t threads[2];
  CHECK(pthread_create(&threads[0], NULL, wait_at_the_gate, NULL) == 0);
  CHECK(pthread_create(&threads[1], NULL, wait_at_the_gate, NULL) == 0);
  while (VG_LOAD(&report()->waiting) < 2) sleep_ns(VG_NS_PER_MS / 10);
  synchronize(fake_stream(1));
  CHECK(VG_LOAD(&report()->active_since_ns) && !VG_LOAD(&report()->busy_since_ns));
  uint64_t since_ns = VG_LOAD(&report()->active_since_ns);
  sleep_ns(40 * VG_NS_PER_MS);
  set_gate(VG_GATE_COUNT);
  vg_prim_futex_wake(&control.gate, 2);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  synchronize(fake_stream(1));
  uint64_t passed_ns = vg_prim_now_ns() - since_ns;
  CHECK(!report()->active_since_ns && report()->active_ns >= 40 * VG_NS_PER_MS);
  CHECK(report()->active_ns <= passed_ns); /* of the process: two threads do not count twice */
  CHECK(report()->busy_ns < report()->active_ns);
  uint32_t waits = 0;
  for (int i = 0; i < VG_WAIT_BUCKETS; i++) waits += report()->wait_counts[i];
  CHECK(waits == 2);
  for (int i = 0; i < 12; i++) CHECK(report()->wait_counts[i] == 0); /* below 2^11 * 16 us = 33 ms */
  CHECK(report()->waited_ns >= 80 * VG_NS_PER_MS);
  end();
}

/* A restarted daemon's page counts from zero, and what is outstanding then counts from then on. */
static void a_new_page_counts_from_zero(void) {
  begin(VG_WATCH_USAGE);
  launch(10 * VG_NS_PER_MS);
  synchronize(fake_stream(1));
  CHECK(report()->busy_ns >= 10 * VG_NS_PER_MS && report()->done_ns >= 9 * VG_NS_PER_MS);
  launch(20 * VG_NS_PER_MS);
  sleep_ns(10 * VG_NS_PER_MS);
  vg_gate_daemon_gone(device());
  new_page();
  uint64_t back_ns = vg_prim_now_ns();
  vg_gate_daemon_back(device());
  CHECK(report()->outstanding == 1 && report()->busy_since_ns >= back_ns && report()->active_since_ns >= back_ns);
  CHECK(report()->busy_ns == 0 && report()->active_ns == 0);
  vg_prim_sleep_until_ns(fake_end_of(fake_stream(1)));
  vg_gate_synced(UINT64_MAX, fake_stream(1), false, false);
  uint64_t passed_ns = vg_prim_now_ns() - back_ns;
  CHECK(report()->outstanding == 0 && report()->busy_ns <= passed_ns && report()->active_ns <= passed_ns);
  /* The same page again, as after a stall of the arbiter: nothing runs backwards. */
  uint64_t busy_ns = report()->busy_ns, done_ns = report()->done_ns;
  vg_gate_daemon_gone(device());
  vg_gate_daemon_back(device());
  CHECK(report()->busy_ns == busy_ns && report()->done_ns == done_ns);
  end();
}

/* The arbiter has left the page unread: the first change rings, once for each time; until then no heartbeat is due. */
static void a_page_that_is_not_read_rings_when_it_changes(void) {
  begin(VG_WATCH_USAGE);
  for (uint32_t unread = 1; unread <= 3; unread++) {
    VG_STORE(&control.heartbeat_ns, 1);
    VG_STORE(&control.unread, unread);
    uint64_t now_ns = vg_prim_now_ns();
    CHECK(vg_arbiter_seen_ns(device(), &control, now_ns) == now_ns);
    launch(LAUNCH_NS);
    CHECK(rang());
    uint64_t seen_ns = vg_arbiter_seen_ns(device(), &control, UINT64_MAX);
    CHECK(seen_ns >= now_ns && seen_ns <= vg_prim_now_ns());
    launch(LAUNCH_NS);
    synchronize(fake_stream(1));
    CHECK(!rang() && vg_arbiter_seen_ns(device(), &control, UINT64_MAX) == seen_ns);
    VG_STORE(&control.unread, 0);
    CHECK(vg_arbiter_seen_ns(device(), &control, UINT64_MAX) == 1);
    launch(LAUNCH_NS);
    synchronize(fake_stream(1));
    CHECK(!rang());
  }
  end();
}

int main(void) {
  RUN(edges_ring_once_each_and_only_if_wanted);
  RUN(what_is_done_adds_up);
  RUN(what_runs_side_by_side_counts_once);
  RUN(threads_add_up);
  RUN(waiting_is_activity);
  RUN(a_new_page_counts_from_zero);
  RUN(a_page_that_is_not_read_rings_when_it_changes);
  return 0;
}
