/*
 * core.h - the core of the arbiter, its decisions, pure: no clock, no pages, no system calls. arbiter.c (the thread)
 * fills the inputs, calls vg_core_step() with the time, and publishes the outputs; tests do the same with a fake clock.
 * models/arbiter/policy.py is the same policy as a reference model: equal inputs give equal decisions (tests/core).
 *
 * Algorithm (DESIGN D6): a slice is free or saturating, by what it does. Free: it leaves gaps, or has just come; its
 * gate is open, the hardware slices time between it and whatever else runs, and it is charged for completed work.
 * Saturating: it always wants the device; such slices take turns in one slot by leases, the smallest virtual time first
 * (start-time fair queueing), and are charged the time that free ones have left. A lease is extended rather than
 * granted anew, given up early by a holder with nothing to run, charged after it has drained, and open-ended while
 * nobody else wants the slot; a holder that does not drain in time keeps its gate shut while the next one's opens: the
 * hardware slices between them and the time is split. What a slice is due follows from water-filling everybody's demand
 * into minima, priorities, weights and maxima. Whoever has had more waits as long as a free slice that wants to run has
 * had less. Maxima are token buckets.
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
  VG_CORE_OVERLAP,  /* gate closed, work still outstanding, nobody waits for it */
};

struct vg_core_slice {
  uint64_t id;
  bool present;
  struct vg_slice_params params;
  /* inputs */
  bool attached;              /* has at least one process */
  bool wants;                 /* a launching thread waits at the closed gate */
  bool outstanding;           /* work outstanding */
  bool quiet;                 /* every process has given up the present word (open) or drained it (closed) */
  bool gave_up_while_waiting; /* a process has given up the present word while a thread waits */
  bool noticed;               /* some process has noticed the present closed word: not a stopped one */
  bool gang_turns;            /* a gang's follower: its leader takes turns in the slot, so it does as well */
  bool gang_go;               /* a gang's follower: its leader's gate is open */
  bool gang_stop;             /* a gang's leader: a follower is to make room (its gang_veto) */
  bool gang_busy;             /* a gang's leader: work is outstanding on another of its devices */
  uint32_t running;           /* processes with work outstanding: the hardware divides its time by contexts */
  uint64_t drained_ns;        /* when quiet under a closed word: the last process's drain */
  uint64_t drain_expected_ns; /* under a closed word: when all processes will have drained; 0 = no forecast */
  uint64_t busy_total_ns;     /* monotone: device time with work outstanding, as reported */
  uint64_t active_total_ns;   /* monotone: time with work outstanding or a thread at the gate */
  uint64_t done_total_ns;     /* monotone: calibrated cost of completed work, as told */
  /* outputs */
  uint32_t word;         /* the gate word */
  uint64_t lease_end_ns; /* 0 = open end */
  uint64_t bound_ns;
  uint32_t neighbour_waits; /* VG_NOBODY_WAITS .. */
  uint32_t watch;           /* VG_WATCH_* */
  bool gang_veto;           /* a gang's follower: it is to make room for others on its device */
  uint32_t entitlement_ppm; /* what it is due, in parts of a million of the device */
  uint32_t shown_ppm;       /* the same as people are to see it: alone on the device all of it */
  int64_t lag_ns;           /* what it has had less than that */
  /* state */
  enum vg_core_state state;
  bool saturating;
  bool overdrawn;      /* of the latency class: it is not served first, since it has had too much */
  bool limited;        /* its cap bucket was empty and is not nearly full yet */
  bool has_precedence; /* served before everybody else, since its class is latency */
  bool throttled;      /* a free slice whose gate is shut: for its cap, or since it has had too much */
  bool overran;        /* has been counted as an overrun since its gate was shut */
  bool was_active;     /* to see a burst begin */
  int64_t free_lag_ns;
  int64_t owed_ns; /* free: what it has had less than its minimum */
  int64_t cap_ns;
  int64_t guarantee_ns; /* what is left of its minimum; beyond that it borrows */
  int64_t charged_ns;
  uint64_t virtual_ns;
  uint64_t grant_ns;
  uint64_t close_ns;
  uint64_t late_ns;   /* the longest that its work has outlasted its gate lately */
  uint64_t rescue_ns; /* overlapping: when the gate is opened or closed again for a moment, see rescue() */
  uint64_t served;    /* order of grants, for ties */
  bool holds;         /* free: the gates of others are shut for it */
  int64_t turn_credit_ns;
  int64_t turn_least_ns;      /* what the present turn costs at least */
  int64_t turn_used_ns;       /* charged for it so far */
  uint64_t renewed_ns;        /* token bucket of renewed words: the time at which it is full again */
  uint64_t reportable_ns;     /* busy by the clock, and not told as completed yet */
  uint64_t reported_total_ns; /* of done_total_ns, as of the last step */
  uint64_t done_ns;           /* completed work that can be true */
  int64_t unpaid_ns;          /* saturating: half of what it tells that it has completed, and not charged */
  int64_t over_cap_ns;        /* as much, in full, that its maximum has not been charged */
  int64_t remittable_ns;      /* of what it told, as much as may not be charged */
  uint64_t last_active_ns;
  uint64_t deadline_ns;                       /* of a latency slice's present burst */
  uint64_t busy_seen_ns, active_seen_ns;      /* of the totals, in earlier steps */
  uint64_t done_seen_ns, settled_ns;          /* completed work that has been settled, and when */
  int64_t provisional_ns;                     /* charged since then */
  int64_t outstanding_ns;                     /* as much at the most */
  int64_t alone_ns;                           /* with work outstanding since then while nobody else had or could */
  uint64_t done_reported_ns;                  /* completed work up to the last step */
  uint64_t reported_at_ns, reported_after_ns; /* when it grew last or nothing ran; how long it had not */
  uint64_t recent_run_ns,
      recent_reported_ns;   /* lately with work outstanding (if saturating: alone), completed in that */
  int64_t over_reported_ns; /* told beyond its contexts' part, while nobody who saturates ran */
  int64_t remitted_ns;      /* of that, in this step: it is not charged */
  bool was_outstanding;
  bool beside_slot;          /* has had work outstanding while the slot was occupied, since settled_ns */
  uint64_t busy_ns;          /* in this step */
  uint32_t contexts;         /* that ran in this step */
  uint32_t demand_ppm;       /* work / (work + idle) */
  uint64_t work_ns, idle_ns; /* lately */
  int64_t window_work_ns;    /* in the present window */
  uint64_t window_idle_ns;
  struct vg_slice_stats stats; /* charged_ns, borrowed_ns, grants, early_releases, overruns */
};

struct vg_core {
  struct vg_arbiter_params params;
  struct vg_core_slice slices[VG_SLICES_MAX];
  int slice_count; /* slots in use or once used */
  uint32_t regime; /* VG_REGIME_* */
  uint64_t last_ns;
  uint64_t window_ns; /* when the present window of demands began */
  uint64_t served;
  uint64_t floor_ns;           /* virtual time of the slot */
  uint32_t slot_ppm;           /* entitlement of all saturating slices together */
  int64_t slot_lag_ns;         /* what the saturating ones together have had less than they were due */
  int64_t free_used_ns;        /* by free ones, to be taken from what the holder is charged */
  int64_t unexplained_ns;      /* while several ran: busy, and nobody has completed anything in it */
  int64_t excess_ns;           /* while only free ones ran: told, and nobody was busy for so long */
  uint64_t available_ns;       /* while only free ones ran: lately the time with work outstanding */
  uint64_t all_reported_ns;    /* completed in that, as they tell */
  bool witnessed;              /* those who saturate say what they complete */
  uint32_t least_reported_ppm; /* by the free one who says least of its time */
  bool slot_occupied;          /* in the time that is being charged */
  int lately;                  /* slices that have been active lately, as of last_ns */
  bool vacated;                /* the slot is kept empty for somebody who is short */
  uint64_t put_off_ns;         /* it is empty until then, for whoever comes back by then; 0: for nobody */
};

void vg_core_init(struct vg_core *core, const struct vg_arbiter_params *params, uint64_t now_ns);
struct vg_core_slice *vg_core_find(struct vg_core *core, uint64_t id); /* NULL: not there */
/* Creates or changes a slice, in force with the next step; NULL when all slots are taken. */
struct vg_core_slice *vg_core_set(struct vg_core *core, uint64_t id, const struct vg_slice_params *given);
void vg_core_remove(struct vg_core *core, uint64_t id);
/* Decides; returns when it wants to be called again at the latest (VG_CORE_NEVER: only when something happens). */
uint64_t vg_core_step(struct vg_core *core, uint64_t now_ns);
/* The static timetable for coasting: of each of the core's slices its part of the period; empty: it is not attached,
 * or paused. */
void vg_core_coast(const struct vg_core *core, struct vg_coast_slot *ret_slots);

#endif
