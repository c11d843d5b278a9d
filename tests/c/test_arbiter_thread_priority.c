/* How the arbiter's thread uses its real-time class, by times that the test makes up. */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/mman.h>

#include "arbiter/thread_priority.h"
#include "base/prim.h"
#include "check.h"

static uint64_t used_ns;

static uint64_t used(void) {
  return used_ns;
}

static bool is_real_time(void) {
  return (sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) == SCHED_FIFO;
}

/* Turns of the thread's loop for so long, every millisecond, at this part of a processor. */
static uint64_t turn(struct vg_thread_priority *thread_priority, uint64_t now_ns, uint64_t for_ns, uint64_t percent) {
  for (uint64_t end_ns = now_ns + for_ns; now_ns < end_ns; now_ns += VG_NS_PER_MS) {
    used_ns += VG_NS_PER_MS * percent / 100;
    vg_thread_priority_watch(thread_priority, now_ns, used);
  }
  return now_ns;
}

static void too_much_use_of_a_processor_ends_the_real_time_class_for_a_second(void) {
  struct vg_thread_priority thread_priority = {0};
  uint64_t now_ns = VG_NS_PER_S;
  vg_thread_priority_begin(&thread_priority, now_ns);
  CHECK((thread_priority.scheduling == VG_SCHEDULING_FIFO) == is_real_time());
  if (!is_real_time()) {
    printf("  SCHED_FIFO is not allowed here\n");
    return;
  }
  used_ns = thread_priority.window_used_ns;
  now_ns = turn(&thread_priority, now_ns, 5 * VG_NS_PER_S, 40);
  CHECK(is_real_time() && thread_priority.steps_down == 0);
  now_ns = turn(&thread_priority, now_ns, 300 * VG_NS_PER_MS, 90);
  CHECK(!is_real_time() && thread_priority.steps_down == 1 && thread_priority.scheduling != VG_SCHEDULING_FIFO);
  now_ns = turn(&thread_priority, now_ns, 500 * VG_NS_PER_MS, 90);
  CHECK(!is_real_time() && thread_priority.steps_down == 1);
  now_ns = turn(&thread_priority, now_ns, 1000 * VG_NS_PER_MS, 10);
  CHECK(is_real_time() && thread_priority.scheduling == VG_SCHEDULING_FIFO);
  now_ns = turn(&thread_priority, now_ns, VG_NS_PER_S, 10);
  CHECK(is_real_time() && thread_priority.steps_down == 1);
}

static void the_stack_is_in_memory(void) {
  bool locked;
  CHECK(vg_thread_priority_lock_stack(&locked) >= 16 << 10);
  munlockall();
}

int main(void) {
  RUN(too_much_use_of_a_processor_ends_the_real_time_class_for_a_second);
  RUN(the_stack_is_in_memory);
  return 0;
}
