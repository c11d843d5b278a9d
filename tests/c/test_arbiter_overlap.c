/* The time of a slice of two processes, by what their report pages say, late and at the same time; times are made up.
 */
#include <string.h>

#include "arbiter/overlap.h"
#include "arbiter/pages.h"
#include "base/prim.h"
#include "check.h"

#define MS VG_NS_PER_MS

static struct vg_control_header headers[2];
static struct vg_control_device controls[2];
static struct vg_report_device reports[2];
static struct vg_arbiter *arbiter;
static int doorbells[2];
static uint64_t begin_ns;

static void begin(void) {
  struct vg_arbiter_params params = {.quantum_ns = 8 * MS, .heartbeat_ns = 20 * MS};
  struct vg_slice_params slice = {.min_milli = 300, .max_milli = 300};
  memset(reports, 0, sizeof reports);
  arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  for (int i = 0; i < 2; i++) {
    doorbells[i] = vg_prim_eventfd();
    CHECK(vg_arbiter_process_add(arbiter, 1, (uint64_t)i + 1, &headers[i], &controls[i], &reports[i], doorbells[i],
                                 0) == 0);
    reports[i].contexts = 1;
  }
  begin_ns = vg_prim_now_ns() + VG_NS_PER_S;
  arbiter->core.last_ns = begin_ns;
  for (int i = 0; i < 2; i++) arbiter->processes[i]->counted_ns = begin_ns;
}

static void end(void) {
  vg_arbiter_free(arbiter);
  for (int i = 0; i < 2; i++) vg_prim_close(doorbells[i]);
}

/* Looks at the pages once a millisecond, from after from_ms to at_ms. Returns the slice's time in microseconds. */
static uint64_t look(int from_ms, int at_ms) {
  for (int ms = from_ms + 1; ms <= at_ms; ms++) {
    uint64_t now_ns = begin_ns + (uint64_t)ms * MS;
    for (int i = 0; i < 2; i++)
      if (arbiter->processes[i]) arbiter->due[i] = VG_DUE_PAGE;
    vg_pages_read(arbiter, now_ns);
    arbiter->core.last_ns = now_ns;
  }
  return arbiter->core.slices[0].in.busy_total_ns / 1000;
}

static void show(int process, double from_ms, double to_ms) {
  struct vg_report_device *report = &reports[process];
  struct vg_run_shown *run = &report->runs[report->run_count++ % VG_RUNS_SHOWN];
  run->begin_ns = begin_ns + (uint64_t)(from_ms * 1000) * 1000;
  run->end_ns = begin_ns + (uint64_t)(to_ms * 1000) * 1000;
}

static void report_run(int process, double from_ms, double to_ms) {
  show(process, from_ms, to_ms);
  reports[process].busy_ns += (uint64_t)((to_ms - from_ms) * 1000) * 1000;
}

static void work_in_turns_that_is_reported_late_counts_in_full(void) {
  begin();
  look(0, 20);
  for (int ms = 0; ms < 20; ms++) report_run(ms % 2, ms, ms + 1);
  CHECK(look(20, 60) == 20000);
  end();
}

static void what_two_ran_at_the_same_time_counts_once(void) {
  begin();
  look(0, 10);
  report_run(0, 2, 6);
  look(10, 12);
  report_run(1, 2, 8);
  CHECK(look(12, 60) == 6000);
  end();
}

static void two_at_work_count_no_more_than_the_clock_and_nothing_afterwards(void) {
  begin();
  reports[0].outstanding = reports[1].outstanding = 1;
  reports[0].busy_since_ns = reports[1].busy_since_ns = begin_ns;
  CHECK(look(0, 20) == 20000);
  reports[0].outstanding = reports[1].outstanding = 0;
  reports[0].busy_since_ns = reports[1].busy_since_ns = 0;
  report_run(0, 0, 19);
  report_run(1, 0, 20);
  CHECK(look(20, 90) <= 21000); /* the millisecond that the first one was counted too long is counted ahead */
  report_run(0, 89, 90);
  CHECK(look(90, 99) == 21000);
  end();
}

/* Else its time would be the price of the first one's. */
static void runs_without_time_of_their_own_take_nothing_off(void) {
  begin();
  look(0, 40);
  for (int ms = 0; ms < 40; ms += 2) {
    report_run(0, ms, ms + 1);
    show(1, ms, ms + 1);
  }
  CHECK(look(40, 99) == 20000);
  end();
}

static void false_runs_are_not_believed(void) {
  begin();
  look(0, 10);
  report_run(0, 5, 9);
  reports[1].run_count = UINT64_MAX;
  memset(reports[1].runs, 0xff, sizeof reports[1].runs);
  reports[1].busy_ns = 4 * MS;
  CHECK(look(10, 40) <= 8000);
  reports[1].run_count = 3;
  show(1, 70, 60);
  show(1, 50, 1e6);
  report_run(0, 39, 40);
  CHECK(look(40, 60) <= 9000 && look(60, 61) >= 5000);
  end();
}

/* As before there were runs: what a step has no time for is lost. */
static void processes_that_show_no_runs_count_no_more_than_the_clock(void) {
  begin();
  reports[0].busy_ns = reports[1].busy_ns = 1;
  look(0, 1);
  reports[0].outstanding = reports[1].outstanding = 1;
  reports[0].busy_since_ns = reports[1].busy_since_ns = begin_ns + MS;
  uint64_t both_us = look(1, 21);
  reports[0].outstanding = reports[1].outstanding = 0;
  reports[0].busy_since_ns = reports[1].busy_since_ns = 0;
  reports[0].busy_ns = reports[1].busy_ns = 20 * MS;
  CHECK(both_us >= 20000 && look(21, 90) == both_us);
  end();
}

static void one_that_is_killed_leaves_nothing_to_count(void) {
  begin();
  report_run(1, 0, .5);
  report_run(0, 0, .5);
  reports[0].outstanding = reports[1].outstanding = 1;
  reports[0].busy_since_ns = reports[1].busy_since_ns = begin_ns + MS;
  uint64_t both_us = look(0, 30);
  CHECK(both_us <= 30000 && both_us >= 29000);
  CHECK(vg_arbiter_process_remove(arbiter, 1) == 0);
  reports[1].outstanding = 0;
  reports[1].busy_since_ns = 0;
  report_run(1, 1, 30);
  CHECK(look(30, 99) == both_us);
  end();
}

int main(void) {
  RUN(work_in_turns_that_is_reported_late_counts_in_full);
  RUN(what_two_ran_at_the_same_time_counts_once);
  RUN(two_at_work_count_no_more_than_the_clock_and_nothing_afterwards);
  RUN(runs_without_time_of_their_own_take_nothing_off);
  RUN(false_runs_are_not_believed);
  RUN(processes_that_show_no_runs_count_no_more_than_the_clock);
  RUN(one_that_is_killed_leaves_nothing_to_count);
  return 0;
}
