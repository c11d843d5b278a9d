/*
 * thread_priority.h - how the arbiter's thread, and the one that admits programs, stand with the kernel: ahead of other
 * threads where that is allowed, the arbiter's memory in RAM where that is allowed. Neither is needed; `vgpu doctor`
 * shows what was granted.
 *
 * A real-time thread that never sleeps could take a processor from everything else. So a step's work is bounded by the
 * numbers of slices and processes, doorbells by a rate, and a thread that has still used half of a processor for a
 * while gives the real-time class back for a second.
 */
#ifndef VG_ARBITER_STANDING_H
#define VG_ARBITER_STANDING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arbiter/arbiter.h"

struct vg_thread_priority {
  int priority;        /* within SCHED_FIFO, 0 is the least; set by the caller, before it begins */
  uint32_t scheduling; /* VG_SCHEDULING_* of the thread, as last granted */
  uint32_t steps_down;
  /* its use of processor time, measured from window_ns on */
  uint64_t window_ns, window_used_ns;
  uint64_t down_until_ns; /* 0: it has not stepped down */
};

/* By the thread itself: asks for SCHED_FIFO, else for a nice value. */
void vg_thread_priority_begin(struct vg_thread_priority *thread_priority, uint64_t now_ns);
/* By the thread itself: locks the stack that it will use. Returns how many bytes were to be locked, *ret_locked whether
 * they are. */
size_t vg_thread_priority_lock_stack(bool *ret_locked);
/* By the thread itself, in each turn of its loop: steps down from SCHED_FIFO and up again. used_ns: the processor time
 * that it has used so far; only asked for once in a window. */
void vg_thread_priority_watch(struct vg_thread_priority *thread_priority, uint64_t now_ns, uint64_t (*used_ns)(void));
uint64_t vg_thread_priority_used_ns(void); /* processor time of the calling thread */

#endif
