/*
 * test_gate.c - the launch gate between a real arbiter and a fake driver: threads that launch, the helper thread, a
 * neighbour that always wants the device. What must hold: nothing is launched under a closed word that has been
 * reported as drained, all threads make progress, no wait is for ever, and no event is lost.
 */
#include <string.h>

#include "arbiter/arbiter.h"
#include "fake_driver.h"
#include "gate/short_path.h"

#define THREADS 2
#define LAUNCH_NS (100 * VG_NS_PER_US)
#define RUN_NS (500 * VG_NS_PER_MS)
#define GATES 8

struct pages {
  struct vg_control_header header;
  struct vg_control_device control;
  struct vg_report_device report;
};

struct vg_session vg_session;
static struct pages own, own_again, neighbour;
static int doorbell_fd, neighbour_doorbell_fd;
static uint32_t stop_launching, stop_serving;
static uint64_t launches, violations;
static uint64_t waits_every; /* so many launches the program waits for its stream; 0: never, it saturates the device */
static const int function_of_thread[THREADS];
/* As in a program, a gate is never freed: what it has lost of its events is unreachable then, and so a leak. */
struct vg_gate_state *gates[GATES];
static int gate_count;

static const struct vg_arbiter_params params = {
    .quantum_ns = 5 * VG_NS_PER_MS,
    .quantum_min_ns = VG_NS_PER_MS,
    .bound_ns = 2 * VG_NS_PER_MS,
    .open_bound_ns = 20 * VG_NS_PER_MS,
    .overrun_ns = 2 * VG_NS_PER_MS,
    .latency_bound_ns = VG_NS_PER_MS,
    .lookahead_ns = VG_NS_PER_MS / 4,
    .guarantee_depth_ns = 50 * VG_NS_PER_MS,
    .cap_depth_ns = 15 * VG_NS_PER_MS,
    .heartbeat_ns = 20 * VG_NS_PER_MS,
    .memory_total_bytes = 1 << 30,
};

/* ---- threads ---- */

static void launch_for(CUstream stream, const void *function, uint64_t cost_ns) {
  struct vg_device *device = &vg_session.devices[0];
  struct vg_ticket ticket = {0};
  bool solo = vg_gate_solo();
  struct vg_work *again = solo ? NULL : vg_gate_enter_short(stream, false, function, 1024);
  if (!solo && !again) vg_gate_enter(&ticket, stream, false, function, 1024);
  const uint32_t *word_at = VG_LOAD(&device->gate_word);
  uint32_t word = VG_LOAD(word_at);
  bool closed = (word & VG_GATE_STATE_MASK) == VG_GATE_CLOSED && word_at != &device->private_word;
  if (closed && VG_LOAD(&VG_LOAD(&device->report)->drained_word) == word && VG_LOAD(word_at) == word)
    __atomic_add_fetch(&violations, 1, __ATOMIC_RELAXED);
  fake_launch(stream, cost_ns);
  if (again) vg_gate_leave_short(again, CUDA_SUCCESS, true, false);
  if (!solo && !again) vg_gate_leave(&ticket, CUDA_SUCCESS);
  CHECK(fake_mode == CU_STREAM_CAPTURE_MODE_GLOBAL); /* the thread's own mode is what it was */
  __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
}

static void launch(CUstream stream, const void *function) {
  launch_for(stream, function, LAUNCH_NS);
}

static void *launching(void *argument) {
  uintptr_t index = (uintptr_t)argument;
  CUstream stream = fake_stream(index + 1);
  for (uint64_t i = 1; !VG_LOAD(&stop_launching); i++) {
    launch(stream, &function_of_thread[index]);
    if (waits_every && i % waits_every == 0) {
      uint64_t begin = vg_gate_sync_begin();
      uint64_t end_ns = fake_end_of(stream);
      if (end_ns != FAKE_NEVER) {
        vg_prim_sleep_until_ns(end_ns);
        vg_gate_synced(begin, stream, false, false);
      }
    }
  }
  return NULL;
}

static void *capturing(void *unused) {
  (void)unused;
  while (!VG_LOAD(&stop_launching)) {
    fake_capture_begin(fake_stream(7));
    vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
    fake_capture_end(fake_stream(7));
    vg_prim_sleep_until_ns(vg_prim_now_ns() + 5 * VG_NS_PER_MS);
  }
  return NULL;
}

static void *serving(void *unused) {
  (void)unused;
  while (!VG_LOAD(&stop_serving)) {
    const struct vg_control_header *header = VG_LOAD(&vg_session.header);
    uint32_t seen = VG_LOAD(&header->helper_wake);
    uint64_t now_ns = vg_prim_now_ns(), due_ns = vg_gate_service(now_ns);
    if (due_ns > now_ns + 20 * VG_NS_PER_MS) due_ns = now_ns + 20 * VG_NS_PER_MS;
    vg_prim_futex_wait(&header->helper_wake, seen, due_ns);
  }
  return NULL;
}

static void report_time(uint64_t begin_ns, uint64_t end_ns) {
  struct vg_report_device *report = &neighbour.report;
  VG_STORE(&report->busy_since_ns, 0);
  VG_STORE(&report->active_since_ns, 0);
  VG_STORE(&report->busy_ns, report->busy_ns + end_ns - begin_ns);
  VG_STORE(&report->active_ns, report->active_ns + end_ns - begin_ns);
  VG_STORE(&report->done_ns, report->done_ns + end_ns - begin_ns);
}

/* Saturates the device whenever it may, and drains at once. */
static void *neighbouring(void *unused) {
  (void)unused;
  uint64_t since_ns = 0; /* it has used the device */
  VG_STORE(&neighbour.report.contexts, 1);
  while (!VG_LOAD(&stop_launching)) {
    uint32_t word = VG_LOAD(&neighbour.control.gate);
    uint64_t now_ns = vg_prim_now_ns();
    bool open = (word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
    if (since_ns) report_time(since_ns, now_ns);
    since_ns = open ? now_ns : 0;
    VG_STORE(&neighbour.report.busy_since_ns, since_ns);
    VG_STORE(&neighbour.report.active_since_ns, now_ns);
    VG_STORE(&neighbour.report.outstanding, open);
    VG_STORE(&neighbour.report.waiting, !open);
    if (!open) {
      VG_STORE(&neighbour.report.drained_ns, now_ns);
      VG_STORE(&neighbour.report.noticed_word, word);
      VG_STORE(&neighbour.report.drained_word, word);
    }
    vg_prim_eventfd_ring(neighbour_doorbell_fd);
    vg_prim_futex_wait(&neighbour.control.gate, word, now_ns + VG_NS_PER_MS);
  }
  return NULL;
}

/* ---- set-up ---- */

static void set_slices(struct vg_arbiter *arbiter) {
  struct vg_slice_params slice = {.min_milli = 500, .max_milli = 1000, .mem_max_bytes = 1 << 28};
  CHECK(vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  CHECK(vg_arbiter_slice_set(arbiter, 2, &slice) == 0);
}

static void add_own(struct vg_arbiter *arbiter, struct pages *pages) {
  CHECK(vg_arbiter_process_add(arbiter, 1, 1, &pages->header, &pages->control, &pages->report, doorbell_fd, 0) == 0);
}

static void add_neighbour(struct vg_arbiter *arbiter) {
  CHECK(vg_arbiter_process_add(arbiter, 2, 2, &neighbour.header, &neighbour.control, &neighbour.report,
                               neighbour_doorbell_fd, 0) == 0);
  while ((VG_LOAD(&own.control.gate) & VG_GATE_STATE_MASK) == VG_GATE_SOLO) /* until it knows of the neighbour */
    vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS / 10);
}

static void use(struct pages *pages) {
  struct vg_device *device = &vg_session.devices[0];
  VG_STORE(&vg_session.header, &pages->header);
  VG_STORE(&device->control, &pages->control);
  VG_STORE(&device->report, &pages->report);
}

static struct vg_arbiter *begin(void) {
  memset(&own, 0, sizeof own);
  memset(&own_again, 0, sizeof own_again);
  memset(&neighbour, 0, sizeof neighbour);
  vg_gate_forked_child(); /* as in a new process: threads remember nothing of the last test's gate */
  memset(&vg_session, 0, sizeof vg_session);
  launches = violations = 0;
  stop_launching = stop_serving = 0;
  waits_every = 50;
  doorbell_fd = vg_prim_eventfd();
  neighbour_doorbell_fd = vg_prim_eventfd();
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_start(arbiter) == 0);
  set_slices(arbiter);
  vg_session.attached = true;
  vg_session.mode = VG_MODE_COAST;
  vg_session.device_count = 1;
  vg_session.devices[0].doorbell_fd = doorbell_fd;
  fake_driver_start(&vg_session.devices[0]);
  own.report.contexts = own_again.report.contexts = 1;
  use(&own);
  add_own(arbiter, &own);
  CHECK(vg_gate_attach(&vg_session.devices[0]) == 0);
  return arbiter;
}

struct started {
  pthread_t threads[THREADS + 3];
  int count;
};

static void start_thread(struct started *threads, void *(*body)(void *), uintptr_t argument) {
  CHECK(pthread_create(&threads->threads[threads->count++], NULL, body, (void *)argument) == 0);
}

static void join_all(struct started *threads) {
  VG_STORE(&stop_launching, 1);
  for (int i = 1; i < threads->count; i++) pthread_join(threads->threads[i], NULL);
  VG_STORE(&stop_serving, 1);
  pthread_join(threads->threads[0], NULL); /* the helper goes last: launching threads may wait for what it reports */
}

static void end(struct vg_arbiter *arbiter) {
  vg_arbiter_free(arbiter);
  CHECK(gate_count < GATES);
  gates[gate_count++] = vg_session.devices[0].gate;
  vg_prim_close(doorbell_fd);
  vg_prim_close(neighbour_doorbell_fd);
}

/* ---- tests ---- */

static void two_tenants_take_turns(void) {
  struct vg_arbiter *arbiter = begin();
  waits_every = 0;
  struct started threads = {.count = 0};
  add_neighbour(arbiter);
  start_thread(&threads, serving, 0);
  start_thread(&threads, neighbouring, 0);
  for (uintptr_t i = 0; i < THREADS; i++) start_thread(&threads, launching, i);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + RUN_NS);
  struct vg_slice_stats mine, theirs;
  CHECK(vg_arbiter_slice_stats(arbiter, 1, &mine) == 0);
  CHECK(vg_arbiter_slice_stats(arbiter, 2, &theirs) == 0);
  join_all(&threads);
  CHECK(launches > 200);
  printf("  charged %.1f and %.1f ms, %d and %d grants\n", (double)mine.charged_ns / 1e6,
         (double)theirs.charged_ns / 1e6, (int)mine.grants, (int)theirs.grants);
  CHECK(mine.charged_ns * 4 > theirs.charged_ns && theirs.charged_ns * 4 > mine.charged_ns);
  CHECK(mine.grants + theirs.grants > 6);
  /* A thread that loses its processor inside a launch for longer than the helper's patience is let go, so a few. */
  CHECK(violations * 100 <= launches);
  end(arbiter);
}

static void alone_the_gate_opens_for_good(void) {
  struct vg_arbiter *arbiter = begin();
  struct started threads = {.count = 0};
  start_thread(&threads, serving, 0);
  uint64_t limit_ns = vg_prim_now_ns() + 5 * VG_NS_PER_S;
  vg_gate_capture_begin();                                 /* or it would measure its pauses, and count for ever */
  while (!vg_gate_solo() && vg_prim_now_ns() < limit_ns) { /* counted at first */
    launch(fake_stream(1), &function_of_thread[0]);
    vg_prim_sleep_until_ns(fake_end_of(fake_stream(1)));
  }
  vg_gate_capture_end();
  CHECK(vg_gate_solo());
  uint64_t waited_ns = VG_LOAD(&own.report.waited_ns);
  for (int i = 0; i < 200; i++) launch(fake_stream(1), &function_of_thread[0]);
  CHECK(VG_LOAD(&own.report.waited_ns) == waited_ns);
  join_all(&threads);
  end(arbiter);
}

static void a_stream_that_waits_for_another_blocks_no_tenant(void) {
  struct vg_arbiter *arbiter = begin();
  struct started threads = {.count = 0};
  add_neighbour(arbiter);
  start_thread(&threads, serving, 0);
  start_thread(&threads, neighbouring, 0);
  fake_busy_until_ns[3] = FAKE_NEVER;
  for (int i = 0; i < 41; i++) launch(fake_stream(3), &function_of_thread[0]); /* ends, or this test never does */
  launch(fake_stream(4), &function_of_thread[1]);
  pthread_mutex_lock(&fake_mutex);
  fake_busy_until_ns[3] = 0; /* the other stream has written the value */
  pthread_mutex_unlock(&fake_mutex);
  join_all(&threads);
  CHECK(launches == 42);
  end(arbiter);
}

static void captures_do_not_disturb(void) {
  struct vg_arbiter *arbiter = begin();
  struct started threads = {.count = 0};
  add_neighbour(arbiter);
  start_thread(&threads, serving, 0);
  start_thread(&threads, neighbouring, 0);
  start_thread(&threads, capturing, 0);
  start_thread(&threads, launching, 0);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + RUN_NS);
  join_all(&threads);
  CHECK(launches > 20);
  CHECK(vg_gate_solo() || VG_LOAD(&own.control.gate) != 0);
  end(arbiter);
}

static void the_daemon_goes_and_comes_back(void) {
  struct vg_device *device = &vg_session.devices[0];
  struct vg_arbiter *arbiter = begin();
  struct started threads = {.count = 0};
  add_neighbour(arbiter);
  start_thread(&threads, serving, 0);
  start_thread(&threads, neighbouring, 0);
  for (uintptr_t i = 0; i < THREADS; i++) start_thread(&threads, launching, i);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + RUN_NS / 4);
  vg_arbiter_free(arbiter); /* the pages stay as they are */
  vg_gate_daemon_gone(device);
  uint64_t before = __atomic_load_n(&launches, __ATOMIC_RELAXED);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + RUN_NS / 2);
  uint64_t coasted = __atomic_load_n(&launches, __ATOMIC_RELAXED) - before;
  CHECK(coasted > 20);
  arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_start(arbiter) == 0);
  set_slices(arbiter);
  add_own(arbiter, &own_again);
  use(&own_again);
  vg_gate_daemon_back(device);
  before = __atomic_load_n(&launches, __ATOMIC_RELAXED);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + RUN_NS / 4);
  CHECK(__atomic_load_n(&launches, __ATOMIC_RELAXED) > before);
  join_all(&threads);
  CHECK(VG_LOAD(&own_again.report.launches) > 0);
  end(arbiter);
}

static void synchronize(CUstream stream) {
  uint64_t begin_of_wait = vg_gate_sync_begin();
  vg_prim_sleep_until_ns(fake_end_of(stream));
  vg_gate_synced(begin_of_wait, stream, false, false);
}

/* The program never waits for the device, and one kernel is longer than its slot: its end is seen all the same. */
static void kernels_longer_than_a_slot_coast(void) {
  struct vg_device *device = &vg_session.devices[0];
  struct vg_arbiter *arbiter = begin();
  struct started threads = {.count = 0};
  add_neighbour(arbiter);
  start_thread(&threads, serving, 0);
  start_thread(&threads, neighbouring, 0);
  for (int i = 0; i < 3; i++) {
    launch_for(fake_stream(1), &function_of_thread[0], 12 * VG_NS_PER_MS);
    synchronize(fake_stream(1));
  }
  vg_arbiter_free(arbiter);
  vg_gate_daemon_gone(device);
  for (int i = 0; i < 4; i++) launch_for(fake_stream(1), &function_of_thread[0], 12 * VG_NS_PER_MS); /* or never ends */
  join_all(&threads);
  end(NULL);
}

static void launch_slowly(CUstream stream, CUstream other) {
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, stream, false, &function_of_thread[0], 1024);
  synchronize(other); /* as another thread may: what it waited for does not cover this launch */
  fake_launch(stream, VG_NS_PER_S);
  vg_gate_leave(&ticket, CUDA_SUCCESS);
}

static void a_launch_under_way_is_not_idleness(void) {
  struct vg_arbiter *arbiter = begin();
  struct started threads = {.count = 0};
  add_neighbour(arbiter);
  start_thread(&threads, serving, 0);
  launch(fake_stream(2), &function_of_thread[1]);
  launch_slowly(fake_stream(1), fake_stream(2));
  CHECK(VG_LOAD(&own.report.outstanding) == 1);
  join_all(&threads);
  end(arbiter);
}

static void refused_launches_are_not_outstanding(void) {
  struct vg_arbiter *arbiter = begin();
  struct started threads = {.count = 0};
  add_neighbour(arbiter);
  start_thread(&threads, serving, 0);
  for (int i = 0; i < 100; i++) {
    struct vg_ticket ticket;
    vg_gate_enter(&ticket, fake_stream(1), false, &function_of_thread[0], 1024);
    vg_gate_leave(&ticket, CUDA_ERROR_INVALID_VALUE);
  }
  CHECK(vg_gate_outstanding(&vg_session.devices[0]) == 0);
  join_all(&threads);
  end(arbiter);
}

static uint32_t launches_until_timed(struct vg_work *work, struct vg_estimate *estimate, uint64_t ahead_ns) {
  struct vg_stream *stream = vg_work_stream(work, fake_stream(1), false, NULL);
  for (uint32_t count = 1;; count++) {
    stream->cost_ns = ahead_ns;
    CUevent begin =
        estimate->countdown && --estimate->countdown == 0 ? vg_work_time_begin(work, stream, estimate) : NULL;
    if (begin) {
      vg_work_refused(estimate, begin);
      return count;
    }
    CHECK(count < 1000);
  }
}

/* Long kernels are timed often, short ones rarely, and those not on an empty stream if it can be helped. */
static void what_is_timed_and_when(void) {
  struct vg_device *device = &vg_session.devices[0];
  fake_driver_start(device);
  struct vg_work *work = vg_work_new(device);
  CHECK(work);
  struct vg_stream *stream = vg_work_stream(work, fake_stream(1), false, NULL);
  static const struct {
    uint64_t cost_ns;
    uint32_t every;
  } kinds[] = {{1000, 4096}, {20000, 499}, {1000000, 9}, {50000000, 1}};
  for (int i = 0; i < 4; i++) {
    struct vg_estimate *estimate = vg_work_find_estimate(work, &function_of_thread[0], 1024ull << i);
    for (int k = 0; k < 4; k++) vg_estimate_sample(estimate, kinds[i].cost_ns, false);
    estimate->countdown = 0;
    vg_work_launched(work, stream, estimate, NULL, VG_NS_PER_S, false);
    CHECK(estimate->countdown > kinds[i].every / 2 && estimate->countdown <= kinds[i].every / 2 + kinds[i].every);
  }
  struct vg_estimate *estimate = vg_work_find_estimate(work, &function_of_thread[0], 1024);
  estimate->countdown = 1;
  CHECK(launches_until_timed(work, estimate, VG_NS_PER_MS) == 1);
  estimate->countdown = 1;
  uint32_t late = launches_until_timed(work, estimate, 0);
  CHECK(late > 1 && late < 64);
  /* A long launch that begins a turn each time, and so always finds the stream empty. */
  estimate = vg_work_find_estimate(work, &function_of_thread[0], 1024ull << 3);
  for (int i = 0; i < 4; i++) {
    estimate->countdown = 1;
    CHECK(launches_until_timed(work, estimate, 0) == 1);
  }
  fake_event_destroy(stream->markers[stream->head++ % VG_WORK_MARKERS].event); /* behind the launch of 50 ms */
  stream->cost_ns = 0;
  vg_work_clear(work, vg_prim_now_ns(), false);
  free(work);
}

/* A place that streams of several contexts share ends with the first of these; events of the others would stay. */
static void events_of_a_shared_place_end_with_it(void) {
  struct vg_device *device = &vg_session.devices[0];
  fake_driver_start(device);
  struct vg_work *work = vg_work_new(device);
  CHECK(work);
  struct vg_estimate *estimate = vg_work_find_estimate(work, &function_of_thread[0], 1024);
  uint64_t before = fake_events;
  for (uintptr_t i = 1; i <= VG_WORK_STREAMS; i++)
    vg_work_stream(work, fake_stream(i), false, NULL)->cost_ns = VG_NS_PER_MS;
  struct vg_stream *shared = vg_work_stream(work, fake_stream(VG_WORK_STREAMS + 1), false, NULL);
  CHECK(shared->shared);
  CHECK(vg_work_mark(work, shared, estimate, NULL, VG_NS_PER_MS));
  CHECK(fake_events == before + 1);
  vg_work_forget_context(work, (CUcontext)(uintptr_t)0xc1); /* another one than the event's */
  CHECK(fake_events == before);
  free(work);
}

int main(void) {
  RUN(what_is_timed_and_when);
  RUN(events_of_a_shared_place_end_with_it);
  RUN(refused_launches_are_not_outstanding);
  RUN(a_launch_under_way_is_not_idleness);
  RUN(kernels_longer_than_a_slot_coast);
  RUN(alone_the_gate_opens_for_good);
  RUN(two_tenants_take_turns);
  RUN(a_stream_that_waits_for_another_blocks_no_tenant);
  RUN(captures_do_not_disturb);
  RUN(the_daemon_goes_and_comes_back);
  return 0;
}
