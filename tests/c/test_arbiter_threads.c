/*
 * test_arbiter_threads.c - the arbiter's thread with tenants in threads of their own and callers that change everything
 * meanwhile, as Python does. What is looked for: data races, lost wake-ups, pages used after they were taken away, and
 * tenants that write nonsense.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "arbiter/policy.h"
#include "arbiter/state.h"
#include "base/prim.h"
#include "check.h"

#define TENANTS 3
#define RUN_NS (400 * VG_NS_PER_MS)

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
    .memory_total_bytes = 1ull << 30,
};

struct tenant {
  struct vg_control_header header;
  struct vg_control_device control;
  struct vg_report_device report;
  int doorbell_fd;
  uint64_t launches;
  pthread_t thread;
};

static uint32_t stop;
static struct tenant tenants[TENANTS];

/* One piece of work of 200 us: waits at the gate, runs, drains and says so. */
static void work(struct tenant *tenant) {
  uint32_t word = VG_LOAD(&tenant->control.gate);
  if ((word & VG_GATE_STATE_MASK) == VG_GATE_CLOSED) {
    VG_STORE(&tenant->report.drained_ns, vg_prim_now_ns());
    VG_STORE(&tenant->report.noticed_word, word);
    VG_STORE(&tenant->report.drained_word, word);
    VG_STORE(&tenant->report.waiting, 1);
    vg_prim_eventfd_ring(tenant->doorbell_fd);
    vg_prim_futex_wait(&tenant->control.gate, word, vg_prim_now_ns() + 20 * VG_NS_PER_MS);
    VG_STORE(&tenant->report.waiting, 0);
    return;
  }
  uint64_t begin_ns = vg_prim_now_ns();
  VG_STORE(&tenant->report.busy_since_ns, begin_ns);
  VG_STORE(&tenant->report.active_since_ns, begin_ns);
  VG_STORE(&tenant->report.outstanding, 1);
  vg_prim_sleep_until_ns(begin_ns + 200 * VG_NS_PER_US);
  uint64_t end_ns = vg_prim_now_ns();
  VG_STORE(&tenant->report.busy_since_ns, 0);
  VG_STORE(&tenant->report.busy_ns, VG_LOAD(&tenant->report.busy_ns) + end_ns - begin_ns);
  VG_STORE(&tenant->report.active_since_ns, 0);
  VG_STORE(&tenant->report.active_ns, VG_LOAD(&tenant->report.busy_ns));
  VG_STORE(&tenant->report.done_ns, VG_LOAD(&tenant->report.done_ns) + 200 * VG_NS_PER_US);
  VG_STORE(&tenant->report.outstanding, 0);
  VG_STORE(&tenant->report.launches, ++tenant->launches);
}

static void *honest(void *argument) {
  while (!VG_LOAD(&stop)) work(argument);
  return NULL;
}

static void *hostile(void *argument) {
  struct tenant *tenant = argument;
  struct check_random random = {4711};
  uint32_t *words = (uint32_t *)&tenant->report;
  while (!VG_LOAD(&stop)) {
    VG_STORE(&words[check_below(&random, sizeof tenant->report / sizeof *words)], (uint32_t)check_random(&random));
    vg_prim_eventfd_ring(tenant->doorbell_fd);
  }
  return NULL;
}

static void add(struct vg_arbiter *arbiter, int index, uint64_t process_id) {
  struct tenant *tenant = &tenants[index];
  memset(&tenant->control, 0, sizeof tenant->control);
  CHECK(vg_arbiter_process_add(arbiter, 1 + index, process_id, &tenant->header, &tenant->control, &tenant->report,
                               tenant->doorbell_fd, 0) == 0);
}

static struct vg_arbiter *start(void *(*body)(void *)) {
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter);
  CHECK(vg_arbiter_start(arbiter) == 0);
  CHECK(vg_arbiter_start(arbiter) < 0);
  VG_STORE(&stop, 0);
  memset(tenants, 0, sizeof tenants);
  for (int i = 0; i < TENANTS; i++) {
    struct vg_slice_params slice = {
        .min_milli = 250, .max_milli = 1000, .mem_min_bytes = 1 << 20, .mem_max_bytes = 1 << 28};
    CHECK(vg_arbiter_slice_set(arbiter, 1 + i, &slice) == 0);
    tenants[i].doorbell_fd = vg_prim_eventfd();
    add(arbiter, i, 100 + i);
    CHECK(pthread_create(&tenants[i].thread, NULL, i == 0 && body ? body : honest, &tenants[i]) == 0);
  }
  return arbiter;
}

static void finish(struct vg_arbiter *arbiter) {
  VG_STORE(&stop, 1);
  for (int i = 0; i < TENANTS; i++) pthread_join(tenants[i].thread, NULL);
  vg_arbiter_free(arbiter);
  for (int i = 0; i < TENANTS; i++) vg_prim_close(tenants[i].doorbell_fd);
}

static void all_run_while_limits_change(void) {
  struct vg_arbiter *arbiter = start(NULL);
  uint64_t end_ns = vg_prim_now_ns() + RUN_NS;
  for (uint32_t i = 0; vg_prim_now_ns() < end_ns; i++) {
    struct vg_slice_params slice = {.min_milli = 100 + i % 100, .max_milli = 400 + i % 600, .mem_max_bytes = 1 << 28};
    CHECK(vg_arbiter_slice_set(arbiter, 1 + i % TENANTS, &slice) == 0);
    struct vg_slice_stats slice_stats;
    struct vg_process_stats process_stats;
    CHECK(vg_arbiter_slice_stats(arbiter, 1 + i % TENANTS, &slice_stats) == 0);
    CHECK(slice_stats.processes == 1);
    CHECK(vg_arbiter_process_stats(arbiter, 100 + i % TENANTS, &process_stats) == 0);
    struct vg_slice_usage usage[TENANTS];
    CHECK(vg_arbiter_usage(arbiter, usage, 1) == 1);
    CHECK(vg_arbiter_usage(arbiter, usage, TENANTS) == TENANTS);
    for (int j = 0; j < TENANTS; j++) CHECK(usage[j].slice_id - 1 < TENANTS);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
  }
  uint64_t launches[TENANTS];
  for (int i = 0; i < TENANTS; i++) launches[i] = VG_LOAD(&tenants[i].report.launches);
  finish(arbiter);
  for (int i = 0; i < TENANTS; i++) CHECK(launches[i] > 10);
}

static void processes_come_and_go(void) {
  struct vg_arbiter *arbiter = start(NULL);
  uint64_t end_ns = vg_prim_now_ns() + RUN_NS;
  uint64_t id = 100;
  while (vg_prim_now_ns() < end_ns) {
    CHECK(vg_arbiter_process_remove(arbiter, id) == 0);
    CHECK(vg_arbiter_process_remove(arbiter, id) < 0);
    CHECK(vg_arbiter_slice_remove(arbiter, 1) == 0);
    struct vg_slice_params slice = {.min_milli = 250, .max_milli = 1000, .mem_max_bytes = 1 << 28};
    CHECK(vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
    id = id == 100 ? 200 : 100;
    CHECK(vg_arbiter_process_add(arbiter, 1, id, &tenants[0].header, &tenants[0].control, &tenants[0].report,
                                 tenants[0].doorbell_fd, 0) == 0);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + 5 * VG_NS_PER_MS);
  }
  finish(arbiter);
}

static void rubbish_in_one_page_hurts_no_other(void) {
  struct vg_arbiter *arbiter = start(hostile);
  uint64_t end_ns = vg_prim_now_ns() + RUN_NS;
  uint64_t before[TENANTS];
  for (int i = 1; i < TENANTS; i++) before[i] = VG_LOAD(&tenants[i].report.launches);
  while (vg_prim_now_ns() < end_ns) {
    struct vg_slice_stats stats;
    CHECK(vg_arbiter_slice_stats(arbiter, 1, &stats) == 0);
    CHECK(stats.mem_held_bytes <= 1 << 28);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + 10 * VG_NS_PER_MS);
  }
  for (int i = 1; i < TENANTS; i++) {
    CHECK(VG_LOAD(&tenants[i].report.launches) > before[i]);
    CHECK(VG_LOAD(&tenants[i].control.max_milli) == 1000);
    CHECK(VG_LOAD(&tenants[i].control.limit_bytes) == 1 << 28);
  }
  finish(arbiter);
}

/* ---- one type of nonsense each ---- */

static void runs_backwards(struct vg_report_device *page, uint64_t round) {
  uint64_t value = UINT64_MAX / 2 - round * VG_NS_PER_S;
  VG_STORE(&page->busy_ns, value);
  VG_STORE(&page->active_ns, value);
  VG_STORE(&page->done_ns, value);
  VG_STORE(&page->launches, value);
  VG_STORE(&page->waited_ns, value);
}

static void is_huge(struct vg_report_device *page, uint64_t round) {
  (void)round;
  VG_STORE(&page->busy_ns, UINT64_MAX);
  VG_STORE(&page->active_ns, UINT64_MAX);
  VG_STORE(&page->done_ns, UINT64_MAX);
  VG_STORE(&page->launches, UINT64_MAX);
  VG_STORE(&page->waited_ns, UINT64_MAX - 1);
  VG_STORE(&page->denied, UINT64_MAX);
  VG_STORE(&page->waiting, UINT32_MAX);
  for (int i = 0; i < VG_WAIT_BUCKETS; i++) VG_STORE(&page->wait_counts[i], UINT32_MAX);
}

static void leaps(struct vg_report_device *page, uint64_t round) {
  VG_STORE(&page->busy_ns, round % 2 ? round * VG_NS_PER_S : 0);
  VG_STORE(&page->active_ns, round % 2 ? 0 : round * VG_NS_PER_S);
  VG_STORE(&page->done_ns, round * VG_NS_PER_S);
}

static void begins_in_the_future_or_before_time(struct vg_report_device *page, uint64_t round) {
  uint64_t since_ns = round % 2 ? 1 : vg_prim_now_ns() + VG_NS_PER_S;
  VG_STORE(&page->busy_since_ns, since_ns);
  VG_STORE(&page->active_since_ns, since_ns);
  VG_STORE(&page->outstanding, 1);
}

static void never_drains(struct vg_report_device *page, uint64_t round) {
  (void)round;
  VG_STORE(&page->contexts, 1);
  VG_STORE(&page->outstanding, 1);
  VG_STORE(&page->waiting, 1);
}

static void has_drained_what_nobody_closed(struct vg_report_device *page, uint64_t round) {
  VG_STORE(&page->contexts, 1);
  VG_STORE(&page->outstanding, 1);
  VG_STORE(&page->waiting, round % 2);
  VG_STORE(&page->drained_ns, UINT64_MAX);
  for (uint32_t epoch = 0; epoch < 1000; epoch++) VG_STORE(&page->drained_word, epoch << VG_GATE_EPOCH_SHIFT);
}

static void forecasts_at_random(struct vg_report_device *page, uint64_t round) {
  VG_STORE(&page->contexts, 1);
  VG_STORE(&page->outstanding, 1);
  VG_STORE(&page->waiting, 1);
  VG_STORE(&page->noticed_word, (uint32_t)round << VG_GATE_EPOCH_SHIFT);
  VG_STORE(&page->drain_expected_ns, round % 3 == 0 ? UINT64_MAX : round % 3);
}

static void holds_more_memory_than_there_is(struct vg_report_device *page, uint64_t round) {
  VG_STORE(&page->used_bytes, UINT64_MAX);
  VG_STORE(&page->peak_bytes, UINT64_MAX);
  VG_STORE(&page->returned_bytes, round % 2 ? UINT64_MAX : 0);
  VG_STORE(&page->want_bytes, round % 3 ? UINT64_MAX - round : 1 << 20);
  VG_STORE(&page->want_seq, (uint32_t)round);
}

static void (*nonsense)(struct vg_report_device *page, uint64_t round);

static void *talks_nonsense(void *argument) {
  struct tenant *tenant = argument;
  for (uint64_t round = 1; !VG_LOAD(&stop); round++) {
    nonsense(&tenant->report, round);
    vg_prim_eventfd_ring(tenant->doorbell_fd);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + 100 * VG_NS_PER_US);
  }
  return NULL;
}

/* The others continue, and no slice is charged more than the time that there was. */
static void one_talks(void (*kind)(struct vg_report_device *page, uint64_t round)) {
  nonsense = kind;
  uint64_t begin_ns = vg_prim_now_ns();
  struct vg_arbiter *arbiter = start(talks_nonsense);
  while (VG_LOAD(&tenants[1].report.launches) < 20 || VG_LOAD(&tenants[2].report.launches) < 20) {
    struct vg_slice_stats stats;
    struct vg_process_stats process;
    CHECK(vg_arbiter_slice_stats(arbiter, 1, &stats) == 0 && vg_arbiter_process_stats(arbiter, 100, &process) == 0);
    uint64_t passed_ns = vg_prim_now_ns() - begin_ns;
    CHECK(passed_ns < 60 * VG_NS_PER_S);
    CHECK(stats.charged_ns <= passed_ns && process.busy_ns <= passed_ns);
    CHECK(stats.launches <= INT64_MAX && stats.throttled_ns <= INT64_MAX); /* the API's numbers are signed */
    CHECK(process.launches <= INT64_MAX && process.throttled_ns <= INT64_MAX && process.denied <= INT64_MAX);
    CHECK(process.mem_peak_bytes <= INT64_MAX);
    pthread_mutex_lock(&arbiter->mutex);
    const struct vg_core_slice *liar = vg_core_find(&arbiter->core, 1);
    CHECK(liar->in.active_total_ns <= passed_ns && liar->in.done_total_ns <= liar->in.busy_total_ns);
    pthread_mutex_unlock(&arbiter->mutex);
    CHECK(stats.mem_held_bytes <= 1 << 28 && stats.mem_used_bytes <= stats.mem_held_bytes);
    for (int i = 1; i < TENANTS; i++) CHECK(vg_arbiter_slice_stats(arbiter, 1 + i, &stats) == 0);
    CHECK(stats.charged_ns <= vg_prim_now_ns() - begin_ns);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
  }
  for (int i = 1; i < TENANTS; i++) CHECK(VG_LOAD(&tenants[i].control.limit_bytes) == 1 << 28);
  finish(arbiter);
}

static void nonsense_isolates_its_process(void) {
  one_talks(runs_backwards);
  one_talks(is_huge);
  one_talks(leaps);
  one_talks(begins_in_the_future_or_before_time);
  one_talks(never_drains);
  one_talks(has_drained_what_nobody_closed);
  one_talks(forecasts_at_random);
  one_talks(holds_more_memory_than_there_is);
}

/* A tenant shares the doorbell's file: it may make it blocking and empty it between the arbiter's waking and its
 * reading. */
static void a_doorbell_that_was_made_blocking_is_read_without_waiting(void) {
  int fd = vg_prim_eventfd();
  CHECK(fcntl(fd, F_SETFL, 0) == 0);
  vg_prim_eventfd_ring(fd);
  for (int i = 0; i < 2; i++) vg_prim_eventfd_drain_shared(fd); /* the second finds nothing, and would wait for ever */
  struct pollfd rung = {.fd = fd, .events = POLLIN};
  CHECK(poll(&rung, 1, 0) == 0);
  vg_prim_close(fd);
}

/* A process that has been calm for long is notified that its page is not read, and gets no heartbeat until it rings.
 * Its memory is read whenever the daemon's side asks. */
static void calm_processes_rest_until_they_ring(void) {
  struct vg_arbiter *arbiter = start(NULL);
  VG_STORE(&stop, 1);
  for (int i = 0; i < TENANTS; i++) pthread_join(tenants[i].thread, NULL);
  struct tenant *calm = &tenants[1];
  struct vg_process_stats stats;
  uint32_t before = 0, rests = VG_REST_BEATS + 2;
  for (int turn = 0; turn < 3; turn++) {
    VG_STORE(&calm->report.waiting, 0);
    while (!VG_LOAD(&calm->control.unread)) vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
    CHECK(VG_LOAD(&calm->control.unread) != before); /* another number each time */
    before = VG_LOAD(&calm->control.unread);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + rests * params.heartbeat_ns);
    uint64_t beat_ns = VG_LOAD(&calm->control.heartbeat_ns);
    CHECK(vg_arbiter_process_stats(arbiter, 101, &stats) == 0);
    uint64_t launches = stats.launches;
    VG_STORE(&calm->report.launches, launches + 5);
    VG_STORE(&calm->report.used_bytes, turn == 1 ? 1 << 20 : 0);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + rests * params.heartbeat_ns);
    CHECK(VG_LOAD(&calm->control.heartbeat_ns) == beat_ns && VG_LOAD(&calm->control.unread) == before);
    CHECK(vg_arbiter_process_stats(arbiter, 101, &stats) == 0);
    CHECK(stats.mem_used_bytes == (turn == 1 && stats.mem_held_bytes ? 1 << 20 : 0));
    uint64_t rung_ns = vg_prim_now_ns();
    vg_prim_eventfd_ring(calm->doorbell_fd);
    while (VG_LOAD(&calm->control.unread) == before) vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS / 10);
    CHECK(VG_LOAD(&calm->control.heartbeat_ns) >= rung_ns);
    do CHECK(vg_arbiter_process_stats(arbiter, 101, &stats) == 0);
    while (stats.launches != launches + 5);
  }
  vg_arbiter_free(arbiter);
  for (int i = 0; i < TENANTS; i++) vg_prim_close(tenants[i].doorbell_fd);
}

static void wait_for_word_after(const struct tenant *tenant, uint32_t word, bool open) {
  uint64_t limit_ns = vg_prim_now_ns() + 5 * VG_NS_PER_S;
  for (;;) {
    uint32_t now = VG_LOAD(&tenant->control.gate);
    if (now != word && ((now & VG_GATE_STATE_MASK) != VG_GATE_CLOSED) == open) return;
    CHECK(vg_prim_now_ns() < limit_ns);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
  }
}

/* Two processes of one slice, and no other slice wants the device any more: one gave it up, the other one keeps
 * running. */
static void a_process_that_gave_up_is_let_in_beside_its_slice(void) {
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_start(arbiter) == 0);
  memset(tenants, 0, sizeof tenants);
  struct vg_slice_params slice = {.min_milli = 500, .max_milli = 900, .mem_max_bytes = 1 << 28};
  CHECK(vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  for (int i = 0; i < 2; i++) {
    struct tenant *tenant = &tenants[i];
    tenant->doorbell_fd = vg_prim_eventfd();
    CHECK(vg_arbiter_process_add(arbiter, 1, 10 + i, &tenant->header, &tenant->control, &tenant->report,
                                 tenant->doorbell_fd, 0) == 0);
  }
  VG_STORE(&tenants[0].report.waiting, 1);
  vg_prim_eventfd_ring(tenants[0].doorbell_fd);
  wait_for_word_after(&tenants[0], 0, true);
  uint32_t word = VG_LOAD(&tenants[0].control.gate);
  VG_STORE(&tenants[0].report.outstanding, 1);
  VG_STORE(&tenants[0].report.waiting, 0);
  VG_STORE(&tenants[1].report.given_up_word, word);
  VG_STORE(&tenants[1].report.waiting, 1);
  vg_prim_eventfd_ring(tenants[1].doorbell_fd);
  wait_for_word_after(&tenants[1], word, true);
  vg_arbiter_free(arbiter);
  for (int i = 0; i < 2; i++) vg_prim_close(tenants[i].doorbell_fd);
}

/* A paused container of the latency class: one of its threads stood at the gate, and finds it open for ever. */
static void a_process_stopped_at_its_gate_delays_no_other(void) {
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_start(arbiter) == 0);
  VG_STORE(&stop, 0);
  memset(tenants, 0, sizeof tenants);
  for (int i = 0; i < 2; i++) {
    struct vg_slice_params slice = {.min_milli = 300, .max_milli = 1000, .latency = i == 0, .mem_max_bytes = 1 << 28};
    CHECK(vg_arbiter_slice_set(arbiter, 1 + i, &slice) == 0);
    tenants[i].doorbell_fd = vg_prim_eventfd();
    tenants[i].report.contexts = 1;
    add(arbiter, i, 100 + i);
  }
  VG_STORE(&tenants[0].report.waiting, 1);
  vg_prim_eventfd_ring(tenants[0].doorbell_fd);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 100 * VG_NS_PER_MS);
  CHECK(pthread_create(&tenants[1].thread, NULL, honest, &tenants[1]) == 0);
  uint64_t limit_ns = vg_prim_now_ns() + 5 * VG_NS_PER_S;
  while (VG_LOAD(&tenants[1].report.launches) < 100) {
    CHECK(vg_prim_now_ns() < limit_ns);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
  }
  VG_STORE(&stop, 1);
  pthread_join(tenants[1].thread, NULL);
  vg_arbiter_free(arbiter);
  for (int i = 0; i < 2; i++) vg_prim_close(tenants[i].doorbell_fd);
}

/* More processes than are looked at in one round; none of them ever rings. */
static void a_process_that_never_rings_is_read(void) {
  enum { MANY = 2 * VG_BEAT_PROCESSES + 5 };
  static struct tenant crowd[MANY];
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_start(arbiter) == 0);
  struct vg_slice_params slice = {.min_milli = 500, .max_milli = 1000, .mem_max_bytes = 1 << 28};
  CHECK(vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  for (int i = 0; i < MANY; i++) {
    crowd[i].doorbell_fd = vg_prim_eventfd();
    CHECK(vg_arbiter_process_add(arbiter, 1, 1 + i, &crowd[i].header, &crowd[i].control, &crowd[i].report,
                                 crowd[i].doorbell_fd, 0) == 0);
  }
  uint64_t before_ns = vg_prim_now_ns(), limit_ns = before_ns + 10 * VG_NS_PER_S;
  for (int i = 0; i < MANY; i++) VG_STORE(&crowd[i].report.launches, 1);
  VG_STORE(&crowd[MANY - 1].report.want_bytes, 1 << 20);
  VG_STORE(&crowd[MANY - 1].report.want_seq, 1);
  struct vg_slice_stats stats = {0};
  while (stats.launches < MANY || VG_LOAD(&crowd[MANY - 1].control.granted_bytes) != 1 << 20) {
    CHECK(vg_prim_now_ns() < limit_ns);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
    CHECK(vg_arbiter_slice_stats(arbiter, 1, &stats) == 0);
  }
  for (int i = 0; i < MANY; i++)
    while (VG_LOAD(&crowd[i].control.heartbeat_ns) < before_ns) CHECK(vg_prim_now_ns() < limit_ns);
  for (int i = 0; i < MANY; i++) CHECK(vg_arbiter_process_remove(arbiter, 1 + i) == 0);
  vg_arbiter_free(arbiter);
  for (int i = 0; i < MANY; i++) vg_prim_close(crowd[i].doorbell_fd);
}

static void *claims(void *argument) {
  struct tenant *tenant = argument;
  while (!VG_LOAD(&stop)) {
    vg_prim_eventfd_ring(tenant->doorbell_fd);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + 50 * VG_NS_PER_US);
  }
  return NULL;
}

/* Launches of two that always work in 0.3 s, beside a slice of a hundredth with an idle page, or one that claims. */
static uint64_t launched_beside(uint32_t waiting) {
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_start(arbiter) == 0);
  VG_STORE(&stop, 0);
  memset(tenants, 0, sizeof tenants);
  for (int i = 0; i < TENANTS; i++) {
    struct vg_slice_params slice = {.min_milli = i ? 490 : 10, .max_milli = 1000, .mem_max_bytes = 1 << 28};
    CHECK(vg_arbiter_slice_set(arbiter, 1 + i, &slice) == 0);
    tenants[i].doorbell_fd = vg_prim_eventfd();
    tenants[i].report.contexts = 1;
    add(arbiter, i, 100 + i);
  }
  VG_STORE(&tenants[0].report.waiting, waiting);
  VG_STORE(&tenants[0].report.active_since_ns, waiting ? vg_prim_now_ns() : 0);
  for (int i = 0; i < TENANTS; i++)
    CHECK(pthread_create(&tenants[i].thread, NULL, i ? honest : claims, &tenants[i]) == 0);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 300 * VG_NS_PER_MS);
  uint64_t launches = VG_LOAD(&tenants[1].report.launches) + VG_LOAD(&tenants[2].report.launches);
  finish(arbiter);
  return launches;
}

static void a_false_claim_to_wait_delays_no_other(void) {
  uint64_t beside_idle = launched_beside(0), beside_claims = launched_beside(1);
  if (beside_claims * 4 < beside_idle)
    fprintf(stderr, "%lu launches, %lu beside a page that claims to wait\n", (unsigned long)beside_idle,
            (unsigned long)beside_claims);
  CHECK(beside_claims * 4 >= beside_idle);
}

/* Whatever number of processes a slice has, and rings. */
static void rings_are_answered_at_a_rate_of_the_slice(void) {
  enum { MANY = 200, RINGS_PER_MS = 20 };
  static struct tenant crowd[MANY];
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_start(arbiter) == 0);
  struct vg_slice_params slice = {.min_milli = 10, .max_milli = 1000, .mem_max_bytes = 1 << 28};
  CHECK(vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  for (int i = 0; i < MANY; i++) {
    crowd[i].doorbell_fd = vg_prim_eventfd();
    CHECK(vg_arbiter_process_add(arbiter, 1, 1 + i, &crowd[i].header, &crowd[i].control, &crowd[i].report,
                                 crowd[i].doorbell_fd, 0) == 0);
  }
  uint64_t begin_ns = vg_prim_now_ns(), answered = 0;
  while (vg_prim_now_ns() < begin_ns + 200 * VG_NS_PER_MS)
    for (int i = 0; i < MANY; i++) {
      struct pollfd rung = {.fd = crowd[i].doorbell_fd, .events = POLLIN};
      if (poll(&rung, 1, 0) == 1) continue;
      answered++;
      vg_prim_eventfd_ring(crowd[i].doorbell_fd);
    }
  uint64_t most = MANY + MANY + RINGS_PER_MS * ((vg_prim_now_ns() - begin_ns) / VG_NS_PER_MS + 2);
  if (answered > most)
    fprintf(stderr, "%lu rings answered, at most %lu\n", (unsigned long)answered, (unsigned long)most);
  CHECK(answered <= most && answered > MANY);
  vg_arbiter_free(arbiter);
  for (int i = 0; i < MANY; i++) vg_prim_close(crowd[i].doorbell_fd);
}

static void want(struct tenant *tenant, uint64_t bytes) {
  uint64_t limit_ns = vg_prim_now_ns() + 5 * VG_NS_PER_S;
  uint32_t seq = VG_LOAD(&tenant->report.want_seq) + 1;
  VG_STORE(&tenant->report.want_bytes, bytes);
  VG_STORE(&tenant->report.want_seq, seq);
  vg_prim_eventfd_ring(tenant->doorbell_fd);
  while (VG_LOAD(&tenant->control.want_answered) != seq) CHECK(vg_prim_now_ns() < limit_ns);
}

/* Between two heartbeats the arbiter does not see what a process frees: before it refuses, it looks. */
static void freed_memory_is_found_without_a_ring(void) {
  struct vg_arbiter_params rare = params;
  rare.heartbeat_ns = 10 * VG_NS_PER_S;
  struct vg_arbiter *arbiter = vg_arbiter_new(&rare);
  CHECK(arbiter && vg_arbiter_start(arbiter) == 0);
  memset(tenants, 0, sizeof tenants);
  struct vg_slice_params slice = {.min_milli = 500, .max_milli = 1000, .mem_max_bytes = 1 << 28};
  CHECK(vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  for (int i = 0; i < 2; i++) {
    tenants[i].doorbell_fd = vg_prim_eventfd();
    CHECK(vg_arbiter_process_add(arbiter, 1, 10 + i, &tenants[i].header, &tenants[i].control, &tenants[i].report,
                                 tenants[i].doorbell_fd, 0) == 0);
  }
  want(&tenants[0], 1 << 28);
  CHECK(VG_LOAD(&tenants[0].control.granted_bytes) == 1 << 28);
  VG_STORE(&tenants[0].report.used_bytes, 1 << 28);
  want(&tenants[1], 1 << 20);
  CHECK(VG_LOAD(&tenants[1].control.granted_bytes) == 0 && !VG_LOAD(&tenants[0].control.memory_pressure));
  VG_STORE(&tenants[0].report.returned_bytes, 1 << 20);
  want(&tenants[1], 1 << 20);
  CHECK(VG_LOAD(&tenants[1].control.granted_bytes) == 1 << 20);
  vg_arbiter_free(arbiter);
  for (int i = 0; i < 2; i++) vg_prim_close(tenants[i].doorbell_fd);
}

static void wrong_calls_are_refused(void) {
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  struct vg_slice_params upside_down = {.min_milli = 500, .max_milli = 400};
  CHECK(vg_arbiter_slice_set(arbiter, 1, &upside_down) < 0);
  struct vg_slice_params too_much = {.min_milli = 500, .max_milli = 1001};
  CHECK(vg_arbiter_slice_set(arbiter, 1, &too_much) < 0);
  struct vg_slice_stats stats;
  CHECK(vg_arbiter_slice_stats(arbiter, 1, &stats) < 0);
  CHECK(vg_arbiter_slice_remove(arbiter, 1) < 0);
  struct tenant tenant = {.doorbell_fd = vg_prim_eventfd()};
  CHECK(vg_arbiter_process_add(arbiter, 1, 5, &tenant.header, &tenant.control, &tenant.report, tenant.doorbell_fd, 0) <
        0);
  vg_prim_close(tenant.doorbell_fd);
  vg_arbiter_free(arbiter);
}

int main(void) {
  RUN(wrong_calls_are_refused);
  RUN(all_run_while_limits_change);
  RUN(processes_come_and_go);
  RUN(rubbish_in_one_page_hurts_no_other);
  RUN(nonsense_isolates_its_process);
  RUN(a_process_that_gave_up_is_let_in_beside_its_slice);
  RUN(a_process_stopped_at_its_gate_delays_no_other);
  RUN(a_false_claim_to_wait_delays_no_other);
  RUN(rings_are_answered_at_a_rate_of_the_slice);
  RUN(a_process_that_never_rings_is_read);
  RUN(freed_memory_is_found_without_a_ring);
  RUN(calm_processes_rest_until_they_ring);
  RUN(a_doorbell_that_was_made_blocking_is_read_without_waiting);
  return 0;
}
