/* Copies between host and device, as processes report them and as the arbiter holds slices to their parts of the link.
 * Rounds are called by hand, by times that the test makes up. */
#include <string.h>

#include "arbiter/links.h"
#include "arbiter/pages.h"
#include "arbiter/policy.h"
#include "base/prim.h"
#include "check.h"

#define PROCESSES 3
#define LINK_BYTES_PER_MS 1000000ull
#define WINDOW_NS (10 * VG_NS_PER_MS)

static struct vg_control_header headers[PROCESSES];
static struct vg_control_device controls[PROCESSES];
static struct vg_report_device reports[PROCESSES];
static int doorbells[PROCESSES];
static uint64_t now_ns;

static void set(struct vg_arbiter *arbiter, uint64_t slice, uint32_t low, uint32_t high) {
  struct vg_slice_params params = {.min_milli = 300, .max_milli = 1000, .copy_min_milli = low, .copy_max_milli = high};
  CHECK(vg_arbiter_slice_set(arbiter, slice, &params) == 0);
}

static void add(struct vg_arbiter *arbiter, uint64_t slice, int i) {
  doorbells[i] = vg_prim_eventfd();
  CHECK(vg_arbiter_process_add(arbiter, slice, (uint64_t)i + 1, &headers[i], &controls[i], &reports[i], doorbells[i],
                               0) == 0);
}

/* Slices 1 and 2, each with a process. */
static struct vg_arbiter *begin(uint64_t link_bytes_per_ms) {
  struct vg_arbiter_params params = {
      .quantum_ns = 8 * VG_NS_PER_MS, .heartbeat_ns = 20 * VG_NS_PER_MS, .link_bytes_per_ms = link_bytes_per_ms};
  memset(headers, 0, sizeof headers);
  memset(controls, 0, sizeof controls);
  memset(reports, 0, sizeof reports);
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter != NULL);
  for (int i = 0; i < 2; i++) {
    set(arbiter, (uint64_t)i + 1, 0, 0);
    add(arbiter, (uint64_t)i + 1, i);
  }
  now_ns = vg_prim_now_ns() + VG_NS_PER_S;
  return arbiter;
}

static void end(struct vg_arbiter *arbiter, int processes) {
  vg_arbiter_free(arbiter);
  for (int i = 0; i < processes; i++) vg_prim_close(doorbells[i]);
}

static uint64_t rate_of(int i) {
  return controls[i].copy_bytes_per_ms[0];
}

/* A window in which each process copies what it may, or less if it wants less (in bytes per ms). */
static void one_window(struct vg_arbiter *arbiter, const uint64_t *wants, int processes) {
  for (int i = 0; i < processes; i++) {
    uint64_t rate = rate_of(i) && rate_of(i) < wants[i] ? rate_of(i) : wants[i];
    reports[i].copies_delayed[0] += rate < wants[i];
    reports[i].copy_bytes[0] += rate * WINDOW_NS / VG_NS_PER_MS;
  }
  now_ns += WINDOW_NS;
  vg_links_round(arbiter, now_ns);
}

static void windows(struct vg_arbiter *arbiter, int count, uint64_t first, uint64_t second) {
  for (int i = 0; i < count; i++) one_window(arbiter, (uint64_t[]){first, second}, 2);
}

static struct vg_slice_stats stats_of(struct vg_arbiter *arbiter, uint64_t slice) {
  struct vg_slice_stats stats;
  CHECK(vg_arbiter_slice_stats(arbiter, slice, &stats) == 0);
  return stats;
}

static bool is_near(uint64_t value, uint64_t wanted) {
  return value + LINK_BYTES_PER_MS / 50 > wanted && value < wanted + LINK_BYTES_PER_MS / 50;
}

static void copies_are_counted_and_nothing_is_paced_where_no_slice_has_a_part(void) {
  struct vg_arbiter *arbiter = begin(LINK_BYTES_PER_MS);
  reports[0].copy_bytes[0] = 1000;
  reports[0].copy_bytes[1] = 20;
  CHECK(vg_links_round(arbiter, now_ns) == UINT64_MAX);
  struct vg_slice_stats stats = stats_of(arbiter, 1);
  CHECK(stats.copy_bytes[0] == 1000 && stats.copy_bytes[1] == 20 && !stats.copy_bytes_per_ms[0]);
  CHECK(!rate_of(0) && !rate_of(1));
  end(arbiter, 2);
}

/* No round need have come between the last copy and the end. */
static void what_a_process_has_copied_stays_counted_when_it_goes(void) {
  struct vg_arbiter *arbiter = begin(LINK_BYTES_PER_MS);
  struct vg_process_stats last;
  reports[0].copy_bytes[0] = 1000;
  reports[1].copy_bytes[1] = 20;
  CHECK(vg_arbiter_process_remove(arbiter, 1) == 0 && vg_arbiter_process_disconnect(arbiter, 2, &last) == 0);
  reports[0].copy_bytes[0] = reports[1].copy_bytes[1] = 1 << 20;
  CHECK(stats_of(arbiter, 1).copy_bytes[0] == 1000 && stats_of(arbiter, 2).copy_bytes[1] == 20);
  end(arbiter, 2);
}

static void a_maximum_holds_and_ends(void) {
  struct vg_arbiter *arbiter = begin(LINK_BYTES_PER_MS);
  set(arbiter, 1, 0, 300);
  windows(arbiter, 20, LINK_BYTES_PER_MS, LINK_BYTES_PER_MS);
  CHECK(is_near(rate_of(0), LINK_BYTES_PER_MS * 3 / 10) && is_near(rate_of(1), LINK_BYTES_PER_MS * 7 / 10));
  windows(arbiter, 20, LINK_BYTES_PER_MS, 0);
  CHECK(is_near(rate_of(0), LINK_BYTES_PER_MS * 3 / 10)); /* alone as well */
  set(arbiter, 1, 0, 0);
  windows(arbiter, 1, 0, 0);
  CHECK(!rate_of(0) && !rate_of(1) && !stats_of(arbiter, 1).copy_bytes_per_ms[0]);
  end(arbiter, 2);
}

static void what_a_minimum_leaves_idle_is_borrowed_and_given_back_at_once(void) {
  struct vg_arbiter *arbiter = begin(LINK_BYTES_PER_MS);
  set(arbiter, 1, 600, 0);
  windows(arbiter, 20, 0, LINK_BYTES_PER_MS);
  CHECK(rate_of(1) > LINK_BYTES_PER_MS * 9 / 10);
  CHECK(rate_of(0) >= LINK_BYTES_PER_MS * 6 / 10); /* it need not wait for a window */
  windows(arbiter, 10, LINK_BYTES_PER_MS, LINK_BYTES_PER_MS);
  CHECK(is_near(rate_of(0), LINK_BYTES_PER_MS * 8 / 10) && is_near(rate_of(1), LINK_BYTES_PER_MS * 2 / 10));
  end(arbiter, 2);
}

static void a_link_whose_rate_is_unknown_is_not_divided(void) {
  struct vg_arbiter *arbiter = begin(0);
  set(arbiter, 1, 600, 0);
  windows(arbiter, 3, LINK_BYTES_PER_MS, LINK_BYTES_PER_MS);
  CHECK(!rate_of(0) && !rate_of(1));
  end(arbiter, 2);
}

static void processes_of_a_slice_divide_its_rate(void) {
  struct vg_arbiter *arbiter = begin(LINK_BYTES_PER_MS);
  set(arbiter, 2, 0, 400);
  add(arbiter, 2, 2);
  for (int i = 0; i < 20; i++) one_window(arbiter, (uint64_t[]){0, LINK_BYTES_PER_MS, LINK_BYTES_PER_MS}, PROCESSES);
  CHECK(is_near(rate_of(1), LINK_BYTES_PER_MS / 5) && is_near(rate_of(2), LINK_BYTES_PER_MS / 5));
  end(arbiter, PROCESSES);
}

/* Whatever it says, others have theirs, and the sums stay numbers. */
static void a_page_that_lies_hurts_its_own_slice(void) {
  struct vg_arbiter *arbiter = begin(LINK_BYTES_PER_MS);
  set(arbiter, 1, 300, 0);
  for (int i = 0; i < 20; i++) {
    reports[1].copies_delayed[0]++; /* and it copies nothing */
    one_window(arbiter, (uint64_t[]){LINK_BYTES_PER_MS, 0}, 2);
  }
  CHECK(rate_of(0) > LINK_BYTES_PER_MS * 9 / 10);
  reports[1].copy_bytes[0] = UINT64_MAX;
  reports[1].copy_bytes[1] = 1ull << 58;
  reports[1].pinned_bytes = UINT64_MAX;
  windows(arbiter, 3, LINK_BYTES_PER_MS, 0);
  CHECK(rate_of(0) >= LINK_BYTES_PER_MS * 3 / 10);
  reports[1].copy_bytes[0] = reports[1].copy_bytes[1] = 0;
  windows(arbiter, 3, LINK_BYTES_PER_MS, 0);
  struct vg_slice_stats stats = stats_of(arbiter, 2);
  CHECK(stats.copy_bytes[0] < INT64_MAX && stats.copy_bytes[1] == 1ull << 58 && stats.pinned_bytes < INT64_MAX);
  end(arbiter, 2);
}

static void a_newcomer_has_a_rate_in_the_next_round(void) {
  struct vg_arbiter *arbiter = begin(LINK_BYTES_PER_MS);
  set(arbiter, 1, 0, 300);
  windows(arbiter, 1, 0, 0);
  add(arbiter, 1, 2);
  CHECK(!rate_of(2));
  vg_links_round(arbiter, ++now_ns);
  CHECK(is_near(rate_of(2), LINK_BYTES_PER_MS * 3 / 10));
  end(arbiter, PROCESSES);
}

int main(void) {
  RUN(copies_are_counted_and_nothing_is_paced_where_no_slice_has_a_part);
  RUN(what_a_process_has_copied_stays_counted_when_it_goes);
  RUN(a_maximum_holds_and_ends);
  RUN(what_a_minimum_leaves_idle_is_borrowed_and_given_back_at_once);
  RUN(a_link_whose_rate_is_unknown_is_not_divided);
  RUN(processes_of_a_slice_divide_its_rate);
  RUN(a_page_that_lies_hurts_its_own_slice);
  RUN(a_newcomer_has_a_rate_in_the_next_round);
  return 0;
}
