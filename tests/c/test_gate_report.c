/*
 * test_gate_report.c - what the gate tells the arbiter, without an arbiter: pages that the test itself writes, one
 * thread that launches into a fake driver, and the helper's rounds called by hand.
 */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "fake_driver.h"
#include "gate_state.h"
#include "helper_bell.h"

#define LAUNCH_NS (200 * VG_NS_PER_US)
#define PAGES 32

struct vg_session vg_session;
static struct vg_control_header header;
static struct vg_control_device control;
static struct vg_report_device pages[PAGES]; /* as in a program, an old page stays: a slow thread may look at it yet */
static int page_count, gate_count;
/* As in a program, a gate is never freed. */
struct vg_gate_state *gates[PAGES];
static const int functions[8];

static struct vg_device *device(void) {
  return &vg_session.devices[0];
}

static struct vg_report_device *report(void) {
  return device()->report;
}

static void set_gate(uint32_t state) {
  uint32_t epoch = (control.gate >> VG_GATE_EPOCH_SHIFT) + 1;
  VG_STORE(&control.gate, epoch << VG_GATE_EPOCH_SHIFT | state);
  vg_prim_futex_wake(&control.gate, 1);
}

static void new_page(void) {
  CHECK(page_count < PAGES);
  VG_STORE(&device()->report, &pages[page_count++]);
}

static void begin(uint32_t watch) {
  vg_gate_forked_child(); /* as in a new process: threads remember nothing of the last test's gate */
  memset(&vg_session, 0, sizeof vg_session);
  memset(&control, 0, sizeof control);
  control.bound_ns = 20 * VG_NS_PER_MS;
  control.max_milli = 1000;
  control.watch = watch;
  vg_session.attached = true;
  vg_session.device_count = 1;
  vg_session.header = &header;
  device()->control = &control;
  device()->doorbell_fd = vg_prim_eventfd();
  new_page();
  fake_driver_start(device());
  CHECK(vg_gate_attach(device()) == 0);
  set_gate(VG_GATE_COUNT);
}

static void end(void) {
  CHECK(gate_count < PAGES);
  gates[gate_count++] = device()->gate;
  vg_prim_close(device()->doorbell_fd);
}

static bool rang(void) {
  struct pollfd poll_fd = {.fd = device()->doorbell_fd, .events = POLLIN};
  bool rings = poll(&poll_fd, 1, 0) == 1;
  vg_prim_eventfd_drain(device()->doorbell_fd);
  return rings;
}

static void launch_into(CUstream stream, const void *function, uint64_t cost_ns) {
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, stream, false, function, 1024);
  fake_launch(stream, cost_ns);
  vg_gate_leave(&ticket, CUDA_SUCCESS);
}

static void launch(uint64_t cost_ns) {
  launch_into(fake_stream(1), &functions[0], cost_ns);
}

static void synchronize(CUstream stream) {
  uint64_t begin_of_wait = vg_gate_sync_begin();
  vg_prim_sleep_until_ns(fake_end_of(stream));
  vg_gate_synced(begin_of_wait, stream, false, false);
}

/* The helper's rounds until nothing is outstanding any more, or a second. */
static bool serve_until_idle(void) {
  uint64_t limit_ns = vg_prim_now_ns() + VG_NS_PER_S, now_ns;
  while ((now_ns = vg_prim_now_ns()) < limit_ns && VG_LOAD(&report()->outstanding)) {
    uint64_t due_ns = vg_gate_service(now_ns);
    vg_prim_sleep_until_ns(due_ns < now_ns + 10 * VG_NS_PER_MS ? due_ns : now_ns + 10 * VG_NS_PER_MS);
  }
  return !VG_LOAD(&report()->outstanding);
}

/* ---- tests ---- */

static void edges_ring_once_each_and_only_if_wanted(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  launch(LAUNCH_NS);
  CHECK(rang() && report()->outstanding == 1 && report()->busy_since_ns && report()->active_since_ns);
  launch(LAUNCH_NS);
  CHECK(!rang());
  synchronize(fake_stream(1));
  CHECK(rang() && report()->outstanding == 0 && !report()->busy_since_ns && !report()->active_since_ns);
  CHECK(report()->busy_ns >= 2 * LAUNCH_NS && report()->active_ns == report()->busy_ns);
  synchronize(fake_stream(1));
  CHECK(!rang());
  VG_STORE(&control.watch, VG_WATCH_USAGE);
  launch(LAUNCH_NS);
  synchronize(fake_stream(1));
  CHECK(!rang() && report()->outstanding == 0);
  end();
}

static void a_program_that_never_waits_becomes_idle(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  for (int i = 0; i < 20; i++) launch(LAUNCH_NS);
  CHECK(rang());
  CHECK(serve_until_idle() && rang());
  CHECK(report()->busy_ns >= 20 * LAUNCH_NS && !report()->busy_since_ns && !report()->active_since_ns);
  CHECK(report()->done_ns > 0);
  /* Nobody wants to know: the helper has nothing to do, and leaves the work where it is. */
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
  CHECK(!device()->gate->helper_rests && rang()); /* the arbiter looks seldom, too */
  CHECK(vg_gate_service(vg_prim_now_ns()) != UINT64_MAX);
  end();
}

/* Of a slice with many processes most do nothing: when one of their helpers looks around and answers what the gate says
 * at that moment, it goes on resting, and does not come back for the next word, and the one after that. */
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

static void *rest(void *woken) {
  uint64_t deadline_ns = vg_prim_now_ns() + 20 * VG_NS_PER_S;
  vg_helper_sleep(&header.bell, header.bell, deadline_ns);
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

/* The helper looks whether the daemon is there: seldom while nothing happens, but never after the fact. */
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
  launch_into(fake_stream(1), &functions[1], 20 * LAUNCH_NS); /* the first of its kind counts for what it was */
  synchronize(fake_stream(1));
  uint64_t first_ns = report()->done_ns - before_ns;
  CHECK(first_ns > 18 * LAUNCH_NS && first_ns < 22 * LAUNCH_NS);
  CHECK(report()->launches == 201);
  end();
}

static uint64_t queued_ns(CUstream stream) {
  uint64_t end_ns = fake_end_of(stream), now_ns = vg_prim_now_ns();
  return end_ns > now_ns ? end_ns - now_ns : 0;
}

/* As a graph of 50 ms is: nothing is known of the first one, and the next waits for it. */
static void long_work_is_bounded(void) {
  begin(0);
  VG_STORE(&control.bound_ns, 2 * VG_NS_PER_MS);
  uint64_t cost_ns = 50 * VG_NS_PER_MS, first_ns = 0, later_ns = 0;
  for (int i = 0; i < 20; i++) {
    launch(cost_ns);
    uint64_t *most_ns = i < 10 ? &first_ns : &later_ns;
    if (queued_ns(fake_stream(1)) > *most_ns) *most_ns = queued_ns(fake_stream(1));
  }
  printf("  queued %.0f ms at first, then %.0f ms\n", (double)first_ns / 1e6, (double)later_ns / 1e6);
  CHECK(first_ns <= 2 * cost_ns);
  CHECK(later_ns <= 3 * cost_ns);
  synchronize(fake_stream(1));
  CHECK(report()->done_ns > 19 * cost_ns && report()->done_ns < 21 * cost_ns);
  end();
}

/* Each of them is the first of its kind, as of one who wants to be taken for unknown. */
static void long_strangers_are_bounded(void) {
  begin(0);
  VG_STORE(&control.bound_ns, 2 * VG_NS_PER_MS);
  uint64_t cost_ns = 100 * VG_NS_PER_MS, most_ns = 0;
  launch_into(fake_stream(1), &functions[0], cost_ns);
  synchronize(fake_stream(1));
  for (int i = 1; i < 8; i++) {
    launch_into(fake_stream(1), &functions[i], cost_ns);
    if (queued_ns(fake_stream(1)) > most_ns) most_ns = queued_ns(fake_stream(1));
  }
  printf("  queued %.0f ms\n", (double)most_ns / 1e6);
  CHECK(most_ns <= 3 * cost_ns);
  synchronize(fake_stream(1));
  CHECK(report()->done_ns > 7 * cost_ns && report()->done_ns < 9 * cost_ns);
  end();
}

static bool is_stale(CUstream handle) {
  pthread_mutex_lock(&device()->gate->mutex);
  vg_gate_reap(device(), vg_prim_now_ns());
  const struct vg_stream *stream = device()->gate->works->streams;
  while (stream->handle != handle) stream++;
  pthread_mutex_unlock(&device()->gate->mutex);
  return stream->stale;
}

/* What is queued behind something that nobody has counted does not count after a while. What is seen to run does,
 * however long: else whatever comes behind a kernel of seconds is not bounded. */
static void who_runs_for_long_is_not_taken_for_stuck(void) {
  begin(0);
  fake_launch(fake_stream(2), 3 * VG_NS_PER_S);
  launch_into(fake_stream(1), &functions[0], 3 * VG_NS_PER_S);
  launch_into(fake_stream(2), &functions[1], LAUNCH_NS);
  for (uint64_t end_ns = fake_end_of(fake_stream(2)) - VG_NS_PER_S / 2; !is_stale(fake_stream(2));) {
    CHECK(vg_prim_now_ns() < end_ns);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + 10 * VG_NS_PER_MS);
  }
  CHECK(!is_stale(fake_stream(1)) && vg_gate_outstanding(device()) > VG_NS_PER_S / 2);
  end();
}

/* More than there is room for in the books, as of a program that makes a stream for each request. */
static void many_streams_are_bounded(void) {
  begin(0);
  VG_STORE(&control.bound_ns, 2 * VG_NS_PER_MS);
  for (uintptr_t i = 1; i <= VG_WORK_STREAMS; i++) launch_into(fake_stream(i), &functions[0], LAUNCH_NS / 10);
  uint64_t most_ns = 0;
  for (uintptr_t i = 0; i < 500; i++) {
    CUstream stream = fake_stream(VG_WORK_STREAMS + 1 + i % VG_WORK_STREAMS);
    launch_into(stream, &functions[0], LAUNCH_NS);
    if (queued_ns(stream) > most_ns) most_ns = queued_ns(stream);
  }
  printf("  queued %.1f ms in each of %d\n", (double)most_ns / 1e6, FAKE_STREAMS);
  CHECK(most_ns <= 6 * VG_NS_PER_MS);
  for (uintptr_t i = 0; i < FAKE_STREAMS; i++) vg_prim_sleep_until_ns(fake_end_of(fake_stream(i)));
  VG_STORE(&control.watch, VG_WATCH_USAGE);
  CHECK(serve_until_idle());
  end();
}

/* Both streams have the device to themselves as far as anybody can tell, but nobody has had it twice. */
static void what_runs_side_by_side_counts_once(void) {
  begin(0);
  for (int i = 0; i < 100; i++) launch_into(fake_stream(1 + (uintptr_t)i % 2), &functions[i % 2], LAUNCH_NS);
  synchronize(fake_stream(1));
  synchronize(fake_stream(2));
  CHECK(report()->outstanding == 0 && report()->done_ns > 0);
  CHECK(report()->done_ns <= report()->busy_ns);
  end();
}

static void record(CUevent event, CUstream stream) {
  vg_gate_recorded(vg_gate_sync_begin(), event, stream, false);
}

static void wait_for(CUevent event, CUstream stream) {
  struct vg_gate_point point;
  vg_gate_event_begin(event, &point);
  vg_prim_sleep_until_ns(fake_end_of(stream));
  vg_gate_event_reached(&point);
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
  launch(LAUNCH_NS); /* behind the event */
  wait_for(&event, fake_stream(1));
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

static void sleep_ns(uint64_t length_ns) {
  vg_prim_sleep_until_ns(vg_prim_now_ns() + length_ns);
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

/* ---- while another stream of the process captures ---- */

static void the_bound_holds_beside_a_capture(void) {
  begin(0);
  VG_STORE(&control.bound_ns, 2 * VG_NS_PER_MS);
  fake_capture_begin(fake_stream(7));
  uint64_t most_ns = 0;
  for (int i = 0; i < 300; i++) {
    launch(LAUNCH_NS);
    if (queued_ns(fake_stream(1)) > most_ns) most_ns = queued_ns(fake_stream(1));
  }
  printf("  queued %.1f ms\n", (double)most_ns / 1e6);
  CHECK(most_ns <= 6 * VG_NS_PER_MS);
  fake_capture_end(fake_stream(7));
  synchronize(fake_stream(1));
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
    for (int i = 0; i < 10; i++) launch(LAUNCH_NS);
    if (kind == 0 || solo) fake_capture_begin(fake_stream(7));
    for (int i = 0; i < 10; i++) launch(LAUNCH_NS);
    if (kind == 1) fake_capture_begin(fake_stream(7));
    uint64_t end_ns = fake_end_of(fake_stream(1));
    set_gate(VG_GATE_CLOSED);
    vg_gate_service(vg_prim_now_ns());
    if (kind == 2) fake_capture_begin(fake_stream(7));
    serve_until_drained();
    CHECK(VG_LOAD(&report()->drained_ns) + 10 * VG_NS_PER_US >= end_ns && !report()->outstanding);
    fake_capture_end(fake_stream(7));
    end();
  }
}

int main(void) {
  RUN(edges_ring_once_each_and_only_if_wanted);
  RUN(a_program_that_never_waits_becomes_idle);
  RUN(an_idle_helper_rests);
  RUN(an_idle_helper_answers_and_rests_on);
  RUN(a_resting_helper_is_woken_by_whatever_begins);
  RUN(a_wake_up_just_before_the_sleep_is_not_lost);
  RUN(nothing_is_written_into_the_file_that_took_a_resting_ones_doorbell);
  RUN(what_is_done_adds_up);
  RUN(long_work_is_bounded);
  RUN(long_strangers_are_bounded);
  RUN(who_runs_for_long_is_not_taken_for_stuck);
  RUN(many_streams_are_bounded);
  RUN(what_runs_side_by_side_counts_once);
  RUN(an_event_covers_what_was_before_it);
  RUN(threads_add_up);
  RUN(waiting_is_activity);
  RUN(a_new_page_counts_from_zero);
  RUN(the_bound_holds_beside_a_capture);
  RUN(idleness_is_seen_beside_a_capture);
  RUN(a_drain_ends_beside_a_capture);
  return 0;
}
