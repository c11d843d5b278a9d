/* A slice whose memory leaves the device and comes back, as its processes see it and as their pages say. Rounds are
 * called by hand, by times that the test makes up. */
#include <string.h>

#include "arbiter/pages.h"
#include "arbiter/policy.h"
#include "base/prim.h"
#include "check.h"

#define PROCESSES 3
#define ROUND_NS (5 * VG_NS_PER_MS)

static struct vg_control_header headers[PROCESSES];
static struct vg_control_device controls[PROCESSES];
static struct vg_report_device reports[PROCESSES];
static int doorbells[PROCESSES];
static struct vg_slice_params slice;
static uint64_t now_ns;

static void add(struct vg_arbiter *arbiter, int i) {
  doorbells[i] = vg_prim_eventfd();
  CHECK(vg_arbiter_process_add(arbiter, 1, (uint64_t)i + 1, &headers[i], &controls[i], &reports[i], doorbells[i], 0) ==
        0);
}

static struct vg_arbiter *begin(int processes) {
  struct vg_arbiter_params params = {.quantum_ns = 8 * VG_NS_PER_MS, .heartbeat_ns = 20 * VG_NS_PER_MS};
  memset(headers, 0, sizeof headers);
  memset(controls, 0, sizeof controls);
  memset(reports, 0, sizeof reports);
  slice = (struct vg_slice_params){.min_milli = 500, .max_milli = 1000, .rotates = 1};
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  for (int i = 0; i < processes; i++) add(arbiter, i);
  now_ns = vg_prim_now_ns() + VG_NS_PER_S;
  return arbiter;
}

static void end(struct vg_arbiter *arbiter, int processes) {
  vg_arbiter_free(arbiter);
  for (int i = 0; i < processes; i++) vg_prim_close(doorbells[i]);
}

static void one_round(struct vg_arbiter *arbiter) {
  now_ns += ROUND_NS;
  for (int i = 0; i < arbiter->process_end; i++) arbiter->due[i] |= VG_DUE_PAGE;
  vg_pages_read(arbiter, now_ns);
  vg_core_step(&arbiter->core, now_ns);
  vg_pages_publish(arbiter);
}

static void move(struct vg_arbiter *arbiter, bool leaves) {
  slice.paused = slice.leaves = leaves;
  CHECK(vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  one_round(arbiter);
}

static struct vg_slice_stats stats_of(struct vg_arbiter *arbiter) {
  struct vg_slice_stats stats;
  CHECK(vg_arbiter_slice_stats(arbiter, 1, &stats) == 0);
  return stats;
}

static bool is_open(int i) {
  return (controls[i].gate & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
}

static void launches_of_a_slice_that_rotates_are_counted_when_it_is_alone(void) {
  struct vg_arbiter *arbiter = begin(1);
  one_round(arbiter);
  CHECK((controls[0].gate & VG_GATE_STATE_MASK) == VG_GATE_COUNT);
  CHECK(controls[0].watch == (VG_WATCH_USAGE | VG_WATCH_CALLS));
  slice.rotates = 0;
  CHECK(vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  uint32_t woken = headers[0].helper_wake;
  one_round(arbiter);
  CHECK((controls[0].gate & VG_GATE_STATE_MASK) == VG_GATE_SOLO && !(controls[0].watch & VG_WATCH_CALLS));
  CHECK(headers[0].helper_wake != woken); /* has no context yet */
  end(arbiter, 1);
}

static void each_departure_has_its_own_number_and_closes_the_gate(void) {
  struct vg_arbiter *arbiter = begin(2);
  one_round(arbiter);
  CHECK(!controls[0].residence && is_open(0));
  uint32_t last = 0;
  for (int turn = 0; turn < 3; turn++) {
    uint32_t woken[] = {headers[0].helper_wake, headers[1].helper_wake};
    move(arbiter, true);
    for (int i = 0; i < 2; i++) {
      CHECK(controls[i].residence && controls[i].residence != last && !is_open(i));
      CHECK(headers[i].helper_wake != woken[i]);
    }
    CHECK(controls[0].residence == controls[1].residence);
    last = controls[0].residence;
    one_round(arbiter);
    CHECK(controls[0].residence == last);
    move(arbiter, false);
    for (int i = 0; i < 2; i++) CHECK(!controls[i].residence && is_open(i));
  }
  end(arbiter, 2);
}

/* Programs remember the last one: with the same number again they would believe that they have left already. */
static void departures_of_the_next_daemon_have_other_numbers(void) {
  uint32_t last = 0;
  for (int i = 0; i < 3; i++) {
    struct vg_arbiter *arbiter = begin(1);
    one_round(arbiter);
    move(arbiter, true);
    CHECK(controls[0].residence && controls[0].residence != last);
    last = controls[0].residence;
    end(arbiter, 1);
  }
}

static void a_word_for_programs_that_have_ended_is_for_no_other(void) {
  struct vg_arbiter *arbiter = begin(1);
  one_round(arbiter);
  int64_t word = vg_arbiter_slice_move(arbiter, 1, VG_MOVE_OUT);
  one_round(arbiter);
  CHECK(word > 0 && controls[0].move_word == word);
  add(arbiter, 1);
  CHECK(controls[1].move_word == word); /* beside it: the slice's */
  CHECK(vg_arbiter_process_remove(arbiter, 1) == 0 && vg_arbiter_process_remove(arbiter, 2) == 0);
  add(arbiter, 2);
  CHECK(!controls[2].move_word);
  end(arbiter, 3);
}

/* With its claim and the space for it others would be asked twice; with neither, they could borrow it in between. */
static void space_for_one_that_comes_ends_as_its_claim_counts(void) {
  struct vg_arbiter *arbiter = begin(1);
  slice.away = 1;
  CHECK(vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  CHECK(vg_arbiter_make_room(arbiter, 1 << 20) == 0);
  CHECK(vg_arbiter_slice_set(arbiter, 1, &slice) == 0 && arbiter->space_bytes == 1 << 20);
  slice.away = 0;
  CHECK(vg_arbiter_slice_set(arbiter, 1, &slice) == 0 && !arbiter->space_bytes);
  end(arbiter, 1);
}

static void a_newcomer_waits_as_well(void) {
  struct vg_arbiter *arbiter = begin(1);
  one_round(arbiter);
  move(arbiter, true);
  add(arbiter, 1);
  CHECK(controls[1].residence == controls[0].residence && !is_open(1));
  end(arbiter, 2);
}

static void threads_that_wait_are_counted_while_the_slice_is_away(void) {
  struct vg_arbiter *arbiter = begin(PROCESSES);
  one_round(arbiter);
  reports[0].waiting_calls = 2;
  reports[1].waiting = 1;
  CHECK(stats_of(arbiter).waiting_calls == 0);
  move(arbiter, true);
  CHECK(stats_of(arbiter).waiting_calls == 3);
  reports[0].waiting_calls = 1; /* as the page is now, whether it was read or not */
  CHECK(stats_of(arbiter).waiting_calls == 2);
  reports[2].waiting_calls = reports[2].waiting = UINT32_MAX; /* a lie is a number, too */
  CHECK(stats_of(arbiter).waiting_calls == 2 + (1 << 16));
  reports[1].waiting_calls = UINT32_MAX;
  CHECK(stats_of(arbiter).waiting_calls == 1 + (2 << 16));
  move(arbiter, false);
  CHECK(stats_of(arbiter).waiting_calls == 0);
  end(arbiter, PROCESSES);
}

/* A library that knows nothing of it leaves its page as it is: such a process is never locked. */
static void a_process_has_left_the_driver_when_it_says_so_of_this_departure(void) {
  struct vg_arbiter *arbiter = begin(2);
  one_round(arbiter);
  CHECK(stats_of(arbiter).processes_in_driver == 2);
  move(arbiter, true);
  CHECK(stats_of(arbiter).processes_in_driver == 2);
  reports[0].left_word = controls[0].residence;
  CHECK(stats_of(arbiter).processes_in_driver == 1);
  reports[1].left_word = controls[1].residence;
  CHECK(stats_of(arbiter).processes_in_driver == 0);
  move(arbiter, false);
  CHECK(stats_of(arbiter).processes_in_driver == 2);
  move(arbiter, true); /* what it said was of the last one */
  CHECK(stats_of(arbiter).processes_in_driver == 2);
  end(arbiter, 2);
}

static void launches_and_calls_and_outstanding_work_are_work(void) {
  struct vg_arbiter *arbiter = begin(1);
  one_round(arbiter);
  uint64_t begin_ns = stats_of(arbiter).last_work_ns;
  CHECK(begin_ns && begin_ns <= vg_prim_now_ns());
  one_round(arbiter);
  CHECK(stats_of(arbiter).last_work_ns == begin_ns);
  reports[0].launches++;
  one_round(arbiter);
  CHECK(stats_of(arbiter).last_work_ns == now_ns);
  reports[0].calls = 7;
  one_round(arbiter);
  uint64_t called_ns = now_ns;
  one_round(arbiter);
  CHECK(stats_of(arbiter).last_work_ns == called_ns);
  reports[0].contexts = reports[0].outstanding = 1;
  one_round(arbiter);
  CHECK(stats_of(arbiter).last_work_ns <= vg_prim_now_ns()); /* now, by the true clock */
  slice.rotates = 0;
  CHECK(vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  reports[0].outstanding = 0;
  one_round(arbiter);
  uint64_t last_ns = stats_of(arbiter).last_work_ns;
  reports[0].calls = 8; /* not read of other slices */
  one_round(arbiter);
  CHECK(stats_of(arbiter).last_work_ns == last_ns);
  end(arbiter, 1);
}

int main(void) {
  RUN(launches_of_a_slice_that_rotates_are_counted_when_it_is_alone);
  RUN(each_departure_has_its_own_number_and_closes_the_gate);
  RUN(departures_of_the_next_daemon_have_other_numbers);
  RUN(a_word_for_programs_that_have_ended_is_for_no_other);
  RUN(space_for_one_that_comes_ends_as_its_claim_counts);
  RUN(a_newcomer_waits_as_well);
  RUN(threads_that_wait_are_counted_while_the_slice_is_away);
  RUN(a_process_has_left_the_driver_when_it_says_so_of_this_departure);
  RUN(launches_and_calls_and_outstanding_work_are_work);
  return 0;
}
