/*
 * test_gate_residence.c - calls of the driver while the slice's memory leaves the device and is away: they wait and are
 * counted, polls are answered, and once the helper has said that the process has left the driver, nothing of it is
 * there: no thread of the program, and not the helper.
 */
#include "fake_pages.h"

#define THREADS 4
#define TURNS 40

static uint32_t inside; /* threads within a call */
static uint32_t stop, calls_done;

static void set_residence(uint32_t residence) {
  VG_STORE(&control.residence, residence);
  vg_prim_futex_wake(&control.residence, THREADS);
}

/* As the arbiter does: it is set before the gate is closed. */
static void leave(uint32_t residence) {
  set_residence(residence);
  set_gate(VG_GATE_CLOSED);
}

static void come_back(void) {
  set_residence(0);
  set_gate(VG_GATE_COUNT);
}

static bool has_left(void) {
  return VG_LOAD(&report()->left_word) == VG_LOAD(&control.residence);
}

static void serve(uint64_t length_ns) {
  uint64_t end_ns = vg_prim_now_ns() + length_ns;
  do {
    vg_gate_service(vg_prim_now_ns());
    sleep_ns(VG_NS_PER_MS / 10);
  } while (vg_prim_now_ns() < end_ns);
}

static void serve_until_left(void) {
  while (!has_left()) serve(0);
}

static void begin_watched(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_CALLS);
  inside = stop = calls_done = 0;
  CHECK(vg_residence_is_watched());
}

static void *call_once(void *unused) {
  (void)unused;
  struct vg_gate_line *here = vg_residence_enter();
  CHECK(here);
  __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  while (!VG_LOAD(&stop)) sleep_ns(VG_NS_PER_MS / 10);
  __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  vg_residence_leave(here);
  VG_STORE(&calls_done, 1);
  return NULL;
}

static void *launch_once(void *unused) {
  (void)unused;
  launch(LAUNCH_NS);
  VG_STORE(&calls_done, 1);
  return NULL;
}

static pthread_t start(void *(*body)(void *)) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, body, NULL) == 0);
  return thread;
}

static void wait_until(const uint32_t *word, uint32_t value) {
  while (VG_LOAD(word) != value) sleep_ns(VG_NS_PER_MS / 10);
}

static void nothing_is_marked_where_memory_never_leaves(void) {
  begin(VG_WATCH_USAGE);
  CHECK(!vg_residence_is_watched() && !vg_residence_enter());
  CHECK(!vg_gate_calls_under_way(true) && !report()->calls);
  struct vg_gate_line *here;
  CHECK(vg_residence_try(&here) && !here);
  VG_STORE(&control.watch, VG_WATCH_CALLS);
  vg_gate_service(vg_prim_now_ns());
  here = vg_residence_enter();
  CHECK(here && vg_gate_calls_under_way(true) && report()->calls == 1);
  struct vg_gate_line *again = vg_residence_enter();
  CHECK(again == here && report()->calls == 1);
  vg_residence_leave(again);
  CHECK(vg_gate_calls_under_way(true));
  vg_residence_leave(here);
  CHECK(!vg_gate_calls_under_way(true));
  end();
}

static void a_call_waits_is_counted_and_continues(void) {
  begin_watched();
  leave(1);
  rang();
  VG_STORE(&stop, 1);
  pthread_t thread = start(call_once);
  wait_until(&report()->waiting_calls, 1);
  while (!rang()) sleep_ns(VG_NS_PER_MS);
  serve_until_left();
  set_residence(2); /* came and left again, unnoticed */
  serve_until_left();
  CHECK(!VG_LOAD(&calls_done));
  come_back();
  pthread_join(thread, NULL);
  CHECK(report()->waiting_calls == 0 && report()->calls == 1);
  uint64_t waits = 0; /* the two departures are one wait to the thread */
  for (int bucket = 0; bucket < VG_WAIT_BUCKETS; bucket++) waits += report()->wait_counts[bucket];
  CHECK(waits == 1 && report()->waited_ns > 0);
  end();
}

static void a_launch_waits_before_the_gate_or_at_it(void) {
  begin_watched();
  set_gate(VG_GATE_CLOSED); /* for a neighbour */
  pthread_t at_gate = start(launch_once);
  wait_until(&report()->waiting, 1);
  leave(1);
  serve_until_left(); /* a thread at the gate is not in the driver */
  pthread_t before = start(launch_once);
  wait_until(&report()->waiting_calls, 1);
  come_back();
  pthread_join(at_gate, NULL);
  pthread_join(before, NULL);
  CHECK(serve_until_idle() && report()->waiting_calls == 0 && report()->waiting == 0);
  end();
}

static void check_that_it_waits_beside_a_capture(void *(*call)(void *)) {
  begin_watched();
  fake_capture_begin(fake_stream(1));
  leave(1);
  serve_until_left();
  pthread_t thread = start(call);
  wait_until(&report()->waiting_calls, 1);
  CHECK(!VG_LOAD(&calls_done));
  come_back();
  pthread_join(thread, NULL);
  fake_capture_end(fake_stream(1));
  end();
}

/* Into a stream that captures, it does not pass the gate; and a probe would end the capture. */
static void a_launch_that_is_captured_waits_as_well(void) {
  check_that_it_waits_beside_a_capture(launch_once);
}

static void the_process_has_left_when_the_last_call_has_ended(void) {
  begin_watched();
  pthread_t thread = start(call_once);
  wait_until(&inside, 1);
  leave(1);
  serve(20 * VG_NS_PER_MS);
  CHECK(!has_left());
  VG_STORE(&stop, 1);
  pthread_join(thread, NULL);
  serve_until_left();
  come_back();
  end();
}

static void the_process_has_left_when_its_work_has_completed(void) {
  begin_watched();
  launch(50 * VG_NS_PER_MS);
  uint64_t end_ns = fake_end_of(fake_stream(1));
  leave(1);
  serve_until_left();
  CHECK(vg_prim_now_ns() >= end_ns && !report()->outstanding);
  come_back();
  /* copies are no work of the gate, but in the context all the same */
  fake_launch(fake_stream(2), 50 * VG_NS_PER_MS);
  end_ns = fake_end_of(fake_stream(2));
  leave(2);
  serve_until_left();
  CHECK(vg_prim_now_ns() >= end_ns);
  come_back();
  end();
}

static void the_helper_keeps_out_of_the_driver_until_it_is_back(void) {
  begin_watched();
  launch(LAUNCH_NS);
  leave(1);
  serve_until_left();
  void *slots[VG_ENTRY_COUNT];
  memcpy(slots, vg_real_slots, sizeof slots);
  for (int i = 0; i < VG_ENTRY_COUNT; i++) vg_real_slots[i] = (void *)fake_missing;
  set_gate(VG_GATE_CLOSED);
  serve(20 * VG_NS_PER_MS);
  memcpy(vg_real_slots, slots, sizeof slots);
  come_back();
  launch(LAUNCH_NS);
  CHECK(serve_until_idle());
  end();
}

/* A program that has waited for its work asks whether it has completed, and a loop that polls is to end. */
static void polls_are_answered_and_are_not_counted(void) {
  begin_watched();
  CHECK(vg_residence_poll_watched() == VG_POLL_ASK && vg_gate_calls_under_way(true) && !vg_gate_calls_under_way(false));
  vg_residence_end_poll();
  CHECK(!vg_gate_calls_under_way(true));
  uint64_t calls = report()->calls;
  leave(1);
  CHECK(vg_residence_poll_watched() == VG_POLL_ASK); /* it leaves */
  serve(20 * VG_NS_PER_MS);
  CHECK(!has_left());
  vg_residence_end_poll();
  serve_until_left();
  CHECK(vg_residence_poll_watched() == VG_POLL_COMPLETED && !vg_gate_calls_under_way(true));
  struct vg_gate_line *here;
  CHECK(!vg_residence_try(&here) && report()->waiting_calls == 0 && report()->calls == calls);
  come_back();
  CHECK(vg_residence_poll_watched() == VG_POLL_ASK);
  vg_residence_end_poll();
  end();
}

static void *poll_once(void *unused) {
  (void)unused;
  CHECK(vg_residence_poll_watched() == VG_POLL_ASK);
  vg_residence_end_poll();
  VG_STORE(&calls_done, 1);
  return NULL;
}

/* Beside a capture no probe shows what has completed: nothing false is said. */
static void a_poll_that_cannot_be_answered_waits(void) {
  check_that_it_waits_beside_a_capture(poll_once);
}

/* It cannot bring the slice back, and in no mode may anything run: the driver may have locked the process. */
static void calls_wait_on_without_a_daemon(void) {
  begin_watched();
  vg_session.mode = VG_MODE_OPEN;
  leave(1);
  serve_until_left();
  vg_gate_daemon_gone(device());
  CHECK((device()->private_word & VG_GATE_STATE_MASK) == VG_GATE_CLOSED);
  pthread_t thread = start(launch_once);
  sleep_ns(150 * VG_NS_PER_MS);
  CHECK(!VG_LOAD(&calls_done));
  new_page();
  vg_gate_daemon_back(device());
  wait_until(&report()->waiting_calls, 1);
  CHECK(!VG_LOAD(&calls_done));
  come_back();
  pthread_join(thread, NULL);
  CHECK(serve_until_idle());
  end();
}

/* Whose number is another one. The driver may have the process locked: it is not asked again. */
static void a_process_that_has_left_has_left_for_the_next_daemon(void) {
  struct vg_control_device next = {.residence = 7};
  struct vg_report_device page = {0};
  begin_watched();
  vg_gate_carry_departure(device(), &next, &page);
  CHECK(!page.left_word); /* it is here */
  leave(1);
  serve_until_left();
  vg_gate_carry_departure(device(), &next, &page);
  CHECK(page.left_word == 7);
  set_residence(7);
  CHECK(vg_residence_poll_watched() == VG_POLL_COMPLETED);
  come_back();
  end();
}

static void *call_on(void *argument) {
  uintptr_t number = (uintptr_t)argument;
  while (!VG_LOAD(&stop)) {
    if (number == 0) {
      if (vg_residence_poll_watched() == VG_POLL_COMPLETED) continue;
      __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
      __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
      vg_residence_end_poll();
      continue;
    }
    if (number == 1) {
      launch_into(fake_stream(2), &functions[1], LAUNCH_NS);
      continue;
    }
    struct vg_gate_line *here = vg_residence_enter();
    __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    vg_residence_leave(here);
  }
  return NULL;
}

static void nobody_is_in_the_driver_once_the_process_has_left(void) {
  begin_watched();
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, call_on, (void *)i) == 0);
  for (uint32_t turn = 1; turn <= TURNS; turn++) {
    sleep_ns(VG_NS_PER_MS);
    leave(turn);
    serve_until_left();
    uint64_t busy_until_ns = fake_end_of(fake_stream(2)), calls = VG_LOAD(&report()->calls);
    for (int i = 0; i < 20; i++) {
      CHECK(VG_LOAD(&inside) == 0 && fake_end_of(fake_stream(2)) == busy_until_ns);
      sleep_ns(VG_NS_PER_MS / 20);
    }
    CHECK(VG_LOAD(&report()->calls) == calls);
    come_back();
    serve(VG_NS_PER_MS);
  }
  VG_STORE(&stop, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  CHECK(report()->waiting_calls == 0 && serve_until_idle());
  end();
}

int main(void) {
  RUN(nothing_is_marked_where_memory_never_leaves);
  RUN(a_call_waits_is_counted_and_continues);
  RUN(a_launch_waits_before_the_gate_or_at_it);
  RUN(a_launch_that_is_captured_waits_as_well);
  RUN(the_process_has_left_when_the_last_call_has_ended);
  RUN(the_process_has_left_when_its_work_has_completed);
  RUN(the_helper_keeps_out_of_the_driver_until_it_is_back);
  RUN(polls_are_answered_and_are_not_counted);
  RUN(a_poll_that_cannot_be_answered_waits);
  RUN(calls_wait_on_without_a_daemon);
  RUN(a_process_that_has_left_has_left_for_the_next_daemon);
  RUN(nobody_is_in_the_driver_once_the_process_has_left);
  return 0;
}
