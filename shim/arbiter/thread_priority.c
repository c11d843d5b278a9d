/* thread_priority.c - see thread_priority.h. */
#define _GNU_SOURCE
#include "arbiter/thread_priority.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/prim.h"

#define NICE (-10)
#define STACK_BYTES (64 << 10) /* more than the deepest step uses */
#define WINDOW_NS (100 * VG_NS_PER_MS)
#define USED_MOST_NS (WINDOW_NS / 2)
#define DOWN_NS VG_NS_PER_S

static bool take_class(int policy, int priority) {
  struct sched_param param = {.sched_priority = priority};
  /* A program that the daemon starts is no part of this thread's work. 0: the calling thread. */
  return sched_setscheduler(0, policy | SCHED_RESET_ON_FORK, &param) == 0;
}

/* Only the calling thread's: on Linux a nice value belongs to a thread, whose id says which. */
static bool take_nice(void) {
  return setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE) == 0;
}

/* Without the privilege, and in a cgroup (v1) without real-time budget, SCHED_FIFO is refused. */
static void step_up(struct vg_thread_priority *thread_priority) {
  thread_priority->down_until_ns = 0;
  bool taken = take_class(SCHED_FIFO, 1 + thread_priority->priority) || take_class(SCHED_FIFO, 1); /* a limit of 1 */
  if (taken) VG_STORE_RELAXED(&thread_priority->scheduling, VG_SCHEDULING_FIFO);
}

static void step_down(struct vg_thread_priority *thread_priority, uint64_t now_ns) {
  if (!take_class(SCHED_OTHER, 0)) return;
  VG_STORE_RELAXED(&thread_priority->scheduling, take_nice() ? VG_SCHEDULING_NICE : VG_SCHEDULING_NORMAL);
  VG_STORE_RELAXED(&thread_priority->steps_down, thread_priority->steps_down + 1);
  thread_priority->down_until_ns = now_ns + DOWN_NS;
}

void vg_thread_priority_begin(struct vg_thread_priority *thread_priority, uint64_t now_ns) {
  thread_priority->window_ns = now_ns;
  thread_priority->window_used_ns = vg_thread_priority_used_ns();
  step_up(thread_priority);
  if (thread_priority->scheduling != VG_SCHEDULING_FIFO && take_nice())
    VG_STORE_RELAXED(&thread_priority->scheduling, VG_SCHEDULING_NICE);
}

size_t __attribute__((noinline)) vg_thread_priority_lock_stack(bool *ret_locked) {
  char below[STACK_BYTES] = {0};
  *ret_locked = mlock(below, sizeof below) == 0; /* the pages are there now, and stay when this returns */
  return sizeof below;
}

void vg_thread_priority_watch(struct vg_thread_priority *thread_priority, uint64_t now_ns, uint64_t (*used_ns)(void)) {
  if (thread_priority->down_until_ns && now_ns >= thread_priority->down_until_ns) {
    step_up(thread_priority);
    thread_priority->window_ns = now_ns; /* what it used meanwhile was no real-time thread's */
    thread_priority->window_used_ns = used_ns();
  }
  if (thread_priority->scheduling != VG_SCHEDULING_FIFO || now_ns < thread_priority->window_ns + WINDOW_NS) return;
  uint64_t used = used_ns(), passed_ns = now_ns - thread_priority->window_ns;
  bool too_much = (used - thread_priority->window_used_ns) * WINDOW_NS > USED_MOST_NS * passed_ns;
  thread_priority->window_ns = now_ns;
  thread_priority->window_used_ns = used;
  if (too_much) step_down(thread_priority, now_ns);
}

uint64_t vg_thread_priority_used_ns(void) {
  struct timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return (uint64_t)used.tv_sec * VG_NS_PER_S + (uint64_t)used.tv_nsec;
}
