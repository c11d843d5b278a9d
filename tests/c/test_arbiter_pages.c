/* What is believed of a report page, by times that the test makes up. */
#include <string.h>

#include "arbiter/pages.h"
#include "base/prim.h"
#include "check.h"

#define OPEN_WORD (1u << VG_GATE_EPOCH_SHIFT | VG_GATE_COUNT)
#define CLOSED_WORD (2u << VG_GATE_EPOCH_SHIFT | VG_GATE_CLOSED)

static struct vg_control_header header;
static struct vg_control_device control;
static struct vg_report_device report;

/* Whether one thread of it is believed to wait, at a gate with this word. */
static bool believed(struct vg_arbiter *arbiter, uint32_t word, bool rings, uint64_t now_ns) {
  struct vg_process *process = arbiter->processes[0];
  process->word = word;
  process->rang |= rings;
  arbiter->due[0] = VG_DUE_PAGE;
  vg_pages_read(arbiter, now_ns);
  return process->reported.waiting != 0;
}

/* A quota of processor time stops a program for most of each 100 ms, also while its gate is open. */
static void a_throttled_program_is_believed_when_it_rings_again(void) {
  struct vg_arbiter_params params = {.quantum_ns = 8 * VG_NS_PER_MS, .heartbeat_ns = 20 * VG_NS_PER_MS};
  struct vg_slice_params slice = {.min_milli = 500, .max_milli = 1000};
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  int doorbell_fd = vg_prim_eventfd();
  CHECK(vg_arbiter_process_add(arbiter, 1, 1, &header, &control, &report, doorbell_fd, 0) == 0);
  uint64_t begin_ns = vg_prim_now_ns() + VG_NS_PER_S;
  report.contexts = report.waiting = 1;
  report.launches = 1;
  CHECK(believed(arbiter, OPEN_WORD, true, begin_ns));
  CHECK(!believed(arbiter, OPEN_WORD, false, begin_ns + 30 * VG_NS_PER_MS));
  CHECK(believed(arbiter, CLOSED_WORD, true, begin_ns + 80 * VG_NS_PER_MS));
  /* a second time in 100 ms: later, and without another ring */
  CHECK(!believed(arbiter, OPEN_WORD, false, begin_ns + 110 * VG_NS_PER_MS));
  CHECK(!believed(arbiter, CLOSED_WORD, true, begin_ns + 120 * VG_NS_PER_MS));
  CHECK(believed(arbiter, CLOSED_WORD, false, begin_ns + 190 * VG_NS_PER_MS));
  /* and a ring at an open gate is no sign of life */
  CHECK(!believed(arbiter, OPEN_WORD, true, begin_ns + 300 * VG_NS_PER_MS));
  CHECK(!believed(arbiter, OPEN_WORD, true, begin_ns + 500 * VG_NS_PER_MS));
  vg_arbiter_free(arbiter);
  vg_prim_close(doorbell_fd);
}

/* With one slice of .3 and one process, whose page is empty. */
static struct vg_arbiter *begin_with_one(int doorbell_fd) {
  struct vg_arbiter_params params = {.quantum_ns = 8 * VG_NS_PER_MS, .heartbeat_ns = 20 * VG_NS_PER_MS};
  struct vg_slice_params slice = {.min_milli = 300, .max_milli = 300};
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  memset(&report, 0, sizeof report);
  CHECK(vg_arbiter_process_add(arbiter, 1, 1, &header, &control, &report, doorbell_fd, 0) == 0);
  return arbiter;
}

/* The end of a span that is reported late is the device's: what was counted beyond it is not counted again. */
static void time_counted_ahead_of_a_late_report_is_counted_once(void) {
  int doorbell_fd = vg_prim_eventfd();
  struct vg_arbiter *arbiter = begin_with_one(doorbell_fd);
  const struct vg_core_slice *core = &arbiter->core.slices[0];
  uint64_t begin_ns = vg_prim_now_ns() + VG_NS_PER_S;
  report.contexts = 1;
  believed(arbiter, OPEN_WORD, true, begin_ns);
  report.busy_since_ns = begin_ns;
  report.outstanding = 1;
  believed(arbiter, OPEN_WORD, false, begin_ns + 5 * VG_NS_PER_MS);
  CHECK(core->in.busy_total_ns == 5 * VG_NS_PER_MS && !core->in.counted_ahead);
  report.busy_since_ns = report.outstanding = 0; /* it had been done after 2 ms */
  report.busy_ns = 2 * VG_NS_PER_MS;
  believed(arbiter, CLOSED_WORD, false, begin_ns + 6 * VG_NS_PER_MS);
  CHECK(core->in.busy_total_ns == 5 * VG_NS_PER_MS && core->in.counted_ahead);
  report.busy_since_ns = begin_ns + 10 * VG_NS_PER_MS;
  report.outstanding = 1;
  believed(arbiter, OPEN_WORD, false, begin_ns + 11 * VG_NS_PER_MS);
  believed(arbiter, OPEN_WORD, false, begin_ns + 12 * VG_NS_PER_MS);
  CHECK(core->in.busy_total_ns == 5 * VG_NS_PER_MS && core->in.counted_ahead);
  believed(arbiter, OPEN_WORD, false, begin_ns + 14 * VG_NS_PER_MS);
  CHECK(core->in.busy_total_ns == 6 * VG_NS_PER_MS && !core->in.counted_ahead);
  /* seen with a heartbeat, between two steps */
  report.busy_ns = 3 * VG_NS_PER_MS;
  report.busy_since_ns = report.outstanding = 0;
  vg_pages_beat(arbiter, begin_ns + 14 * VG_NS_PER_MS + 1);
  believed(arbiter, OPEN_WORD, false, begin_ns + 14 * VG_NS_PER_MS + 1);
  CHECK(core->in.busy_total_ns == 6 * VG_NS_PER_MS && core->in.counted_ahead);
  report.outstanding = 1;
  believed(arbiter, OPEN_WORD, false, begin_ns + 14 * VG_NS_PER_MS + 2);
  CHECK(!core->in.counted_ahead);
  /* work is outstanding and takes no time: that contradicts itself, however much has been counted */
  report.busy_since_ns = 0;
  report.busy_ns = 4 * VG_NS_PER_MS;
  believed(arbiter, OPEN_WORD, false, begin_ns + 15 * VG_NS_PER_MS);
  CHECK(core->in.counted_ahead);
  believed(arbiter, OPEN_WORD, false, begin_ns + 16 * VG_NS_PER_MS);
  CHECK(core->in.busy_total_ns == 6 * VG_NS_PER_MS && !core->in.counted_ahead);
  vg_arbiter_free(arbiter);
  vg_prim_close(doorbell_fd);
}

/* How long of 500 ms, looked at every ms, counts as counted ahead: back_ns is taken off once, and then the total grows
 * by step_ns a look. The second process has none outstanding, and moves its total; the first one's stays. */
static uint64_t looks_ahead(uint64_t back_ns, uint64_t step_ns, bool second) {
  static struct vg_control_header headers[2];
  static struct vg_control_device controls[2];
  static struct vg_report_device reports[2];
  struct vg_arbiter_params params = {.quantum_ns = 8 * VG_NS_PER_MS, .heartbeat_ns = 20 * VG_NS_PER_MS};
  struct vg_slice_params slice = {.min_milli = 300, .max_milli = 300};
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  memset(reports, 0, sizeof reports);
  int doorbells[2] = {vg_prim_eventfd(), vg_prim_eventfd()};
  for (int i = 0; i < 2; i++) {
    CHECK(vg_arbiter_process_add(arbiter, 1, (uint64_t)i + 1, &headers[i], &controls[i], &reports[i], doorbells[i],
                                 0) == 0);
    reports[i].contexts = 1;
    reports[i].outstanding = 1;
  }
  uint64_t ahead = 0, now_ns = vg_prim_now_ns() + VG_NS_PER_S;
  for (int look = 0; look < 1500; look++, now_ns += VG_NS_PER_MS) {
    arbiter->processes[0]->word = arbiter->processes[1]->word = OPEN_WORD;
    arbiter->due[0] = arbiter->due[1] = VG_DUE_PAGE;
    struct vg_report_device *moves = &reports[second ? 1 : 0];
    if (look <= 1000) reports[0].busy_ns = reports[1].busy_ns = (uint64_t)look * VG_NS_PER_MS;
    if (look == 1000) moves->busy_ns -= back_ns;
    if (look == 1000 && second) reports[1].outstanding = 0;
    if (look > 1000) moves->busy_ns += step_ns;
    vg_pages_read(arbiter, now_ns);
    ahead += look > 1000 && arbiter->core.slices[0].in.counted_ahead;
  }
  vg_arbiter_free(arbiter);
  for (int i = 0; i < 2; i++) vg_prim_close(doorbells[i]);
  return ahead;
}

/* Else a program that was counted for a second would have the device for as long as it likes, for nothing. */
static void a_total_that_is_set_back_and_creeps_is_soon_not_believed(void) {
  CHECK(looks_ahead(5 * VG_NS_PER_MS, VG_NS_PER_MS, false) >= 3);
  CHECK(looks_ahead(900 * VG_NS_PER_MS, 1, false) <= 200);
  CHECK(looks_ahead(900 * VG_NS_PER_MS, VG_NS_PER_MS, false) <= 200);
  CHECK(looks_ahead(900 * VG_NS_PER_MS, 1, true) <= 200);
}

/* Its kernels take a sixteenth of the time between its launches, and when they ran is known 4 ms later: until then the
 * clock counts. */
static void a_page_with_work_that_runs_now_and_then_is_believed(void) {
  int doorbell_fd = vg_prim_eventfd();
  struct vg_arbiter *arbiter = begin_with_one(doorbell_fd);
  report.contexts = report.outstanding = 1;
  const struct vg_core_slice *core = &arbiter->core.slices[0];
  uint64_t begin_ns = vg_prim_now_ns() + VG_NS_PER_S, contradictions = 0, busy_ns = 0;
  for (uint64_t ms = 0; ms < 1000; ms++) {
    if (ms % 4 == 0) {
      report.busy_ns = ms * VG_NS_PER_MS / 16;
      report.busy_since_ns = begin_ns + ms * VG_NS_PER_MS;
    }
    arbiter->processes[0]->word = OPEN_WORD;
    arbiter->due[0] = VG_DUE_PAGE;
    vg_pages_read(arbiter, begin_ns + (ms + 1) * VG_NS_PER_MS);
    contradictions += core->in.busy_total_ns == busy_ns && !core->in.counted_ahead;
    busy_ns = core->in.busy_total_ns;
  }
  CHECK(!contradictions && busy_ns < VG_NS_PER_S / 16 + 8 * VG_NS_PER_MS);
  vg_arbiter_free(arbiter);
  vg_prim_close(doorbell_fd);
}

static int64_t cap_ns(struct vg_arbiter *arbiter) {
  pthread_mutex_lock(&arbiter->mutex);
  int64_t cap_ns = arbiter->core.slices[0].bucket.cap_ns;
  pthread_mutex_unlock(&arbiter->mutex);
  return cap_ns;
}

/* What a slice used beyond its maximum is made up for by time in which it is idle, also when its page is not read. */
static void a_debt_is_paid_off_while_all_rest(void) {
  struct vg_arbiter_params params = {
      .quantum_ns = 8 * VG_NS_PER_MS, .cap_depth_ns = 20 * VG_NS_PER_MS, .heartbeat_ns = 20 * VG_NS_PER_MS};
  struct vg_slice_params slice = {.min_milli = 50, .max_milli = 50};
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_slice_set(arbiter, 1, &slice) == 0 && vg_arbiter_start(arbiter) == 0);
  int doorbell_fd = vg_prim_eventfd();
  memset(&report, 0, sizeof report);
  memset(&control, 0, sizeof control);
  CHECK(vg_arbiter_process_add(arbiter, 1, 1, &header, &control, &report, doorbell_fd, 0) == 0);
  while (!VG_LOAD(&control.unread)) vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 10 * params.heartbeat_ns); /* and not looked at any more */
  pthread_mutex_lock(&arbiter->mutex);
  arbiter->core.slices[0].bucket.cap_ns = -(int64_t)VG_NS_PER_S;
  pthread_mutex_unlock(&arbiter->mutex);
  int64_t before_ns = cap_ns(arbiter);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 25 * params.heartbeat_ns);
  CHECK(VG_LOAD(&control.unread) && cap_ns(arbiter) >= before_ns + 10 * (int64_t)params.heartbeat_ns / 20);
  vg_arbiter_free(arbiter);
  vg_prim_close(doorbell_fd);
}

/* Its thread waits at the closed gate and does not ring, so only the clock is read; then the arbiter's thread stands
 * still, and the process works by its timetable. */
static void what_was_done_while_the_arbiter_stood_still_is_never_counted(void) {
  struct vg_arbiter_params params = {
      .quantum_ns = 8 * VG_NS_PER_MS, .cap_depth_ns = 20 * VG_NS_PER_MS, .heartbeat_ns = 20 * VG_NS_PER_MS};
  struct vg_slice_params slice = {.min_milli = 50, .max_milli = 50};
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  arbiter->core.slices[0].bucket.cap_ns = -10 * (int64_t)VG_NS_PER_S;
  CHECK(vg_arbiter_start(arbiter) == 0);
  int doorbell_fd = vg_prim_eventfd();
  memset(&report, 0, sizeof report);
  memset(&control, 0, sizeof control);
  CHECK(vg_arbiter_process_add(arbiter, 1, 1, &header, &control, &report, doorbell_fd, 0) == 0);
  VG_STORE(&report.active_since_ns, vg_prim_now_ns());
  VG_STORE(&report.contexts, 1);
  VG_STORE(&report.waiting, 1);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 5 * params.heartbeat_ns);
  pthread_mutex_lock(&arbiter->mutex);
  CHECK((control.gate & VG_GATE_STATE_MASK) == VG_GATE_CLOSED && arbiter->due[0] == VG_DUE_CLOCK);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_S);
  VG_STORE(&report.busy_ns, 500 * VG_NS_PER_MS);
  VG_STORE(&report.done_ns, 500 * VG_NS_PER_MS);
  uint32_t woken = VG_LOAD(&header.helper_wake);
  pthread_mutex_unlock(&arbiter->mutex);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 10 * params.heartbeat_ns);
  pthread_mutex_lock(&arbiter->mutex);
  const struct vg_core_slice *core = &arbiter->core.slices[0];
  CHECK(core->in.busy_total_ns == 0 && core->in.done_total_ns == 0 && core->charged_ns == 0);
  pthread_mutex_unlock(&arbiter->mutex);
  CHECK(VG_LOAD(&header.helper_wake) != woken); /* back from its timetable */
  /* and what comes later is */
  VG_STORE(&report.busy_ns, 503 * VG_NS_PER_MS);
  VG_STORE(&report.done_ns, 503 * VG_NS_PER_MS);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 10 * params.heartbeat_ns);
  pthread_mutex_lock(&arbiter->mutex);
  CHECK(core->in.busy_total_ns == 3 * VG_NS_PER_MS && core->in.done_total_ns == 3 * VG_NS_PER_MS);
  pthread_mutex_unlock(&arbiter->mutex);
  vg_arbiter_free(arbiter);
  vg_prim_close(doorbell_fd);
}

int main(void) {
  RUN(a_throttled_program_is_believed_when_it_rings_again);
  RUN(time_counted_ahead_of_a_late_report_is_counted_once);
  RUN(a_debt_is_paid_off_while_all_rest);
  RUN(what_was_done_while_the_arbiter_stood_still_is_never_counted);
  RUN(a_page_with_work_that_runs_now_and_then_is_believed);
  RUN(a_total_that_is_set_back_and_creeps_is_soon_not_believed);
  return 0;
}
