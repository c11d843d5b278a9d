/*
 * test_gate_gaps.c - a program whose kernels are shorter than the time between its launches leaves the device idle in
 * between: what is reported of it is what its kernels take, or how long they ran, where no other process has the device
 * in between. And the clock that says which events completed at once.
 */
#include "fake_pages.h"
#include "gate/context_clock.h"
#include "own_clock.h"

#define KERNEL_NS (20 * VG_NS_PER_US)
#define BETWEEN_NS (200 * VG_NS_PER_US)
#define WARM_LAUNCHES 100
#define LAUNCHES 400
#define LONGER 50
#define NEVER 0

static uint64_t busy_ns(void) {
  uint64_t since_ns = VG_LOAD(&report()->busy_since_ns);
  return VG_LOAD(&report()->busy_ns) + (since_ns ? vg_prim_now_ns() - since_ns : 0);
}

/* The helper looks now and then; the program waits behind every so many launches. Returns in which part of the time
 * work is said to have run, and in *ret_part in which it did. */
static double report_slow_launches(const uint64_t *costs_ns, int costs, int wait_every, double *ret_part) {
  uint64_t begin_ns = 0, before_ns = 0, kernels_ns = 0;
  begin(VG_WATCH_USAGE);
  for (int i = 0; i < WARM_LAUNCHES + LAUNCHES; i++) {
    if (i == WARM_LAUNCHES) {
      synchronize(fake_stream(3));
      before_ns = busy_ns();
      begin_ns = vg_prim_now_ns();
      kernels_ns = 0;
    }
    launch_into(fake_stream(3), &functions[0], costs_ns[i % costs]);
    kernels_ns += costs_ns[i % costs];
    sleep_ns(BETWEEN_NS);
    if (wait_every != NEVER && i % wait_every == 0) synchronize(fake_stream(3));
    if (i % 10 == 0) vg_gate_service(vg_prim_now_ns());
  }
  synchronize(fake_stream(3));
  CHECK(serve_until_idle());
  double elapsed_ns = (double)(vg_prim_now_ns() - begin_ns), part = (double)(busy_ns() - before_ns) / elapsed_ns;
  *ret_part = (double)kernels_ns / elapsed_ns;
  printf("  ran in %.3f of the time, reported %.3f\n", *ret_part, part);
  end();
  return part;
}

static void only_kernels_are_reported(int wait_every) {
  const uint64_t cost_ns = KERNEL_NS;
  double part, reported = report_slow_launches(&cost_ns, 1, wait_every, &part);
  CHECK(reported > part / 2 && reported < part * 3);
}

static void a_program_that_never_waits_is_busy_while_its_kernels_run(void) {
  only_kernels_are_reported(NEVER);
}

static void a_program_that_waits_for_each_kernel_is_busy_while_it_runs(void) {
  only_kernels_are_reported(1);
}

static void a_program_that_waits_now_and_then_is_busy_while_its_kernels_run(void) {
  only_kernels_are_reported(10);
}

/* By the least that a function takes, three of four kernels would be nearly free. */
static void kernels_that_take_longer_than_others_of_their_function_are_paid_for(void) {
  static const uint64_t costs_ns[] = {KERNEL_NS / 2, 5 * KERNEL_NS, 5 * KERNEL_NS, 5 * KERNEL_NS};
  double part, reported = report_slow_launches(costs_ns, 4, NEVER, &part);
  CHECK(reported > part * 2 / 3);
}

/* Kernels that were short stay on the device for longer: returns how much of that is reported as completed work.
 * others: other processes have work outstanding all the time. */
static double reported_of_longer(bool others) {
  const uint64_t long_ns = 50 * KERNEL_NS;
  begin(VG_WATCH_USAGE);
  for (int i = 0; i < WARM_LAUNCHES; i++) {
    launch_into(fake_stream(3), &functions[0], KERNEL_NS);
    sleep_ns(BETWEEN_NS);
    synchronize(fake_stream(3));
  }
  CHECK(serve_until_idle());
  uint64_t before_ns = VG_LOAD(&report()->done_ns);
  VG_STORE(&control.others_since_ns, others ? vg_prim_now_ns() : 0);
  for (int i = 0; i < LONGER; i++) {
    launch_into(fake_stream(3), &functions[0], long_ns);
    synchronize(fake_stream(3));
  }
  CHECK(serve_until_idle());
  double part = (double)(VG_LOAD(&report()->done_ns) - before_ns) / (double)(LONGER * long_ns);
  printf("  reported %.3f of the time on the device\n", part);
  end();
  return part;
}

static void kernels_that_become_longer_are_paid_for_at_once(void) {
  CHECK(reported_of_longer(false) > .8);
}

static void kernels_that_wait_for_other_processes_are_not_paid_for_as_longer(void) {
  CHECK(reported_of_longer(true) < .5);
}

static bool completes_at_once(struct vg_context_clock *clock, uint64_t work_ahead_ns) {
  struct CUevent_st event;
  CUstreamCaptureMode before = CU_STREAM_CAPTURE_MODE_RELAXED;
  fake_exchange(&before);
  if (work_ahead_ns) fake_launch(fake_stream(1), work_ahead_ns);
  uint64_t begin_ns = vg_prim_now_ns();
  CHECK(fake_event_record(&event, fake_stream(1)) == CUDA_SUCCESS);
  uint64_t end_ns = vg_prim_now_ns();
  vg_prim_sleep_until_ns(event.ready_ns);
  bool at_once = vg_context_clock_is_at_once(clock, FAKE_CONTEXT, &event, begin_ns, end_ns);
  fake_exchange(&before);
  return at_once;
}

static void an_event_behind_work_does_not_complete_at_once(void) {
  static struct vg_context_clock clock = {.mutex = PTHREAD_MUTEX_INITIALIZER};
  int idle = 0, behind = 0;
  begin(0);
  vg_context_clock_begin(&clock, FAKE_CONTEXT);
  for (int i = 0; i < 20; i++) {
    idle += completes_at_once(&clock, 0);
    behind += completes_at_once(&clock, VG_NS_PER_MS);
  }
  printf("  at once: %d of 20 in an idle stream, %d of 20 behind work\n", idle, behind);
  CHECK(idle >= 10 && !behind);
  end();
}

int main(void) {
  RUN(a_program_that_never_waits_is_busy_while_its_kernels_run);
  RUN(a_program_that_waits_for_each_kernel_is_busy_while_it_runs);
  RUN(a_program_that_waits_now_and_then_is_busy_while_its_kernels_run);
  RUN(kernels_that_take_longer_than_others_of_their_function_are_paid_for);
  RUN(kernels_that_become_longer_are_paid_for_at_once);
  RUN(kernels_that_wait_for_other_processes_are_not_paid_for_as_longer);
  RUN(an_event_behind_work_does_not_complete_at_once);
  return 0;
}
