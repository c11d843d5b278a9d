/*
 * core.h - the core of the arbiter, its decisions, pure: no clock, no pages, no system calls. arbiter.c (the thread)
 * fills the inputs, calls vg_core_step() with the time, and publishes the outputs; tests do the same with a fake clock.
 * models/arbiter/ is the same policy as a reference model: equal inputs give equal decisions (tests/arbiter).
 *
 * Algorithm (DESIGN D6): a slice is free or saturating, by its demand. Free: it leaves gaps, or has just arrived; its
 * gate is open, the hardware time-slices between it and whatever else runs, and it is charged for completed work.
 * Saturating: it always wants the device; such slices take turns in one slot by leases, the smallest virtual time first
 * (start-time fair queueing), and are charged the time that free slices have left. A lease is extended rather than
 * granted again, given up early by a holder with nothing to run, charged after it has drained, and open-ended while no
 * other slice wants the slot. When a holder does not drain in time, its gate stays closed and the gate of the next one
 * opens: the hardware time-slices between them and the time is split. Entitlements follow from water-filling all
 * demands into minima, priorities, weights and maxima. A slice that has used more than its entitlement waits as long as
 * a free slice that wants to run has used less than its own. Maxima are token buckets.
 */
#ifndef VG_ARBITER_CORE_H
#define VG_ARBITER_CORE_H
#include <stdbool.h>
#include <stdint.h>

#include "arbiter/arbiter.h"

#define VG_CORE_NEVER UINT64_MAX
#define VG_CORE_COAST_PERIOD_US 20000

enum vg_core_state {
  VG_CORE_SHUT,     /* gate closed, nothing outstanding */
  VG_CORE_OPEN,     /* gate open: a free slice, or the holder of the slot */
  VG_CORE_DRAINING, /* gate closed, work outstanding, the slot waits for it */
  VG_CORE_OVERLAP,  /* gate closed, work still outstanding, the slot does not wait for it */
};

/*
 * A slice on the device. The nested structs differ in when their fields are written: each says when, and by what. The
 * reference model (models/arbiter/model.py) has the same names, without those of the structs or after them
 * (free_lag_ns).
 */
struct vg_core_slice {
  uint64_t id;
  bool present;
  bool saturating; /* takes turns in the slot; else free */
  struct vg_slice_params params;
  /* What the slice's processes report, written before each step by pages.c and gang.c; a step takes back wants, quiet
   * and drain_expected_ns when it opens or closes the gate. */
  struct {
    bool attached;              /* has at least one process */
    bool wants;                 /* a launching thread waits at the closed gate */
    bool outstanding;           /* work is outstanding */
    bool quiet;                 /* every process has given up the present word (open) or drained it (closed) */
    bool gave_up_while_waiting; /* a process has given up the present word while one of its threads waits */
    bool noticed;               /* some process has noticed the present closed word: not a stopped one */
    bool counted_ahead;         /* the time that is reported moves, within what has been counted: see vg_span */
    bool gang_turns;            /* a gang's follower: its leader takes turns in the slot, so it does as well */
    bool gang_go;               /* a gang's follower: its leader's gate is open */
    bool gang_stop;             /* a gang: it is to stop for another of its devices (gang_veto there) */
    bool gang_busy;             /* a gang's leader: work is outstanding on another of its devices */
    uint32_t running;           /* processes with work outstanding: the hardware divides its time by contexts */
    uint64_t drained_ns;        /* when quiet under a closed word: the last process's drain */
    uint64_t drain_expected_ns; /* under a closed word: when all processes will have drained; 0 = no forecast */
    uint64_t busy_total_ns;     /* monotone: device time with work outstanding, as reported */
    uint64_t active_total_ns;   /* monotone: time with work outstanding or a thread at the gate */
    uint64_t done_total_ns;     /* monotone: calibrated cost of completed work, as reported */
  } in;
  /* What a step decides, published after it by pages.c and gang.c. */
  struct {
    uint32_t word;         /* the gate word */
    uint64_t lease_end_ns; /* 0 = open end */
    uint64_t bound_ns;
    uint32_t neighbour_waits; /* VG_NO_NEIGHBOUR_WAITS .. */
    uint32_t watch;           /* VG_WATCH_* */
    bool gang_veto;           /* a gang: it is to stop on its other devices, see must_stop() in outputs.c */
    uint32_t entitlement_ppm; /* in parts of a million of the device */
    uint32_t shown_ppm;       /* the entitlement as users see it: alone on the device all of it */
    int64_t lag_ns;           /* entitlement minus usage */
  } out;
  /* The gate, written when it is opened or closed, and as the work behind it drains. */
  struct {
    enum vg_core_state state;
    bool overran; /* has been counted as an overrun since the gate was closed */
    bool cut_off; /* work was outstanding when the gate was closed, and it has not been opened since */
    uint64_t grant_ns;
    uint64_t close_ns;
    uint64_t late_ns;    /* the longest that work has outlasted the gate; fades with each close */
    uint64_t rescue_ns;  /* when the gate is opened or closed again for a moment: rescue(), vg_core_is_rescued() */
    uint64_t renewed_ns; /* token bucket of open words: the time at which it is full again */
    uint64_t served;     /* order of grants, for ties */
  } gate;
  /* The account of a saturating slice in the slot, from when it joins the slot until it leaves. */
  struct {
    uint64_t virtual_ns;
    int64_t unpaid_ns;   /* half of the completed work that it reports, less what it has been charged */
    int64_t over_cap_ns; /* all of it, less what its maximum has been charged */
  } slot;
  /* A free slice's deficit and what that gives it, written in each step. */
  struct {
    int64_t lag_ns;       /* entitlement minus usage; what a slice that leaves the slot takes along */
    int64_t owed_ns;      /* minimum minus usage */
    bool overdrawn;       /* latency class: it has used more than its guarantee and has no precedence */
    bool has_precedence;  /* latency class: it is the slice that is served before all others now */
    bool throttled;       /* the gate is closed: for its maximum, or since it has used more than its entitlement */
    bool holds;           /* the gates of others are closed for it */
    uint64_t deadline_ns; /* latency class: of its present burst */
  } free;
  /* A turn that keeps others waiting, from its begin on; credit_ns is the token bucket of turns without work. */
  struct {
    int64_t credit_ns;
    int64_t least_ns; /* the least that the present turn costs */
    int64_t used_ns;  /* charged for it so far */
  } turn;
  /* Token buckets, filled and charged in each step. */
  struct {
    int64_t cap_ns;       /* of the maximum */
    int64_t guarantee_ns; /* of the minimum; usage beyond it is borrowed */
    bool limited;         /* cap_ns was empty and is not nearly full yet */
  } bucket;
  /* The provisional account of a free slice since settled_ns, when its charge was last corrected by completed work. */
  struct {
    uint64_t settled_ns;
    uint64_t done_seen_ns;  /* completed work that has been settled */
    int64_t provisional_ns; /* charged: its contexts' part of the time with work outstanding */
    int64_t outstanding_ns; /* all time with work outstanding: upper bound of what that charge may be revised to */
    int64_t alone_ns;       /* of it, while no other slice had work outstanding or could have */
    bool beside_slot;       /* some of it while the slot was occupied */
  } account;
  /* Completed work as the slice reports it, and how far that is believed; written in each step. */
  struct {
    uint64_t reportable_ns;      /* time with work outstanding that has not been reported as completed work yet */
    uint64_t reported_total_ns;  /* done_total_ns as of the last step */
    uint64_t done_ns;            /* completed work that is possible in the time that there was */
    uint64_t done_reported_ns;   /* done_ns as of the last step */
    uint64_t reported_at_ns;     /* when done_ns grew last, or nothing ran */
    uint64_t reported_after_ns;  /* how long it had not grown before that */
    uint64_t recent_run_ns;      /* recent time with work outstanding; saturating: while no other slice had any */
    uint64_t recent_reported_ns; /* completed work reported for that time */
    int64_t over_reported_ns;    /* reported beyond its contexts' part, while no saturating slice ran */
    int64_t remittable_ns;       /* the most of what it reported that may be remitted */
    int64_t remitted_ns;         /* remitted in this step: it is not charged */
  } report;
  /* Demand: work / (work + idle), measured once in a window. */
  struct {
    uint32_t ppm;
    uint64_t work_ns, idle_ns; /* averaged over recent windows */
    int64_t window_work_ns;    /* in the present window */
    uint64_t window_idle_ns;
  } demand;
  /* The present step, and what the last one saw. */
  struct {
    uint64_t busy_ns;                      /* time with work outstanding in this step */
    uint32_t contexts;                     /* that ran in this step */
    uint64_t busy_seen_ns, active_seen_ns; /* busy_total_ns and active_total_ns as of the last step */
    bool was_outstanding;
    bool was_running; /* some of it on this device */
    bool was_active;  /* to see a burst begin */
    uint64_t last_active_ns;
  } step;
  int64_t charged_ns;
  struct vg_slice_stats stats; /* charged_ns, borrowed_ns, grants, early_releases, overruns */
};

struct vg_core {
  struct vg_arbiter_params params;
  struct vg_core_slice slices[VG_SLICES_MAX];
  int slice_count; /* places in slices that are or were in use */
  uint32_t regime; /* VG_REGIME_* */
  uint64_t last_ns;
  uint64_t window_ns; /* when the present window of demands began */
  uint64_t served;
  uint64_t floor_ns;           /* virtual time of the slot */
  uint32_t slot_ppm;           /* entitlements of all saturating slices together */
  int64_t slot_lag_ns;         /* entitlement minus usage of all saturating slices together */
  int64_t free_used_ns;        /* used by free slices, to be deducted from what the holder is charged */
  int64_t unexplained_ns;      /* while several ran: busy time that no slice's completed work explains */
  int64_t excess_ns;           /* while only free slices ran: completed work reported beyond the busy time */
  uint64_t available_ns;       /* while only free slices ran: recent time with work outstanding */
  uint64_t all_reported_ns;    /* completed work reported for that time */
  bool slot_reports_work;      /* saturating slices report what they complete */
  uint32_t least_reported_ppm; /* by the free slice that reports least of its time */
  bool slot_occupied;          /* during the time that is being charged */
  int recent_active;           /* slices that are active or were lately, as of last_ns */
  bool slot_reserved;          /* the slot is kept empty for a slice that is short */
  uint64_t slot_hold_until_ns; /* the slot is kept empty until then, for a pausing slice; 0: it is not */
};

void vg_core_init(struct vg_core *core, const struct vg_arbiter_params *params, uint64_t now_ns);
struct vg_core_slice *vg_core_find(struct vg_core *core, uint64_t id); /* NULL: not there */
/* Creates or changes a slice, in force with the next step; NULL when all slots are taken. */
struct vg_core_slice *vg_core_set(struct vg_core *core, uint64_t id, const struct vg_slice_params *given);
void vg_core_remove(struct vg_core *core, uint64_t id);
/* One step; returns when the next one is due at the latest (VG_CORE_NEVER: only when something happens). */
uint64_t vg_core_step(struct vg_core *core, uint64_t now_ns);
/* The static timetable for coasting: the part of the period of each of the core's slices; empty for a slice that is not
 * attached, or paused. */
void vg_core_coast(const struct vg_core *core, struct vg_coast_slot *ret_slots);

#endif
