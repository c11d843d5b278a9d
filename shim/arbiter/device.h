/*
 * device.h - the state of one device in the core, and what all decisions ask about its slices. Mirrors
 * models/arbiter/device.py. Pure.
 */
#ifndef VG_ARBITER_DEVICE_H
#define VG_ARBITER_DEVICE_H
#include "arbiter/model.h"

/* A process that has not noticed its closed gate for this long is stopped (SIGSTOP, a debugger). */
#define VG_CORE_STOPPED_NS (50ull * VG_CORE_MS)

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
  bool slot_reports_work;      /* saturating slices report what they complete */
  uint32_t least_reported_ppm; /* by the free slice that reports least of its time */
  bool slot_occupied;          /* during the time that is being charged */
  int recent_active;           /* slices that are active or were lately, as of last_ns */
  bool slot_reserved;          /* the slot is kept empty for a slice that is short */
  uint64_t slot_hold_until_ns; /* the slot is kept empty until then, for a pausing slice; 0: it is not */
};

/* Keeps slot_ppm: the entitlements of the slot's slices together change when one of them does. */
void vg_core_sum_slot(struct vg_core *core);
/* Keeps recent_active. */
void vg_core_count_lately(struct vg_core *core);

/* Active now or less than VG_CORE_IDLE_NS ago. */
static inline bool vg_core_lately_active(const struct vg_core_slice *slice, uint64_t now_ns) {
  if (!slice->present || !slice->in.attached) return false;
  return vg_core_active(slice) || (slice->step.last_active_ns && now_ns < slice->step.last_active_ns + VG_CORE_IDLE_NS);
}

/* A thread waits at the closed gate, and what ran before the gate was closed has drained or been noticed. */
static inline bool vg_core_waits(const struct vg_core_slice *slice) {
  if (!vg_core_wants_to_run(slice) || slice->gate.state == VG_CORE_OPEN) return false;
  return slice->gate.state == VG_CORE_SHUT || slice->in.noticed;
}

/* Other slices have been active lately. */
static inline bool vg_core_others_active(const struct vg_core *core, const struct vg_core_slice *self) {
  return core->recent_active > vg_core_lately_active(self, core->last_ns);
}

bool vg_core_another_in_slot(const struct vg_core *core, const struct vg_core_slice *self);
/* Another saturating slice waits. */
bool vg_core_another_waits(const struct vg_core *core, const struct vg_core_slice *self);

/* May a saturating slice's work run beside others? A process that does not even notice that its gate was closed is
 * stopped: what it had launched is bounded and soon over, so it stops counting. */
static inline bool vg_core_shares_device(const struct vg_core_slice *slice, uint64_t now_ns) {
  if (!vg_core_in_slot(slice) || slice->gate.state == VG_CORE_SHUT) return false;
  return slice->gate.state != VG_CORE_OVERLAP || vg_core_is_open(slice) || slice->in.noticed ||
         now_ns < slice->gate.close_ns + VG_CORE_STOPPED_NS;
}

/* No other slice is attached or has work outstanding. */
bool vg_core_is_alone(const struct vg_core *core, const struct vg_core_slice *self);
/* A gang's leader beside another gang's: gangs take turns whatever their demand, since side by side each could wait on
 * one device for what the other one has. */
bool vg_core_leads_beside_others(const struct vg_core *core, const struct vg_core_slice *self);

#endif
