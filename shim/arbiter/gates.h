/*
 * gates.h - opening and closing gates, drains, and the rescue of work that cannot end. Mirrors models/arbiter/gates.py.
 * Pure.
 */
#ifndef VG_ARBITER_GATES_H
#define VG_ARBITER_GATES_H
#include "arbiter/device.h"

/* A new gate word: the next epoch, and VG_GATE_*. */
static inline void vg_core_set_word(struct vg_core_slice *slice, uint32_t gate_state) {
  uint32_t epoch = (slice->out.word >> VG_GATE_EPOCH_SHIFT) + 1;
  slice->out.word = epoch << VG_GATE_EPOCH_SHIFT | gate_state;
}

/* New open words are rate-limited, whatever the page reports: the time from which on the slice may be given one. */
static inline uint64_t vg_core_may_open_from(const struct vg_core_slice *slice) {
  uint64_t burst_ns = (VG_CORE_RENEWALS - 1) * VG_CORE_RENEWAL_NS;
  return slice->gate.renewed_ns > burst_ns ? slice->gate.renewed_ns - burst_ns : 0;
}

static inline bool vg_core_may_open(const struct vg_core_slice *slice, uint64_t now_ns) {
  return vg_core_may_open_from(slice) <= now_ns;
}

void vg_core_open_gate(struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns);
void vg_core_close_gate(struct vg_core_slice *slice, uint64_t now_ns);
/* A word can be given up once: a slice that wants the device again is given a new one. */
void vg_core_renew_word(const struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns);
/* Others may run beside the work that it still has outstanding. */
void vg_core_let_overlap(struct vg_core_slice *slice, uint64_t now_ns);
/* From when on the next slice may run beside one that drains: a moment before the drain is expected to end, so that
 * waking up costs no device time, or when it is late. */
uint64_t vg_core_overlap_from(const struct vg_core *core, const struct vg_core_slice *slice);
/* Which slices have drained, which may be overlapped by now, and which have overrun. */
void vg_core_note_drains(struct vg_core *core, uint64_t now_ns);
/* Work may wait for something that a thread at the closed gate has yet to launch: it would never end, and be charged
 * until no bucket is left. So a gate behind which work has not drained for long is opened for a moment now and then,
 * whatever else runs. Long kernels gain nothing by it: the bound on outstanding work holds their next launch back. */
void vg_core_rescue(struct vg_core *core, uint64_t now_ns);

#endif
