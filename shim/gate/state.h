/* state.h - what gate.c (launching threads), helper.c (the helper thread) and report.c (what is told to
 * the arbiter) share. */
#ifndef VG_GATE_STATE_H
#define VG_GATE_STATE_H
#include <pthread.h>

#include "gate/idle_probe.h"
#include "gate/thread_work.h"

struct vg_gate_line {       /* one per thread that launches; own cache line */
  struct vg_device *device; /* the in-flight mark: the device that a launch is on its way to, or NULL */
  uint32_t owned;
  struct vg_work *works[VG_DEVICES_MAX]; /* NULL: nothing was launched there */
  struct vg_gate_line *next;
} __attribute__((aligned(64)));

enum vg_drain { VG_DRAIN_NONE, VG_DRAIN_IN_FLIGHT, VG_DRAIN_MARKERS, VG_DRAIN_PROBED };

struct vg_gate_span {
  uint64_t since_ns; /* 0: not now */
  uint64_t total_ns; /* up to since_ns or its last end */
};

struct vg_gate_state {
  pthread_mutex_t mutex; /* guards what follows; never held while waiting; taken before that of a work */
  struct vg_probes probes;
  struct vg_report_device *page; /* the one that the spans are written to */
  struct vg_gate_span active;    /* the same, or a thread waits at the closed gate */
  uint32_t collectives;          /* launched so far, see collectives.c */
  uint32_t waiters;
  uint64_t idle_since_ns;
  bool helper_rests; /* the helper wants to be woken when something begins */
  bool solo_dirty;   /* launches went through uncounted: only a probe can tell whether they are done */
  bool coasting;     /* no daemon: the timetable decides */
  /* the helper's own */
  enum vg_drain drain;
  uint32_t drain_word; /* the closed word being drained */
  uint64_t drain_begun_ns;
  bool idle_probe; /* a probe is under way to see whether the holder has run dry */
  uint64_t idle_probe_launched;
  uint64_t launched, launched_ns; /* how many launches, and when the helper has first seen so many */
  /* what launching threads look at, apart from what is written often */
  struct vg_work *works __attribute__((aligned(64))); /* of all threads that have ever launched; never freed */
  uint64_t epoch;                                     /* see vg_gate_sync_begin() */
  struct vg_gate_span busy;                           /* work is outstanding; ends only under the locks of all works */
} __attribute__((aligned(64)));

extern uint32_t vg_gate_captures; /* streams that capture now */
extern pthread_mutex_t vg_gate_capture_mutex;

const struct vg_gate_line *vg_gate_own_line(void); /* NULL: this thread has not launched yet */
void vg_gate_sync_forked_child(void);
bool vg_gate_in_flight(const struct vg_device *device); /* any thread but the caller, after a barrier */
/* May a launch pass the gate that is closed by this word, since another device of the gang is further? */
bool vg_gate_gang_passes(struct vg_device *device, uint32_t word);
/* A kernel has been launched in a gang, which counts it if it is a collective. By the thread that launches. */
void vg_gate_gang_kernel(struct vg_device *device, struct vg_estimate *estimate);

struct vg_work *vg_gate_new_work(struct vg_device *device);   /* NULL: no memory */
uint64_t vg_gate_outstanding(const struct vg_device *device); /* roughly, at any time */

/* Under the mutex, all of them. */
uint64_t vg_gate_launched(const struct vg_device *device); /* counted launches so far */
/* Takes out what has completed and reports it. Returns what is left, by the estimates: less the time that the device
 * has been at the oldest piece. */
uint64_t vg_gate_reap(struct vg_device *device, uint64_t now_ns);
uint64_t vg_gate_seen(const struct vg_device *device, uint64_t now_ns); /* see vg_work_seen() */
/* After vg_gate_reap(), while a stream captures: see vg_work_settled(). */
bool vg_gate_settled(const struct vg_device *device, uint64_t since_ns, uint64_t now_ns);
void vg_gate_forget_context(struct vg_device *device, CUcontext context);
void vg_gate_take_news(struct vg_work *work, uint64_t *done_ns, uint64_t *launches); /* under the work's lock */
void vg_gate_lock_all(const struct vg_device *device, struct vg_work **ret_first);
void vg_gate_unlock_all(struct vg_work *locked);
uint64_t vg_gate_left(const struct vg_work *locked);
uint64_t vg_gate_launched_all(const struct vg_work *locked);
void vg_gate_clear_all(struct vg_work *locked); /* everything has completed */
void vg_gate_report_all(struct vg_device *device, struct vg_work *locked);
bool vg_gate_give_up(struct vg_device *device); /* does nothing unless a neighbour waits; did it ring the arbiter? */
void vg_gate_become_busy(struct vg_device *device, uint64_t now_ns);
/* Under the locks of all works, too: everything has completed. Was anything outstanding before? Then the arbiter is
 * to be rung, if it wants to be. */
bool vg_gate_become_idle(struct vg_device *device, uint64_t now_ns);
void vg_gate_ring_edge(struct vg_device *device);
void vg_gate_wake_helper(struct vg_device *device); /* if it rests: work begins, or may, or somebody waits */
void vg_gate_wait_begins(struct vg_device *device, uint64_t now_ns);
void vg_gate_wait_ends(struct vg_device *device, uint64_t begun_ns, uint64_t now_ns);
void vg_gate_report_news(struct vg_device *device, uint64_t done_ns, uint64_t launches); /* since the last time */
void vg_gate_report_again(struct vg_device *device); /* on the page of another daemon */

#endif
