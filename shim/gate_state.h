/* gate_state.h - what gate.c (launching threads) and gate_service.c (the helper thread) share. */
#ifndef VG_GATE_STATE_H
#define VG_GATE_STATE_H
#include <pthread.h>

#include "gate_work.h"

struct vg_gate_line {       /* one per thread that launches; own cache line */
  struct vg_device *device; /* the in-flight mark: the device that a launch is on its way to, or NULL */
  uint32_t owned;
  struct vg_gate_line *next;
} __attribute__((aligned(64)));

enum vg_drain { VG_DRAIN_NONE, VG_DRAIN_IN_FLIGHT, VG_DRAIN_PROBED };

struct vg_gate_state {
  pthread_mutex_t mutex; /* guards work and the busy times; never held while waiting */
  struct vg_work work;
  uint64_t busy_since_ns; /* 0: idle */
  uint64_t busy_total_ns;
  bool solo_dirty; /* launches went through uncounted: only a probe can tell whether they are done */
  bool coasting;   /* no daemon: the timetable decides */
  /* the helper's own */
  enum vg_drain drain;
  uint32_t drain_word; /* the closed word being drained */
  uint64_t drain_begun_ns;
  bool idle_probe; /* a probe is under way to see whether the holder has run dry */
  uint64_t idle_probe_sequence;
};

extern uint32_t vg_gate_captures; /* streams that capture now */
extern pthread_mutex_t vg_gate_capture_mutex;

bool vg_gate_in_flight(const struct vg_device *device);              /* any thread but the caller, after a barrier */
void vg_gate_become_idle(struct vg_device *device, uint64_t now_ns); /* under the mutex */
void vg_gate_give_up(struct vg_device *device); /* under the mutex; does nothing unless a neighbour waits */

#endif
