/* test_run_time.c - sets of times in which work ran, against a row of booleans. */
#include "base/run_time.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define LENGTH 400

static void times_that_touch_become_one(void) {
  struct vg_runs runs = {0};
  vg_runs_add(&runs, 10, 20);
  vg_runs_add(&runs, 30, 40);
  vg_runs_add(&runs, 20, 25);
  CHECK(runs.count == 2 && vg_runs_within(&runs, 0, 100) == 25);
  vg_runs_add(&runs, 5, 50);
  CHECK(runs.count == 1 && runs.of[0].begin_ns == 5 && runs.of[0].end_ns == 50);
  vg_runs_add(&runs, 60, 60);
  vg_runs_add(&runs, 70, 65);
  CHECK(runs.count == 1);
}

static void what_is_over_is_forgotten(void) {
  struct vg_runs runs = {0};
  vg_runs_add(&runs, 10, 20);
  vg_runs_add(&runs, 30, 40);
  CHECK(vg_runs_last(&runs, 5) == 0 && vg_runs_last(&runs, 15) == 15 && vg_runs_last(&runs, 25) == 20);
  vg_runs_forget(&runs, 30);
  CHECK(runs.count == 1 && vg_runs_within(&runs, 35, 100) == 5);
  vg_runs_forget(&runs, 40);
  CHECK(runs.count == 0 && vg_runs_last(&runs, 100) == 0);
}

static void random_times_are_summed_up_once(void) {
  srand(1);
  for (int round = 0; round < 200; round++) {
    struct vg_runs runs = {0};
    bool row[LENGTH] = {false};
    for (int i = 0; i < 40; i++) {
      int begin = rand() % LENGTH, end = begin + rand() % 20;
      if (end > LENGTH) end = LENGTH;
      vg_runs_add(&runs, (uint64_t)begin, (uint64_t)end);
      for (int at = begin; at < end; at++) row[at] = true;
    }
    int from = rand() % LENGTH, to = rand() % LENGTH;
    uint64_t sum = 0;
    for (int at = from; at < to; at++) sum += row[at];
    CHECK(vg_runs_within(&runs, (uint64_t)from, (uint64_t)to) == sum);
    for (uint32_t i = 1; i < runs.count; i++) CHECK(runs.of[i - 1].end_ns < runs.of[i].begin_ns);
  }
}

/* Of a row: the free places from begin to before end, in the order in which they are taken. */
static void take_free(bool *row, int begin, int end, int length, bool latest) {
  for (int i = 0; i < end - begin && length; i++) {
    bool *place = &row[latest ? end - 1 - i : begin + i];
    length -= !*place;
    *place = true;
  }
}

static void time_that_is_not_taken_is_filled(void) {
  srand(2);
  for (int round = 0; round < 500; round++) {
    struct vg_runs runs = {0};
    bool row[LENGTH] = {false};
    for (int i = 0; i < 10; i++) {
      int begin = rand() % LENGTH, end = begin + rand() % 60, length = rand() % 30, latest = rand() % 2;
      if (end > LENGTH) end = LENGTH;
      if (latest)
        vg_runs_fill_latest(&runs, (uint64_t)begin, (uint64_t)end, (uint64_t)length);
      else
        vg_runs_fill_first(&runs, (uint64_t)begin, (uint64_t)end, (uint64_t)length);
      take_free(row, begin, end, length, latest);
      for (int at = 0; at < LENGTH; at++)
        CHECK(vg_runs_within(&runs, (uint64_t)at, (uint64_t)at + 1) == (uint64_t)row[at]);
    }
  }
}

static void the_shortest_pause_gives_way_to_new_times(void) {
  struct vg_runs runs = {0};
  for (uint64_t i = 0; i < VG_RUNS; i++) vg_runs_add(&runs, 100 * i, 100 * i + (i == 7 ? 98 : 50));
  CHECK(runs.count == VG_RUNS);
  uint64_t before = vg_runs_within(&runs, 0, UINT64_MAX);
  vg_runs_add(&runs, 100000, 100010);
  CHECK(runs.count == VG_RUNS && vg_runs_within(&runs, 0, UINT64_MAX) == before + 2 + 10);
}

int main(void) {
  RUN(times_that_touch_become_one);
  RUN(what_is_over_is_forgotten);
  RUN(random_times_are_summed_up_once);
  RUN(time_that_is_not_taken_is_filled);
  RUN(the_shortest_pause_gives_way_to_new_times);
  return 0;
}
