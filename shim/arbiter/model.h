/*
 * model.h - the data of the arbiter's core: constants, slices, and what follows from one slice alone. Mirrors
 * models/arbiter/model.py. Pure.
 */
#ifndef VG_ARBITER_MODEL_H
#define VG_ARBITER_MODEL_H
#include <stdbool.h>
#include <stdint.h>

#include "arbiter/arbiter.h"

#define VG_CORE_NEVER UINT64_MAX
#define VG_CORE_MILLI 1000
#define VG_CORE_PPM 1000000
#define VG_CORE_MS 1000000ll
/* Limit of lags and debts: a single kernel of a minute must not keep its slice from running for an hour. */
#define VG_CORE_DEBT_MAX_NS (1000 * VG_CORE_MS)
/* Period of steps while several slices run. */
#define VG_CORE_TICK_NS (2ull * VG_CORE_MS)
/* Window over which demand is measured (averaged over about four). */
#define VG_CORE_WINDOW_NS (10ull * VG_CORE_MS)
/* A holder that has just been let in needs this long to wake up and launch before it can be called idle. */
#define VG_CORE_WAKE_GRACE_NS (VG_CORE_MS / 2)
/* Lag from which a slice is short; how much further behind than another one it must be, each by its own entitlement,
 * for the other one to begin waiting for it, and to keep waiting. */
#define VG_CORE_SHORT_NS VG_CORE_MS
#define VG_CORE_AHEAD_NS (4 * VG_CORE_MS)
#define VG_CORE_BACK_NS (2 * VG_CORE_MS)
/* A latency slice has precedence until it is this far ahead of its entitlement. */
#define VG_CORE_LATENCY_DEBT_NS (10 * VG_CORE_MS)
/* Completed work may be reported this long after the time in which it ran. */
#define VG_CORE_LATE_REPORTED_NS (20 * VG_CORE_MS)
#define VG_CORE_FAR_NS (1ll << 62)
/* How long work may outlast its gate before that is opened for a moment. */
#define VG_CORE_RESCUE_NS (50ull * VG_CORE_MS)
/* A slice inactive for this long is idle: its demand before that no longer counts. */
#define VG_CORE_IDLE_NS (50ull * VG_CORE_MS)
/* After this long without a step, tenants have followed their timetables (coast): the arbiter stood still. */
#define VG_CORE_STALLED_NS (100ull * VG_CORE_MS)
/* Token bucket of turns without work: cost of one, depth, time in which it fills by one (reported work fills it, too).
 */
#define VG_CORE_TURN_CREDIT_NS (VG_CORE_MS / 20)
#define VG_CORE_TURN_CREDITS 20
#define VG_CORE_TURN_REFILL_NS (100ull * VG_CORE_MS)
/* Token bucket of open gate words: depth, time in which it fills by one (reported work fills it faster). */
#define VG_CORE_RENEWALS 10
#define VG_CORE_RENEWAL_NS (1ull * VG_CORE_MS)

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
    bool gang_veto;           /* a gang: it is to stop on its other devices, see gang_veto() in outputs.c */
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
    uint64_t late_ns; /* the longest that work has outlasted the gate; fades with each close */
    uint64_t
        rescue_ns; /* when the gate is opened or closed again for a moment: vg_core_rescue(), vg_core_is_rescued() */
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

static inline uint64_t vg_core_least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static inline int64_t vg_core_min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t vg_core_max(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static inline int64_t vg_core_clamp_ns(int64_t ns, int64_t most_ns) {
  return ns > most_ns ? most_ns : ns < -most_ns ? -most_ns : ns;
}

static inline int64_t vg_core_scale_ns(uint64_t ns, uint32_t milli) {
  return (int64_t)(ns * milli / VG_CORE_MILLI);
}

static inline int64_t vg_core_part_of(uint64_t ns, uint32_t ppm) {
  return (int64_t)(ns * ppm / VG_CORE_PPM);
}

/* The time that an entitlement takes for a lag. */
static inline int64_t vg_core_due_time(int64_t lag_ns, uint32_t entitlement_ppm) {
  return lag_ns * VG_CORE_PPM / (int64_t)entitlement_ppm;
}

static inline int64_t vg_core_time_behind_ns(const struct vg_core_slice *slice) {
  return vg_core_due_time(slice->free.lag_ns, slice->out.entitlement_ppm);
}

/* The entitlement of an idle slice. */
static inline uint32_t vg_core_least_ppm(const struct vg_slice_params *params) {
  return params->min_milli ? params->min_milli * VG_CORE_MILLI : VG_CORE_MILLI;
}

static inline uint32_t vg_core_weight(const struct vg_core_slice *slice) {
  uint32_t weight = slice->params.weight ? slice->params.weight : slice->params.min_milli;
  return weight ? weight : 1;
}

static inline bool vg_core_is_uncapped(const struct vg_core_slice *slice) {
  return slice->params.max_milli >= VG_CORE_MILLI;
}

/* Its launches are counted, also when it is alone: of a gang for its collectives, of one that rotates to see it idle.
 */
static inline bool vg_core_is_counted(const struct vg_core_slice *slice) {
  return !vg_core_is_uncapped(slice) || slice->params.gang || slice->params.rotates;
}

static inline bool vg_core_is_open(const struct vg_core_slice *slice) {
  return (slice->out.word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
}

/* Its gate is closed, and work is outstanding behind it. */
static inline bool vg_core_drains(const struct vg_core_slice *slice) {
  return slice->gate.state == VG_CORE_DRAINING || slice->gate.state == VG_CORE_OVERLAP;
}

static inline bool vg_core_in_slot(const struct vg_core_slice *slice) {
  return slice->present && slice->saturating;
}

/* A paused slice wants nothing, even if threads wait at its gate. */
static inline bool vg_core_wants_to_run(const struct vg_core_slice *slice) {
  return slice->in.wants && !slice->params.paused;
}

static inline bool vg_core_active(const struct vg_core_slice *slice) {
  return slice->in.attached && (slice->in.outstanding || vg_core_wants_to_run(slice));
}

static inline bool vg_core_leads(const struct vg_core_slice *slice) {
  return slice->params.gang == VG_GANG_LEADER;
}

/* Part of a gang on a device whose arbiter follows that of another device. */
static inline bool vg_core_follows(const struct vg_core_slice *slice) {
  return slice->params.gang == VG_GANG_FOLLOWER;
}

/* Part of a gang whose devices run together. */
static inline bool vg_core_leads_or_follows(const struct vg_core_slice *slice) {
  return vg_core_leads(slice) || vg_core_follows(slice);
}

#endif
