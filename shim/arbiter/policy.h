/*
 * policy.h - the decisions about gates that a step is made of (step.c has their order); pure like it.
 */
#ifndef VG_ARBITER_POLICY_H
#define VG_ARBITER_POLICY_H
#include "arbiter/core.h"

/* A latency slice is served first until it is so far ahead of its due. */
#define VG_CORE_LATENCY_DEBT_NS (10 * VG_CORE_MS)
/* How long work may outlast its gate before that is opened for a moment. */
#define VG_CORE_RESCUE_NS (50ull * VG_CORE_MS)

/* ---- slices.c ---- */

bool vg_core_may_open(const struct vg_core_slice *slice, uint64_t now_ns);
void vg_core_open_gate(struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns);
void vg_core_close_gate(struct vg_core_slice *slice, uint64_t now_ns);
/* A word can be given up once: a slice that wants the device again is given a new one. */
void vg_core_renew_word(const struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns);
/* Others may run beside what it still has outstanding. */
void vg_core_overlap(struct vg_core_slice *slice, uint64_t now_ns);

/* ---- policy.c ---- */

void vg_core_note_drains(struct vg_core *core, uint64_t now_ns);
/* Which slices are free and which saturating: demands change once in a window, gangs at any time. */
void vg_core_judge_demands(struct vg_core *core, uint64_t now_ns);
void vg_core_forgive(struct vg_core *core);
void vg_core_note_debts(struct vg_core *core);
void vg_core_review_slot(struct vg_core *core);
void vg_core_review_free(struct vg_core *core, uint64_t now_ns);
struct vg_core_slice *vg_core_find_in_slot(struct vg_core *core, enum vg_core_state state); /* NULL: none */
void vg_core_review_holder(struct vg_core *core, struct vg_core_slice *holder, uint64_t now_ns);
void vg_core_grant(struct vg_core *core, uint64_t now_ns);
void vg_core_note_turns(struct vg_core *core);
void vg_core_rescue(struct vg_core *core, uint64_t now_ns);
/* From when on the next slice may run beside one that drains: a moment before the drain is expected to end, so that
 * waking up costs no device time, or when it is late. */
uint64_t vg_core_overlap_from(const struct vg_core *core, const struct vg_core_slice *slice);

#endif
