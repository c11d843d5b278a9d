/* The time of a slice of some processes, by what their report pages say, late and at the same time; times are made up.
 */
#include <string.h>

#include "arbiter/overlap.h"
#include "arbiter/pages.h"
#include "base/prim.h"
#include "check.h"

#define MS VG_NS_PER_MS
#define PROCESSES 3 /* the third one does nothing in most cases */

static struct vg_control_header headers[PROCESSES];
static struct vg_control_device controls[PROCESSES];
static struct vg_report_device reports[PROCESSES];
static struct vg_arbiter *arbiter;
static int doorbells[PROCESSES];
static uint64_t begin_ns;

static void begin(void) {
  struct vg_arbiter_params params = {.quantum_ns = 8 * MS, .heartbeat_ns = 20 * MS};
  struct vg_slice_params slice = {.min_milli = 300, .max_milli = 300};
  memset(reports, 0, sizeof reports);
  arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  for (int i = 0; i < PROCESSES; i++) {
    doorbells[i] = vg_prim_eventfd();
    CHECK(vg_arbiter_process_add(arbiter, 1, (uint64_t)i + 1, &headers[i], &controls[i], &reports[i], doorbells[i],
                                 0) == 0);
    reports[i].contexts = 1;
  }
  begin_ns = vg_prim_now_ns() + VG_NS_PER_S;
  arbiter->core.last_ns = begin_ns;
  for (int i = 0; i < PROCESSES; i++) arbiter->processes[i]->counted_ns = begin_ns;
}

static void end(void) {
  vg_arbiter_free(arbiter);
  for (int i = 0; i < PROCESSES; i++) vg_prim_close(doorbells[i]);
}

/* Looks at the pages once a millisecond, from after from_ms to at_ms. Returns the slice's time in microseconds. */
static uint64_t look(int from_ms, int at_ms) {
  for (int ms = from_ms + 1; ms <= at_ms; ms++) {
    uint64_t now_ns = begin_ns + (uint64_t)ms * MS;
    for (int i = 0; i < PROCESSES; i++)
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
  for (int ms = 0; ms < 300; ms++) {
    reports[0].outstanding = reports[1].outstanding = ms % 10 < 4;
    reports[0].busy_since_ns = reports[1].busy_since_ns = ms % 10 < 4 ? begin_ns + (uint64_t)(ms / 10 * 10) * MS : 0;
    if (ms % 10 == 4) {
      report_run(0, ms - 4, ms);
      report_run(1, ms - 4, ms);
    }
    look(ms, ms + 1);
  }
  uint64_t us = look(300, 310);
  printf("  %llu of 120000 us\n", (unsigned long long)us);
  CHECK(us >= 120000 && us <= 124000);
  /* without having been seen at work: as far as there is credit, of a quarter of what has been counted */
  report_run(0, 302, 306);
  look(310, 312);
  report_run(1, 302, 308);
  CHECK(look(312, 360) <= us + 8000);
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

/* Their spans last: what waits for it to be known when they ran has a bound, and is not taken off afterwards either. */
static void time_beyond_the_bound_is_lost_with_its_runs(void) {
  begin();
  reports[0].outstanding = reports[1].outstanding = 1;
  reports[0].busy_since_ns = reports[1].busy_since_ns = begin_ns;
  CHECK(look(0, 400) == 400000);
  reports[0].outstanding = reports[1].outstanding = 0;
  reports[0].busy_since_ns = reports[1].busy_since_ns = 0;
  report_run(0, 0, 400);
  report_run(1, 0, 400);
  CHECK(look(400, 700) <= 500000);
  uint64_t before_us = look(700, 701);
  for (int ms = 701; ms < 801; ms++) report_run(0, ms - 1, ms);
  CHECK(look(701, 1000) >= before_us + 80000);
  end();
}

/* More runs than are remembered: the pauses between them are no work. */
static void work_in_the_pauses_of_many_short_runs_counts(void) {
  begin();
  for (int ms = 0; ms < 900; ms++) {
    report_run(0, ms, ms + .01);
    if (ms >= 200) report_run(1, ms - 200 + .5, ms - 200 + .9);
    look(ms, ms + 1);
  }
  CHECK(look(900, 1100) >= (900 * 10 + 700 * 400) * 95 / 100);
  end();
}

/* More than a page shows: what is overwritten before it was read may have been at the same time, and waits for nothing.
 */
static void runs_that_were_overwritten_are_not_counted_twice(void) {
  begin();
  look(0, 40);
  for (int i = 0; i < 160; i++) {
    report_run(0, 10 + i * .15, 10 + i * .15 + .1);
    report_run(1, 10 + i * .15, 10 + i * .15 + .1);
  }
  uint64_t us = look(40, 99);
  printf("  %llu of 16000 us\n", (unsigned long long)us);
  CHECK(us >= 15000 && us <= 17000);
  end();
}

/* A look falls between runs of two that took turns and their time: nothing of it is lost. */
static void runs_that_are_shown_before_their_time_count(void) {
  begin();
  look(0, 40);
  for (int ms = 0; ms < 20; ms++) show(ms % 2, ms, ms + 1);
  look(40, 41);
  for (int i = 0; i < 2; i++) reports[i].busy_ns += 10 * MS;
  uint64_t us = look(41, 99);
  printf("  %llu of 20000 us\n", (unsigned long long)us);
  CHECK(us == 20000);
  end();
}

/* A look reads few runs: what may be overlap is not charged before all are read. */
static void what_is_still_to_be_read_is_not_charged_meanwhile(void) {
  begin();
  look(0, 20);
  for (int i = 0; i < 60; i++) {
    report_run(0, 10 + i * .1, 10 + i * .1 + .02);
    report_run(1, 10 + i * .1, 10 + i * .1 + .02);
  }
  uint64_t us = look(20, 60);
  printf("  %llu of 1200 us\n", (unsigned long long)us);
  CHECK(us >= 1000 && us <= 1300);
  end();
}

/* It shows no runs: what the others have lost with it is not taken off them once more. */
static void an_older_process_beside_others_changes_nothing(void) {
  begin();
  reports[2].busy_ns = 1;
  for (int round = 0; round < 20; round++) {
    int ms = 40 * round;
    reports[0].outstanding = reports[1].outstanding = 1;
    reports[0].busy_since_ns = reports[1].busy_since_ns = begin_ns + (uint64_t)ms * MS;
    look(ms, ms + 10);
    reports[0].outstanding = reports[1].outstanding = 0;
    reports[0].busy_since_ns = reports[1].busy_since_ns = 0;
    report_run(0, ms, ms + 10);
    report_run(1, ms, ms + 10);
    reports[2].busy_ns += MS;
    look(ms + 10, ms + 40);
  }
  uint64_t us = look(800, 900);
  printf("  %llu of 220000 us\n", (unsigned long long)us);
  CHECK(us >= 200000 && us <= 240000);
  end();
}

/* They use the device in turn, and say that they all did at the same time. */
static void runs_that_processes_share_take_off_a_quarter(void) {
  begin();
  for (int ms = 0; ms < 900; ms++) {
    int process = ms / 10 % PROCESSES;
    reports[process].busy_ns += MS;
    show(process, ms / 30 * 30 + ms % 10, ms / 30 * 30 + ms % 10 + 1);
    look(ms, ms + 1);
  }
  uint64_t us = look(900, 1000);
  printf("  %llu of 900000 us\n", (unsigned long long)us);
  CHECK(us >= 650000);
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
  RUN(time_beyond_the_bound_is_lost_with_its_runs);
  RUN(work_in_the_pauses_of_many_short_runs_counts);
  RUN(runs_that_were_overwritten_are_not_counted_twice);
  RUN(runs_that_are_shown_before_their_time_count);
  RUN(what_is_still_to_be_read_is_not_charged_meanwhile);
  RUN(an_older_process_beside_others_changes_nothing);
  RUN(runs_that_processes_share_take_off_a_quarter);
  return 0;
}
