/*
 * test_gate_estimate.c - what a launch is taken to cost, from timings of which many are too long.
 */
#include "check.h"
#include "gate/estimate.h"

static struct vg_estimate estimate_of(const uint64_t *samples_ns, int count) {
  struct vg_estimate estimate = {.countdown = 1, .samples_ns = (uint64_t[VG_ESTIMATE_SAMPLES]){0}};
  for (int i = 0; i < count; i++) vg_estimate_sample(&estimate, samples_ns[i], false);
  return estimate;
}

static bool is_about(uint64_t value_ns, uint64_t expected_ns) {
  return value_ns > expected_ns - expected_ns / 20 && value_ns < expected_ns + expected_ns / 20;
}

/* A timing that straddles others' time slices is too long by a millisecond or more. */
static void time_slices_of_others_do_not_count(void) {
  struct check_random random = {.state = 7};
  static const uint64_t costs_ns[] = {20000, 200000, 2000000};
  for (int kind = 0; kind < 3; kind++) {
    struct vg_estimate estimate = {.countdown = 1, .samples_ns = (uint64_t[VG_ESTIMATE_SAMPLES]){0}};
    int off = 0;
    for (int i = 0; i < 1000; i++) {
      uint64_t sample_ns = costs_ns[kind] + check_below(&random, costs_ns[kind] / 50);
      bool straddles = check_below(&random, 10) < 4;
      if (straddles) sample_ns += VG_NS_PER_MS * (1 + check_below(&random, 3));
      uint64_t counts_ns = vg_estimate_sample(&estimate, sample_ns, false);
      off += !is_about(estimate.cost_ns, costs_ns[kind]) || !is_about(counts_ns, costs_ns[kind]);
    }
    printf("  %d of 1000 off\n", off);
    CHECK(off < 100);
  }
  static const uint64_t bad_start[] = {1200000, 200000, 200000};
  CHECK(is_about(estimate_of(bad_start, 3).cost_ns, 200000));
  CHECK(vg_estimate_sample(&(struct vg_estimate){.countdown = 1, .samples_ns = (uint64_t[VG_ESTIMATE_SAMPLES]){0}}, 777,
                           false) == 777); /* the first is all that is known */
}

static void costs_that_vary_or_change_are_followed(void) {
  struct check_random random = {.state = 11};
  struct vg_estimate estimate = {.countdown = 1, .samples_ns = (uint64_t[VG_ESTIMATE_SAMPLES]){0}};
  uint64_t sum_ns = 0;
  for (int i = 0; i < 1000; i++) { /* within a quarter: all of them count, so that what is done adds up */
    vg_estimate_sample(&estimate, 1000000 + check_below(&random, 250000), false);
    sum_ns += estimate.cost_ns;
  }
  CHECK(is_about(sum_ns / 1000, 1125000));
  for (int i = 0; i < VG_ESTIMATE_SAMPLES; i++) vg_estimate_sample(&estimate, 4000000, false);
  CHECK(estimate.cost_ns == 4000001);
  for (int i = 0; i < VG_ESTIMATE_SAMPLES / 2; i++) vg_estimate_sample(&estimate, 100000, false);
  CHECK(estimate.cost_ns == 100001); /* down at once, or nearly */
}

/* As of two trainers beside each other, each with graphs longer than the slices of the device: what is timed while the
 * other one pauses is right, one in five; the others are anything up to twice as long, and half of them just that. */
static void long_launches_beside_others_are_not_doubled(void) {
  static const uint64_t cost_ns = 11600000;
  for (uint64_t seed = 1; seed <= 5; seed++) {
    struct check_random random = {.state = seed};
    struct vg_estimate estimate = {.countdown = 1, .samples_ns = (uint64_t[VG_ESTIMATE_SAMPLES]){0}};
    double sum_ns = 0;
    for (int i = 0; i < 1000; i++) {
      uint64_t other_threads_ns =
          check_below(&random, 5) == 0 ? 0 : cost_ns - check_below(&random, 2) * check_below(&random, cost_ns);
      vg_estimate_sample(&estimate, cost_ns + other_threads_ns + check_below(&random, cost_ns / 200), false);
      sum_ns += (double)estimate.cost_ns;
    }
    printf("  %.2f of the cost\n", sum_ns / 1000 / (double)cost_ns);
    CHECK(sum_ns / 1000 < 1.15 * (double)cost_ns);
  }
}

/* What really takes anything between one and three is not taken for its shortest. */
static void costs_that_never_agree_are_not_underrated(void) {
  struct check_random random = {.state = 3};
  struct vg_estimate estimate = {.countdown = 1, .samples_ns = (uint64_t[VG_ESTIMATE_SAMPLES]){0}};
  double sum_ns = 0;
  for (int i = 0; i < 1000; i++) {
    vg_estimate_sample(&estimate, VG_NS_PER_MS + check_below(&random, 2 * VG_NS_PER_MS), false);
    sum_ns += (double)estimate.cost_ns;
  }
  printf("  %.2f of the mean\n", sum_ns / 1000 / 2e6);
  CHECK(sum_ns / 1000 > 0.8 * 2e6);
}

/* Launches in a row show how long one takes at most, until others show that it takes longer. */
static void launches_in_a_row_limit_the_cost(void) {
  struct vg_estimate estimate = {.countdown = 1, .samples_ns = (uint64_t[VG_ESTIMATE_SAMPLES]){0}};
  for (int i = 0; i < VG_ESTIMATE_SAMPLES; i++) vg_estimate_sample(&estimate, 5000, false);
  vg_estimate_row(&estimate, 50, 50 * 2600);
  CHECK(is_about(estimate.cost_ns, 2600));
  CHECK(is_about(vg_estimate_sample(&estimate, 5000, false), 2600)); /* what it is counted with */
  vg_estimate_row(&estimate, 50, 50 * 20000);                        /* the program made pauses */
  CHECK(is_about(estimate.cost_ns, 5000));
  vg_estimate_row(&estimate, 50, 50 * 2600);
  for (int i = 0; i < VG_ESTIMATE_SAMPLES; i++) vg_estimate_sample(&estimate, VG_NS_PER_MS, false);
  CHECK(is_about(estimate.cost_ns, 2600));
  vg_estimate_row(&estimate, 0, 0);
  CHECK(is_about(estimate.cost_ns, VG_NS_PER_MS));
}

int main(void) {
  RUN(launches_in_a_row_limit_the_cost);
  RUN(time_slices_of_others_do_not_count);
  RUN(costs_that_vary_or_change_are_followed);
  RUN(long_launches_beside_others_are_not_doubled);
  RUN(costs_that_never_agree_are_not_underrated);
  return 0;
}
