/*
 * state.h - the state of a device's arbiter; for sources of this folder only. Everything is guarded by the one mutex.
 *
 * There may be a thousand processes of which few do anything. So a round reads only the pages that may have changed in
 * a way that matters (due), and writes only to those of slices whose decisions have changed. All others get their
 * heartbeat, a part at a time, once per heartbeat period, and are read then; those that have been calm for long get
 * none and are not read: their control page says so (unread), and they ring when their page changes.
 */
#ifndef VG_ARBITER_STATE_H
#define VG_ARBITER_STATE_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "arbiter/arbiter.h"
#include "arbiter/device.h"
#include "arbiter/memory.h"
#include "arbiter/record.h"
#include "arbiter/thread_priority.h"
#include "arbiter/trace.h"
#include "base/prim.h"
#include "base/run_time.h"

/* Some leases: longer than a thread at an open gate waits for a processor. */
#define VG_STILL_NS (20 * VG_NS_PER_MS)
#define VG_BEAT_PROCESSES 128 /* given a heartbeat in one round, and read */
#define VG_CALM_BEATS 8 /* a page calm for this many heartbeats is left unread; its process learns it from `unread` */
/* Then it is read twice more: a change that it made without having seen that is there by then. */
#define VG_REST_BEATS (VG_CALM_BEATS + 2)

/* Where all processes rest, none is due a heartbeat: rounds and heartbeats are so many times as far apart. The core
 * must still be stepped more often than every 100 ms: a longer step is taken for one in which the host stood still, and
 * no debt would be paid off by idle time. */
#define VG_REST_PERIODS 4

/* Every so many heartbeats those that rest are read all the same: a program may have closed its doorbell. */
#define VG_SWEEP_BEATS 100

/* What is due for a process in the next round, a set of bits. */
#define VG_DUE_PAGE 1     /* its page has changed, or may change without its doorbell */
#define VG_DUE_CLOCK 2    /* its page does not change while it waits: only its time is counted */
#define VG_DUE_DOORBELL 4 /* its doorbell is to be armed again: it rang too often */

/* Time that a tenant accumulates. While a span lasts, it is counted by the clock; its end may be reported late and with
 * an earlier time, that of the device. Then more has been counted than there was, and as much of the next span is not
 * counted again. */
struct vg_span {
  uint64_t total_ns, since_ns; /* as last read from its page */
  uint64_t told_ns;            /* both together, when it was last counted */
  uint64_t counted_ns;         /* believed: grows no faster than the clock, and never falls */
  uint64_t left_out_ns;        /* told, and not to be counted: of gaps, in which the arbiter stood still; modulo 2^64 */
};

/* More of what it says is going to be counted. */
static inline bool vg_span_is_late(const struct vg_span *span) {
  return (int64_t)(span->told_ns - span->left_out_ns - span->counted_ns) > 0;
}

struct vg_memory_shown { /* as published in the control page */
  uint64_t limit_bytes, slice_used_bytes, granted_bytes, coast_bytes;
  uint64_t want_deadline_ns, reclaim_bytes, reclaim_deadline_ns, reclaim_serial;
  uint64_t pinned_limit;
  uint32_t want_answered, pressure;
};

struct vg_reported { /* by a process, validated: the core's inputs are summed up from it */
  uint64_t drained_ns, drain_expected_ns, overdue_ns;
  uint32_t waiting, passed_serial;
  bool outstanding, quiet, gave_up_while_waiting, noticed;
};

struct vg_process {
  uint64_t id;
  int index;                   /* in the arbiter's table */
  struct vg_core_slice *slice; /* its place in the core stays while it has processes */
  struct vg_process *next;     /* of the same slice */
  struct vg_control_header *header;
  struct vg_control_device *control;
  const struct vg_report_device *report;
  int doorbell_fd;
  struct vg_memory_row memory;
  struct vg_memory_shown memory_shown;
  uint64_t pinned_bytes; /* last read from its page, bounded */
  uint32_t word;         /* the gate word in its control page */
  uint32_t coast_version;
  /* last read from its page, validated */
  uint64_t counted_ns; /* its time is counted up to here */
  uint64_t settled_ns; /* until then, what it reports may be of the last gap */
  struct vg_span busy, active;
  uint64_t ahead_ns; /* time with work outstanding that need not be counted: it may have been, see pages.c */
  uint64_t runs_read, run_end_ns, unshown_ns; /* see overlap.h */
  bool has_unread_runs, has_lost_runs;
  struct vg_reported reported;
  uint64_t done_ns, launches, waited_ns, peak_bytes, denied;
  uint64_t done_left_out_ns; /* reported, and not to be counted: of gaps; modulo 2^64 */
  uint32_t contexts, wait_counts[VG_WAIT_BUCKETS];
  bool is_unread;       /* its control page says so */
  bool may_run;         /* it may have work that it has not reported: launches at a SOLO gate leave no trace */
  bool rang;            /* since its page was read, or since it was revived */
  uint64_t still_ns;    /* time for which threads waited at an open gate and nothing was launched */
  uint64_t revived_ns;  /* when its doorbell alone ended that */
  bool locked;          /* its pages are kept in RAM */
  bool answers;         /* at work when its gate was closed: the drain waits for its answer */
  uint32_t residence;   /* in its control page, */
  uint32_t move_word;   /* and this */
  uint64_t calls;       /* as last read */
  bool has_turn;        /* the lane is apart, and the lease is this one's: see turns.h */
  uint64_t turns_ns;    /* leases that it had to itself */
  uint64_t own_busy_ns; /* its part of the arbiter's busy_ns */
  uint64_t let_ns;      /* when launches were last let through its closed gate, see gang.c */
  /* see links.h */
  uint64_t copy_bytes[VG_COPY_DIRECTIONS];
  uint32_t copies_delayed[VG_COPY_DIRECTIONS];
  uint8_t copies_lately[VG_COPY_DIRECTIONS]; /* for so many windows more it counts as copying */
};

struct vg_lane { /* the arbiter's state beside each slice of the core */
  struct vg_process *first;
  /* see overlap.h */
  struct vg_runs ran;
  uint32_t runs_read;  /* in this round */
  uint64_t more_ns;    /* of its processes' time, since the last round */
  uint64_t excess_ns;  /* of it, beyond what the clock had */
  uint64_t overlap_ns; /* ran at the same time, and has not been taken off */
  uint64_t credit_ns;  /* how much may be taken off what the clock had */
  bool stale;          /* the reports of its processes must be summed up again */
  bool counted_ahead;  /* since the last step, also by what was read with a heartbeat */
  bool draining;       /* after the last round */
  /* of several processes, see turns.h */
  bool apart;                 /* the lease is one process's alone */
  uint64_t together_until_ns; /* until then it is not */
  uint64_t turns_ns;          /* turns_ns of the process that had the last turn, when that began */
  uint64_t ring_window_ns;
  uint32_t arms; /* of its processes' doorbells, in the present window */
  int arm_index; /* the process whose doorbell is armed first in the next window */
  /* see links.h: in the present window */
  uint64_t copied_bytes[VG_COPY_DIRECTIONS];
  bool delays_copies[VG_COPY_DIRECTIONS];
  uint64_t copy_demand[VG_COPY_DIRECTIONS]; /* as of the last window, in bytes per ms */
  /* of a gang, see gang.c */
  bool in_gang;
  uint64_t gang_id;            /* of the slice, as on the board */
  uint32_t others_collectives; /* launched on the device of the gang that is furthest */
  uint64_t others_overdue_ns;  /* when work on another one was last seen to be overdue */
  uint64_t overdue_since_ns;   /* work on any of them has been overdue since then */
  uint64_t let_work_ns;        /* so much was let through at once, the last time */
  bool others_idle_wants;      /* threads wait at the gate of another one, which has no work */
  bool own_wants, own_outstanding;
  uint32_t residence; /* not 0: the number of its present departure */
  uint32_t move_word; /* 0: it was not asked to move its memory */
  /* as published in the control pages */
  uint32_t word, neighbour_waits, watch, min_milli, max_milli, residence_shown, move_word_shown;
  uint64_t bound_ns;
};

struct vg_arbiter {
  pthread_mutex_t mutex;
  pthread_t thread;
  bool running, stop;
  int epoll_fd, timer_fd, wake_fd;
  struct vg_core core;
  /* by the core's slices */
  struct vg_lane lanes[VG_SLICES_MAX];
  struct vg_memory_slice memory_slices[VG_SLICES_MAX];
  uint32_t waiting[VG_SLICES_MAX]; /* threads at the gate */
  /* by process index; an index is free where processes[] is NULL */
  struct vg_process *processes[VG_PROCESSES_MAX];
  uint64_t ids[VG_PROCESSES_MAX]; /* beside them, since they are looked for by id */
  uint8_t due[VG_PROCESSES_MAX];
  uint8_t calm[VG_PROCESSES_MAX]; /* heartbeats since anything was due; VG_REST_BEATS at most */
  uint8_t lane_of[VG_PROCESSES_MAX];
  int process_end; /* beyond the last index in use */
  int beat_index;  /* the process whose heartbeat is next */
  int beat_parts;  /* rounds in which all that do not rest are served; 0: all rest */
  uint32_t beats;  /* times that the table was served */
  /* for how long processes had work outstanding: their sum; what they have been told, and how many it then was */
  uint64_t busy_ns, busy_shown_ns;
  uint32_t busy_count;
  bool beat_all; /* those that rest are served as well: timetables have changed, or it is time to look at them */
  uint64_t beat_due_ns;
  uint64_t links_ns, links_due_ns; /* when the links were last divided, and are again */
  bool paces_copies;
  uint64_t round_due_ns;
  uint32_t departure; /* the number of the last one */
  uint32_t moves;     /* asked of slices */
  bool hurry;         /* a closed gate needs no answer: the next round is due at once */
  bool memory_stale;
  uint64_t memory_due_ns;
  uint64_t space_bytes;   /* as in memory.h */
  uint32_t coast_version; /* grows when slices or attachments change: timetables must be rewritten */
  uint32_t coast_beaten;  /* the version for which beat_all was last set */
  uint32_t coast_made;    /* the version of coast_slots, which is by the core's slices */
  struct vg_coast_slot coast_slots[VG_SLICES_MAX];
  struct vg_thread_priority thread_priority; /* the thread's own; others read single values */
  uint64_t locked_bytes, unlocked_bytes;
  uint64_t timer_ns; /* when the thread asked to run */
  uint64_t late_count, late_max_ns;
  struct vg_trace trace;
  struct vg_recorder recorder;
};

static inline struct vg_lane *vg_lane_of(struct vg_arbiter *arbiter, const struct vg_core_slice *slice) {
  return &arbiter->lanes[slice - arbiter->core.slices];
}

/* Ends a call from another thread, which holds the mutex: the arbiter's thread looks at what is new. Returns result. */
static inline int vg_arbiter_leave(struct vg_arbiter *arbiter, int result) {
  pthread_mutex_unlock(&arbiter->mutex);
  vg_prim_eventfd_ring(arbiter->wake_fd);
  return result;
}

#endif
