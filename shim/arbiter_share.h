/*
 * arbiter_share.h - what a slice has had, what it wants and what it is due: charging, demands, entitlements. Parts of
 * arbiter_core.c's step, in files of their own; pure like it.
 */
#ifndef VG_ARBITER_SHARE_H
#define VG_ARBITER_SHARE_H
#include "arbiter_core.h"

#define VG_CORE_MILLI 1000
#define VG_CORE_PPM 1000000
#define VG_CORE_MS 1000000ll
/* A single kernel of a minute must not shut its owner out for an hour. */
#define VG_CORE_DEBT_MAX_NS (1000 * VG_CORE_MS)
/* How often shares are looked at while several run. */
#define VG_CORE_TICK_NS (2ull * VG_CORE_MS)
/* Demand is looked at so often, over about four times as long. */
#define VG_CORE_WINDOW_NS (10ull * VG_CORE_MS)

static inline bool vg_core_uncapped(const struct vg_core_slice *slice) {
  return slice->params.max_milli >= VG_CORE_MILLI;
}

static inline bool vg_core_active(const struct vg_core_slice *slice) {
  return slice->attached && (slice->outstanding || slice->wants);
}

static inline int64_t vg_core_scaled(uint64_t ns, uint32_t milli) {
  return (int64_t)(ns * milli / VG_CORE_MILLI);
}

static inline uint32_t vg_core_weight(const struct vg_core_slice *slice) {
  uint32_t weight = slice->params.weight ? slice->params.weight : slice->params.min_milli;
  return weight ? weight : 1;
}

/* The time that an entitlement takes for a lag. */
static inline int64_t vg_core_due_time(int64_t lag_ns, uint32_t entitlement_ppm) {
  return lag_ns * VG_CORE_PPM / (int64_t)entitlement_ppm;
}

bool vg_core_lately_active(const struct vg_core_slice *slice, uint64_t now_ns);
/* A waiting slice of the slot, other than self, that might run at once. */
bool vg_core_keeps_others_waiting(const struct vg_core *core, const struct vg_core_slice *self);
/* Charges the time that has passed since the last step to those who have had it. */
void vg_core_charge(struct vg_core *core, uint64_t now_ns);
void vg_core_note_activity(struct vg_core_slice *slice, uint64_t now_ns);
/* Once a window: what is its demand? */
void vg_core_measure_demand(struct vg_core_slice *slice);
void vg_core_entitle(struct vg_core *core, uint64_t now_ns);
/* Virtual time of the slot: the least of those who take turns; it never falls. A stopped one comes along: it would keep
 * the others from running for as long when it goes on. */
void vg_core_raise_floor(struct vg_core *core, uint64_t now_ns);

#endif
