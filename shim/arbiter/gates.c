/* gates.c - see gates.h. */
#include "arbiter/gates.h"

#include "arbiter/charges.h"
#include "arbiter/maximum.h"

#define FORECAST_MAX_NS (10000ull * VG_CORE_MS) /* longest forecast of a drain that is believed */
/* The slot does not wait for a drain that is forecast to take so many times as long as it would wait. */
#define ENDLESS_PATIENCES 8

/* What the word of an open gate says. */
static uint32_t open_state(const struct vg_core *core, const struct vg_core_slice *slice) {
  return !vg_core_is_counted(slice) && vg_core_is_alone(core, slice) ? VG_GATE_SOLO : VG_GATE_COUNT;
}

static void spend_word(struct vg_core_slice *slice, uint64_t now_ns) {
  slice->gate.renewed_ns = (slice->gate.renewed_ns > now_ns ? slice->gate.renewed_ns : now_ns) + VG_CORE_RENEWAL_NS;
}

void vg_core_open_gate(struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns) {
  vg_core_set_word(slice, open_state(core, slice));
  slice->gate.rescue_ns = now_ns + (vg_core_is_caught(core, slice) ? core->params.quantum_min_ns : 0);
  slice->gate.state = VG_CORE_OPEN;
  spend_word(slice, now_ns);
  slice->in.quiet = false;
  slice->in.wants = false;
  slice->gate.cut_off = false;
  slice->gate.grant_ns = now_ns;
  slice->gate.served = ++core->served;
  slice->stats.grants += slice->in.attached;
  if (slice->saturating && vg_core_any_waits(core, slice)) vg_core_begin_turn(core, slice);
}

void vg_core_close_gate(struct vg_core_slice *slice, uint64_t now_ns) {
  /* Nothing is outstanding then and nothing can be launched: there is no drain. */
  bool gave_up = slice->in.quiet && slice->gate.state == VG_CORE_OPEN;
  vg_core_set_word(slice, VG_GATE_CLOSED);
  slice->in.quiet = false;
  slice->gate.overran = false;
  slice->gate.cut_off = slice->in.outstanding;
  slice->in.drain_expected_ns = 0;
  slice->gate.late_ns -= slice->gate.late_ns / 8;
  slice->gate.close_ns = now_ns;
  slice->out.lease_end_ns = 0;
  if (gave_up || !slice->in.attached) {
    slice->stats.early_releases += gave_up;
    slice->gate.state = VG_CORE_SHUT;
  } else if (slice->saturating) {
    slice->gate.state = VG_CORE_DRAINING;
  } else {
    vg_core_let_overlap(slice, now_ns);
  }
}

void vg_core_renew_word(const struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns) {
  vg_core_set_word(slice, open_state(core, slice));
  spend_word(slice, now_ns);
}

void vg_core_let_overlap(struct vg_core_slice *slice, uint64_t now_ns) {
  slice->gate.state = VG_CORE_OVERLAP;
  slice->gate.rescue_ns = now_ns + VG_CORE_RESCUE_NS;
}

/* Until when the slot waits for its drain, if there is no forecast. */
static uint64_t patience_end(const struct vg_core *core, const struct vg_core_slice *slice) {
  return slice->gate.close_ns + core->params.bound_ns + core->params.overrun_ns;
}

/* How long a long kernel is waited for: side by side, the hardware switches context every millisecond. The wait is
 * missing from the others' next second in proportion to their entitlements, so the less that is, the longer it may be.
 * No slice is let in just before its end: it would have the hardware's first time slice for half its price. */
static uint64_t patience_for_long(const struct vg_core *core, const struct vg_core_slice *slice) {
  uint64_t others_ppm = VG_CORE_PPM - slice->out.entitlement_ppm, least_ppm = VG_CORE_PPM / 3;
  uint64_t patience_ns = core->params.bound_ns + core->params.overrun_ns;
  return patience_ns * VG_CORE_PPM / (others_ppm > least_ppm ? others_ppm : least_ppm);
}

uint64_t vg_core_overlap_from(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (vg_core_leads_beside_others(core, slice)) /* side by side, two gangs could wait for each other */
    return slice->in.gang_busy ? slice->gate.close_ns + VG_CORE_RESCUE_NS : patience_end(core, slice);
  uint64_t expected_ns = slice->in.drain_expected_ns;
  if (expected_ns < slice->gate.close_ns) return patience_end(core, slice);
  if (expected_ns <= patience_end(core, slice)) return expected_ns - core->params.lookahead_ns;
  uint64_t patience_ns = patience_for_long(core, slice);
  if (expected_ns > slice->gate.close_ns + ENDLESS_PATIENCES * patience_ns)
    return slice->gate.close_ns; /* the wait would only put off the overlap */
  return vg_core_least(expected_ns, slice->gate.close_ns + patience_ns);
}

/* Work with a long forecast is not stuck as long as it may still complete, beside one or two neighbours: letting its
 * slice launch more meanwhile would reward it. */
static uint64_t rescue_after(const struct vg_core_slice *slice, uint64_t now_ns) {
  if (slice->in.drain_expected_ns < now_ns) return VG_CORE_RESCUE_NS;
  uint64_t forecast_ns = vg_core_least(slice->in.drain_expected_ns - now_ns, FORECAST_MAX_NS);
  return 3 * forecast_ns > VG_CORE_RESCUE_NS ? 3 * forecast_ns : VG_CORE_RESCUE_NS;
}

/* Work that waited in its stream for something else runs, behind a gate that has been closed meanwhile. */
static void resume(struct vg_core_slice *slice, uint64_t now_ns) {
  vg_core_let_overlap(slice, now_ns);
  slice->gate.close_ns = now_ns;
}

void vg_core_note_drains(struct vg_core *core, uint64_t now_ns) {
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    bool runs = slice->in.attached && slice->in.outstanding && !slice->in.quiet;
    if (slice->gate.state == VG_CORE_SHUT && runs) resume(slice, now_ns);
    if (vg_core_drains(slice) && now_ns - slice->gate.close_ns > slice->gate.late_ns)
      slice->gate.late_ns = now_ns - slice->gate.close_ns;
    if (vg_core_drains(slice) && (slice->in.quiet || !slice->in.attached)) {
      if (vg_core_is_open(slice)) vg_core_set_word(slice, VG_GATE_CLOSED);
      slice->gate.state = VG_CORE_SHUT;
    }
    if (slice->gate.state == VG_CORE_DRAINING && now_ns >= vg_core_overlap_from(core, slice)) {
      vg_core_let_overlap(slice, now_ns);
      slice->gate.rescue_ns = now_ns + rescue_after(slice, now_ns);
    }
    bool late = slice->saturating && slice->gate.state == VG_CORE_OVERLAP && now_ns >= patience_end(core, slice);
    if (late && !slice->gate.overran) {
      slice->gate.overran = true;
      slice->stats.overruns++;
    }
  }
}

void vg_core_rescue(struct vg_core *core, uint64_t now_ns) {
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->gate.state != VG_CORE_OVERLAP || now_ns < slice->gate.rescue_ns) continue;
    bool open = vg_core_is_open(slice);
    uint64_t patience_ns = rescue_after(slice, now_ns);
    if (!vg_core_leads_or_follows(slice) && (open || (vg_core_waits(slice) && patience_ns == VG_CORE_RESCUE_NS)))
      vg_core_set_word(slice, open ? VG_GATE_CLOSED : VG_GATE_COUNT);
    slice->gate.rescue_ns = now_ns + (vg_core_is_open(slice) ? core->params.quantum_min_ns : patience_ns);
  }
}
