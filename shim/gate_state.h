/* gate_state.h - what gate.c (launching threads), gate_service.c (the helper thread) and gate_report.c (what is told to
 * the arbiter) share. */
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

struct vg_gate_span {
  uint64_t since_ns; /* 0: not now */
  uint64_t total_ns; /* up to since_ns or its last end */
};

struct vg_gate_state {
  pthread_mutex_t mutex; /* guards work and what is reported of it; never held while waiting */
  struct vg_work work;
  struct vg_report_device *page; /* the one that the spans are written to */
  struct vg_gate_span busy;      /* work is outstanding */
  struct vg_gate_span active;    /* the same, or a thread waits at the closed gate */
  uint32_t waiters;
  uint64_t idle_since_ns;
  bool helper_rests; /* the helper wants to be woken when work begins */
  bool solo_dirty;   /* launches went through uncounted: only a probe can tell whether they are done */
  bool coasting;     /* no daemon: the timetable decides */
  /* the helper's own */
  enum vg_drain drain;
  uint32_t drain_word; /* the closed word being drained */
  uint64_t drain_begun_ns;
  bool idle_probe; /* a probe is under way to see whether the holder has run dry */
  uint64_t idle_probe_sequence;
};

extern uint32_t vg_gate_captures; /* streams that capture now */
extern pthread_mutex_t vg_gate_capture_mutex;

const struct vg_gate_line *vg_gate_own_line(void); /* NULL: this thread has not launched yet */
void vg_gate_sync_forked_child(void);
bool vg_gate_in_flight(const struct vg_device *device); /* any thread but the caller, after a barrier */
/* May a launch pass the gate that is closed by this word, since another device of the gang is further? */
bool vg_gate_gang_passes(struct vg_device *device, uint32_t word);
/* Is this a launch that a gang counts? Not a kernel: a graph. Under the mutex. */
bool vg_gate_gang_counts(const struct vg_device *device, struct vg_estimate *estimate, bool kernel);

/* Under the mutex, all of them. */
bool vg_gate_give_up(struct vg_device *device); /* does nothing unless a neighbour waits; did it ring the arbiter? */
void vg_gate_become_busy(struct vg_device *device, uint64_t now_ns);
/* Everything has completed. Was anything outstanding before? Then the arbiter is to be rung, if it wants to be. */
bool vg_gate_become_idle(struct vg_device *device, uint64_t now_ns);
void vg_gate_ring_edge(struct vg_device *device);
void vg_gate_wait_begins(struct vg_device *device, uint64_t now_ns);
void vg_gate_wait_ends(struct vg_device *device, uint64_t begun_ns, uint64_t now_ns);
void vg_gate_report_done(struct vg_device *device);  /* after work has been taken out */
void vg_gate_report_again(struct vg_device *device); /* on the page of another daemon */

#endif
