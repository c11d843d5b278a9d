/*
 * arbiter.h - the daemon's native side of a device: one thread that opens and closes the gates of the tenants and hands
 * out memory credit. build_shim.py hands this file to cffi (after abi/vg_abi.h); Python creates an arbiter per device,
 * adds and removes slices and processes, and reads counters. All calls may come from any thread and never wait for a
 * tenant. Calls return 0 or a negative errno.
 */
#ifndef VG_ARBITER_H
#define VG_ARBITER_H
#include <stdint.h>

#include "abi/vg_abi.h"

#define VG_SLICES_MAX 128     /* on a device */
#define VG_PROCESSES_MAX 1024 /* on a device */

struct vg_arbiter_params {
  uint64_t quantum_ns;     /* length of a lease, 5-10 ms */
  uint64_t quantum_min_ns; /* shortest lease worth granting */
  uint64_t bound_ns;       /* outstanding work allowed under a lease (2 ms) */
  uint64_t open_bound_ns;  /* outstanding work allowed while no other slice wants the device (20 ms) */
  uint64_t overrun_ns; /* how long after a lease's end the drain is waited for before the next slice overlaps (14 ms) */
  uint64_t latency_bound_ns;   /* outstanding work allowed beside a slice of the latency class (1 ms) */
  uint64_t lookahead_ns;       /* how long before the expected drain the next gate opens (0.1 ms) */
  uint64_t guarantee_depth_ns; /* depth of the guarantee bucket, times min (50 ms) */
  uint64_t cap_depth_ns;       /* depth of the cap bucket, times max (15 ms) */
  uint64_t heartbeat_ns;       /* period of the heartbeat (20 ms) */
  uint64_t memory_total_bytes; /* what the device has for tenants */
  uint64_t link_bytes_per_ms;  /* between host and device, in each direction; 0 = not known: copies are not paced */
  uint64_t memory_grace_ns;    /* how long a slice has to give back memory that it is asked for; 0: none is asked */
  uint64_t pinned_max_bytes;   /* host memory that the processes of a slice may pin together; 0 = no limit */
};

struct vg_slice_params {
  uint32_t min_milli;
  uint32_t max_milli;
  uint32_t weight;   /* of borrowed time; 0 = min_milli, at least 1 */
  uint32_t priority; /* borrowed time goes to the highest first, by weight among equals */
  uint32_t latency;  /* 1: the latency class: its guarantee is served first, at once */
  uint32_t gang;     /* VG_GANG_*: part of a slice with several shared devices */
  uint32_t paused;   /* 1: its gate stays closed, and it accrues nothing */
  uint32_t away;     /* 1: its memory is on the host (checkpointed): others may use the device's meanwhile */
  uint32_t rotates;  /* 1: its memory may leave the device: its launches are counted, and its calls noticed, always */
  uint32_t leaves;   /* 1: its memory leaves the device, is away or comes back: calls that need the device wait */
  uint32_t moves_itself;   /* 1: its process moves it, as vg_arbiter_slice_move() asks; else the driver does */
  uint32_t copy_min_milli; /* of the link between host and device, in each direction */
  uint32_t copy_max_milli; /* 0 = all of it */
  uint64_t mem_min_bytes;
  uint64_t mem_max_bytes;
};

/* How the device is shared at this moment (DESIGN D6). */
#define VG_REGIME_IDLE 0
#define VG_REGIME_SOLO 1
#define VG_REGIME_OPEN 2
#define VG_REGIME_THROTTLED 3
#define VG_REGIME_ARBITRATED 4

/* A slice's part in its gang on one device: the leader decides when the gang runs, followers open and close their gates
 * with it; open: no device could lead, so its gate stays open (vgpud/core/slices/gangs.py). */
#define VG_GANG_NONE 0
#define VG_GANG_LEADER 1
#define VG_GANG_FOLLOWER 2
#define VG_GANG_OPEN 3

/* What a slice is asked to give back of a device's memory, and what came of the last request. */
struct vg_slice_reclaim {
  uint64_t slice_id;
  uint64_t last_short_bytes; /* of its minimum, held by others when it was granted the last time */
  uint32_t shortages;        /* how often */
  uint64_t remaining_bytes;  /* of the open request: what has not come back yet; 0: none is open */
  uint64_t asked_bytes;
  uint64_t begin_ns;
  uint64_t deadline_ns;
  uint32_t end_count; /* requests that have ended */
  uint32_t was_late;  /* 1: the time of the last one was up before all had come back */
  uint64_t last_asked_bytes;
  uint64_t last_returned_bytes;
  uint64_t last_took_ns;
  uint32_t watchers; /* processes that receive requests */
};

struct vg_slice_stats {
  uint64_t charged_ns;   /* device time charged to the slice */
  uint64_t throttled_ns; /* time its threads spent at the closed gate */
  uint64_t grants;
  uint64_t early_releases;
  uint64_t overruns; /* leases whose holder had not drained overrun_ns after the end */
  uint64_t launches;
  uint64_t mem_held_bytes; /* credit handed out, and what is unattributed */
  uint64_t mem_used_bytes; /* reported by the processes, and what is unattributed */
  uint64_t mem_unattributed_bytes;
  uint64_t mem_peak_bytes;
  uint64_t mem_denied; /* refused requests for credit */
  uint32_t processes;
  uint32_t gate;              /* VG_GATE_* of now */
  uint32_t regime;            /* VG_REGIME_* of the device */
  uint32_t entitlement_milli; /* from minimum, maximum, weight and priority against all demands */
  int64_t lag_ns;             /* entitlement minus usage; negative: overdrawn */
  uint64_t borrowed_ns;       /* of charged_ns: beyond the guarantee */
  uint64_t drains;
  uint64_t drain_total_ns; /* from the gate's closing to the last completion */
  uint64_t drain_max_ns;
  uint64_t wait_counts[VG_WAIT_BUCKETS];          /* as in vg_report_device */
  uint64_t copy_bytes[VG_COPY_DIRECTIONS];        /* copied between host and device */
  uint64_t copy_bytes_per_ms[VG_COPY_DIRECTIONS]; /* that it may copy now; 0 = its copies are not paced */
  uint64_t pinned_bytes;                          /* host memory that its processes have pinned */
  uint64_t pinned_denied;                         /* how often those that are attached were refused more of it */
  /* of a slice that rotates */
  uint64_t last_work_ns;  /* CLOCK_MONOTONIC: when its launches, outstanding work or calls were last seen to change */
  uint32_t waiting_calls; /* since it leaves: threads that wait for its memory */
  uint32_t processes_in_driver; /* of processes: since it leaves, not all threads have left the driver, and one that is
                                 * there would block while the process is locked; else all */
  /* of one that moves its memory itself */
  uint32_t moved_word;    /* of vg_arbiter_slice_move(): the last one that its process has answered */
  uint32_t moved_state;   /* VG_MOVED_* */
  uint32_t stays_reason;  /* VG_STAYS_* */
  uint64_t movable_bytes; /* of mem_used_bytes: what leaves the device, or has left it */
  struct vg_slice_reclaim reclaim;
};

/* The part of the counters that is read ten times a second. */
struct vg_slice_usage {
  uint64_t slice_id;
  uint64_t charged_ns;
  uint32_t uncounted; /* 1: its processes have the device to themselves, and the solo gate counts nothing */
};

/* What happened, for `vgpu trace`. */
#define VG_TRACE_OPEN 1        /* value: the gate word */
#define VG_TRACE_CLOSE 2       /* value: the gate word */
#define VG_TRACE_DRAINED 3     /* value: ns from the close to the last completion */
#define VG_TRACE_OVERLAP 4     /* another slice runs beside a drain that has not ended */
#define VG_TRACE_WAITS 5       /* value: threads that wait at the gate */
#define VG_TRACE_OUTSTANDING 6 /* value: 1 work is outstanding, 0 none is */
#define VG_TRACE_LAUNCHES 7    /* value: launches so far */
#define VG_TRACE_CHARGED 8     /* value: device time charged so far, ns */
#define VG_TRACE_REGIME 9      /* slice_id 0; value: VG_REGIME_* */
#define VG_TRACE_LATE 10       /* slice_id 0; value: ns by which the arbiter's thread ran later than it had asked for */
struct vg_trace_event {
  uint64_t time_ns; /* CLOCK_MONOTONIC */
  uint64_t slice_id;
  uint32_t kind; /* VG_TRACE_* */
  uint32_t lost; /* events lost before this one, since the reader was too slow */
  uint64_t value;
};

struct vg_process_stats {
  uint64_t launches;
  uint64_t throttled_ns;
  uint64_t busy_ns;
  uint64_t mem_granted_bytes; /* credit granted since it attached, monotone; held is what was not returned */
  uint64_t mem_held_bytes;
  uint64_t mem_used_bytes;
  uint64_t mem_peak_bytes;
  uint64_t denied;
  uint32_t contexts;
  uint32_t waiting;
};

/* How the thread is scheduled: what the kernel has granted. */
#define VG_SCHEDULING_NORMAL 0 /* as any other thread */
#define VG_SCHEDULING_NICE 1   /* a nice value below that of other threads */
#define VG_SCHEDULING_FIFO 2   /* SCHED_FIFO: before every thread that is not real-time */

struct vg_arbiter_thread_state {
  uint32_t scheduling; /* VG_SCHEDULING_* */
  uint32_t steps_down; /* times that SCHED_FIFO was given back for a second, for too much use of a processor */
  uint64_t locked_bytes, unlocked_bytes; /* memory that the thread uses, in RAM for good or not (RLIMIT_MEMLOCK) */
  uint64_t late_count;                   /* times that it ran more than VG_LATE_NS later than it had asked for */
  uint64_t late_max_ns;
};
#define VG_LATE_NS 200000

struct vg_arbiter; /* opaque */

struct vg_arbiter *vg_arbiter_new(const struct vg_arbiter_params *params);
int vg_arbiter_start(struct vg_arbiter *arbiter); /* starts the thread */
void vg_arbiter_free(struct vg_arbiter *arbiter); /* stops and joins it; leaves the pages as they are: tenants coast */
int vg_arbiter_set_params(struct vg_arbiter *arbiter, const struct vg_arbiter_params *params);
int vg_arbiter_slice_set(struct vg_arbiter *arbiter, uint64_t slice_id, const struct vg_slice_params *params);
/* Asks the slice's process to have its memory there: VG_MOVE_*. Returns the word by which it is answered
 * (vg_slice_stats.moved_word), or a negative errno. */
int64_t vg_arbiter_slice_move(struct vg_arbiter *arbiter, uint64_t slice_id, uint32_t where);
int vg_arbiter_slice_remove(struct vg_arbiter *arbiter, uint64_t slice_id);
/* control and report are this device's pages, header the control header page; all stay mapped until process_remove.
 * held_bytes: credit that a re-attaching process holds already. The eventfd stays the caller's. */
int vg_arbiter_process_add(struct vg_arbiter *arbiter, uint64_t slice_id, uint64_t process_id,
                           struct vg_control_header *header, struct vg_control_device *control,
                           struct vg_report_device *report, int doorbell_fd, uint64_t held_bytes);
/* The same without a round for it: vg_arbiter_wake() after some of these. locked: the caller keeps the pages in RAM. */
int vg_arbiter_process_join(struct vg_arbiter *arbiter, uint64_t slice_id, uint64_t process_id,
                            struct vg_control_header *header, struct vg_control_device *control,
                            struct vg_report_device *report, int doorbell_fd, uint64_t held_bytes, int locked);
void vg_arbiter_wake(struct vg_arbiter *arbiter); /* a round is due */
int vg_arbiter_process_remove(struct vg_arbiter *arbiter, uint64_t process_id);
/* As process_remove, for a process that closed its connection and lives on: its place and its pages are free, and the
 * credit that it holds stays charged to its slice until vg_arbiter_slice_release(). ret_stats: its last counters. */
int vg_arbiter_process_disconnect(struct vg_arbiter *arbiter, uint64_t process_id, struct vg_process_stats *ret_stats);
/* Ends a charge that process_disconnect() has left. */
int vg_arbiter_slice_release(struct vg_arbiter *arbiter, uint64_t slice_id, uint64_t bytes);
/* Charges the slice with memory that its programs have beside the ledger (vgpud/core/devices/strangers.py compares with
 * the driver). */
int vg_arbiter_slice_unattributed(struct vg_arbiter *arbiter, uint64_t slice_id, uint64_t bytes);
/* So many bytes of the device are to be free beyond what the slices that are there hold or are guaranteed: one whose
 * memory is to come back from the host lacks them. They are asked back from those that borrowed them; 0: no more. */
int vg_arbiter_make_room(struct vg_arbiter *arbiter, uint64_t bytes);
int vg_arbiter_slice_stats(struct vg_arbiter *arbiter, uint64_t slice_id, struct vg_slice_stats *ret_stats);
/* All slices at once, in no order, without reading their pages; returns how many, at most capacity. */
int vg_arbiter_usage(struct vg_arbiter *arbiter, struct vg_slice_usage *ret_usage, int capacity);
/* Of all slices that were asked or short of memory at least once, in no order; returns how many, at most capacity. */
int vg_arbiter_reclaims(struct vg_arbiter *arbiter, struct vg_slice_reclaim *ret_reclaims, int capacity);
int vg_arbiter_process_stats(struct vg_arbiter *arbiter, uint64_t process_id, struct vg_process_stats *ret_stats);
void vg_arbiter_thread_state(struct vg_arbiter *arbiter, struct vg_arbiter_thread_state *ret_state);
/* Events are kept from the first `on` to the next `off`, some ten thousand of them: then the oldest are lost. */
int vg_arbiter_trace(struct vg_arbiter *arbiter, int on);
/* Takes the oldest events out; returns how many. They come in the order in which the arbiter noticed them: a drain's
 * time is that of the last completion, which may lie before. */
int vg_arbiter_trace_read(struct vg_arbiter *arbiter, struct vg_trace_event *ret_events, int capacity);
/* Records the inputs and decisions of the device's core into a file, from now on, for a replay (record.h). Only
 * while there are no slices: else -EBUSY. A negative fd ends it. The descriptor stays the caller's. */
int vg_arbiter_record(struct vg_arbiter *arbiter, int fd);

#endif
