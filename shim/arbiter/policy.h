/*
 * policy.h - the decisions about gates that a step consists of (step.c has their order). Pure.
 */
#ifndef VG_ARBITER_POLICY_H
#define VG_ARBITER_POLICY_H
#include "arbiter/core.h"

/* A latency slice has precedence until it is this far ahead of its entitlement. */
#define VG_CORE_LATENCY_DEBT_NS (10 * VG_CORE_MS)

/* ---- slices.c ---- */

bool vg_core_may_open(const struct vg_core_slice *slice, uint64_t now_ns);
void vg_core_open_gate(struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns);
void vg_core_close_gate(struct vg_core_slice *slice, uint64_t now_ns);
/* A word can be given up once: a slice that wants the device again is given a new one. */
void vg_core_renew_word(const struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns);
/* Others may run beside the work that it still has outstanding. */
void vg_core_overlap(struct vg_core_slice *slice, uint64_t now_ns);

/* ---- policy.c ---- */

/* Which slices have drained, which may be overlapped by now, and which have overrun. */
void vg_core_note_drains(struct vg_core *core, uint64_t now_ns);
/* Which slices are free and which saturating: demands change once in a window, gangs at any time. */
void vg_core_judge_demands(struct vg_core *core, uint64_t now_ns);
/* Time used while no slice was behind is no debt. */
void vg_core_forgive(struct vg_core *core);
/* Which latency slices have used up their debt, and which slices are limited by their maximum. */
void vg_core_note_debts(struct vg_core *core);
/* Whether the slot is to stay empty because a free slice is short. */
void vg_core_review_slot(struct vg_core *core);
/* Opens and closes the gates of free slices. */
void vg_core_review_free(struct vg_core *core, uint64_t now_ns);
struct vg_core_slice *vg_core_find_in_slot(struct vg_core *core, enum vg_core_state state); /* NULL: none */
/* The holder's lease continues, is extended, or ends. */
void vg_core_review_holder(struct vg_core *core, struct vg_core_slice *holder, uint64_t now_ns);
/* Grants the empty slot to the next slice. */
void vg_core_grant(struct vg_core *core, uint64_t now_ns);
/* A free slice has a turn while the gates of others are closed for it. */
void vg_core_note_turns(struct vg_core *core);
/* Opens the gate of a slice that has not drained for long, for a moment now and then. */
void vg_core_rescue(struct vg_core *core, uint64_t now_ns);
/* From when on the next slice may run beside one that drains: a moment before the drain is expected to end, so that
 * waking up costs no device time, or when it is late. */
uint64_t vg_core_overlap_from(const struct vg_core *core, const struct vg_core_slice *slice);

#endif
