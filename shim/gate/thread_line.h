/*
 * thread_line.h - one line per thread that launches: where its in-flight marks and its outstanding work are, for each
 * device. A thread marks its own work before it looks at the gate and clears the mark after the driver call. Code that
 * has to know that no launch is under way makes all threads pass a barrier and then reads the marks.
 */
#ifndef VG_GATE_THREAD_LINE_H
#define VG_GATE_THREAD_LINE_H
#include "session/session.h"

struct vg_work;

struct vg_gate_line { /* a cache line of its own */
  uint32_t owned;
  uint32_t calls;                        /* of the driver that the thread is within, one in another; see residence.h */
  uint32_t polls;                        /* 1: within one that only asks whether work has completed */
  struct vg_work *works[VG_DEVICES_MAX]; /* NULL: nothing was launched there */
  struct vg_gate_line *next;
} __attribute__((aligned(64)));

/* The calling thread's; NULL: it has not launched yet. */
extern __thread struct vg_gate_line *vg_gate_own_line __attribute__((tls_model("initial-exec"), visibility("hidden")));
struct vg_gate_line *vg_gate_make_line(void);           /* for a thread without one; NULL: no memory */
bool vg_gate_in_flight(const struct vg_device *device); /* any thread but the caller, after a barrier */
/* Under the gate's mutex. Gives the lease up if a neighbour waits and no launch is in flight; true: it did, and rang
 * the arbiter. */
bool vg_gate_give_up(struct vg_device *device);
/* Is any thread within a call of the driver, or a poll? After a barrier. */
bool vg_gate_calls_under_way(bool or_polls);
void vg_gate_lines_forked_child(void);

#endif
