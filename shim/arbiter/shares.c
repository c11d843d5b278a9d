/* shares.c - see shares.h. Mirrors models/arbiter/policy.py. */
#include "arbiter/shares.h"

#include <string.h>

/* No step for so long: the tenants followed their timetables meanwhile, which charge nobody. */
#define STALLED_NS (100ull * VG_CORE_MS)
#define STOPPED_NS (50ull * VG_CORE_MS) /* without notice for so long: it does not run */
#define CARRIED_MAX_NS (20 * VG_CORE_MS)
/* Completed work is told so seldom: it says nothing of who had the device in a short time. */
#define SILENT_NS (10ull * VG_CORE_MS)
#define REPORTED_NS                                                                                                    \
  (50ull * VG_CORE_MS) /* how much of its time somebody tells is known when he has run for so long                     \
                        */
/* Completed work that is told beyond the time that was there is not charged, up to this part of what one tells. */
#define REMITTED_PART 7
#define UNEXPLAINED_MAX_NS (20 * VG_CORE_MS)
/* A turn that keeps others waiting costs at least the first, what the hand-over takes; the second if its owner has told
 * of little work for its last turns. */
#define TURN_LEAST_NS (VG_CORE_MS / 4)
#define TURN_IDLE_NS VG_CORE_MS
/* So much of the time in which nothing was outstanding any more may be told as completed work later. */
#define LATE_REPORTED_NS (20 * VG_CORE_MS)
#define RENEWED_BY_WORK 5 /* times as much of a bucket that fills by itself as well: VG_CORE_RENEWAL_NS */

static int64_t part(uint64_t ns, uint32_t ppm) {
  return (int64_t)(ns * ppm / VG_CORE_PPM);
}

bool vg_core_lately_active(const struct vg_core_slice *slice, uint64_t now_ns) {
  if (!slice->present || !slice->attached) return false;
  return vg_core_active(slice) || (slice->last_active_ns && now_ns < slice->last_active_ns + VG_CORE_IDLE_NS);
}

void vg_core_sum_slot(struct vg_core *core) {
  core->slot_ppm = 0;
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present && core->slices[i].saturating) core->slot_ppm += core->slices[i].entitlement_ppm;
}

int64_t vg_core_slot_mean(const struct vg_core *core) {
  int64_t total_ns = 0;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!vg_core_in_slot(slice)) continue;
    int64_t ahead_ns = (int64_t)(slice->virtual_ns - core->floor_ns);
    total_ns += ahead_ns / VG_CORE_MILLI * slice->entitlement_ppm / VG_CORE_MILLI;
  }
  return core->slot_ppm ? total_ns * VG_CORE_MILLI / core->slot_ppm * VG_CORE_MILLI : 0;
}

int64_t vg_core_lag(const struct vg_core *core, const struct vg_core_slice *slice, int64_t slot_mean_ns) {
  if (!slice->saturating) return slice->free_lag_ns;
  int64_t ahead_ns = (int64_t)(slice->virtual_ns - core->floor_ns) - slot_mean_ns;
  int64_t part_ns = core->slot_lag_ns * slice->entitlement_ppm / core->slot_ppm;
  part_ns -= ahead_ns / VG_CORE_MILLI * slice->entitlement_ppm / VG_CORE_MILLI;
  return vg_core_within(part_ns, VG_CORE_DEBT_MAX_NS);
}

void vg_core_count_lately(struct vg_core *core) {
  core->lately = 0;
  for (int i = 0; i < core->slice_count; i++) core->lately += vg_core_lately_active(&core->slices[i], core->last_ns);
}

int64_t vg_core_cap_needed(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (slice->state == VG_CORE_OPEN) return 0;
  uint64_t worth_ns = core->params.quantum_min_ns;
  if (slice->saturating && vg_core_others_active(core, slice)) worth_ns = core->params.quantum_ns / 2;
  return vg_core_min((int64_t)worth_ns, vg_core_scaled(core->params.cap_depth_ns, slice->params.max_milli) / 2);
}

bool vg_core_has_cap(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (slice->params.paused) return false;
  /* What spins since a launch of its own stands at another device's gate would pay for it for ever. */
  bool caught = vg_core_leads(slice) && slice->state == VG_CORE_OVERLAP;
  return vg_core_follows(slice) || caught || vg_core_uncapped(slice) || slice->cap_ns > vg_core_cap_needed(core, slice);
}

bool vg_core_keeps_others_waiting(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other != self && vg_core_in_slot(other) && vg_core_waits(other) && vg_core_has_cap(core, other)) return true;
  }
  return false;
}

/* ---- charging ---- */

bool vg_core_shares_device(const struct vg_core_slice *slice, uint64_t now_ns) {
  if (!slice->present || !slice->saturating || slice->state == VG_CORE_SHUT) return false;
  bool rescued = (slice->word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
  return slice->state != VG_CORE_OVERLAP || rescued || slice->noticed || now_ns < slice->close_ns + STOPPED_NS;
}

/* Of what it is due beside others: who is served first, and who waits. */
static void charge_share(struct vg_core *core, struct vg_core_slice *slice, int64_t used_ns) {
  slice->window_work_ns += used_ns;
  if (!slice->saturating) {
    slice->free_lag_ns = vg_core_max(slice->free_lag_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
    slice->owed_ns = vg_core_max(slice->owed_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
    return;
  }
  slice->unpaid_ns -= used_ns;
  uint64_t most_ns = core->floor_ns + (uint64_t)VG_CORE_DEBT_MAX_NS * VG_CORE_PPM / slice->entitlement_ppm;
  uint64_t next_ns = slice->virtual_ns + (uint64_t)used_ns * VG_CORE_PPM / slice->entitlement_ppm;
  if (next_ns > most_ns) next_ns = most_ns;
  if (next_ns > slice->virtual_ns) slice->virtual_ns = next_ns;
  core->slot_lag_ns = vg_core_max(core->slot_lag_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
}

/* What a turn costs beyond what was used is no use of the device: it counts neither for the maximum nor in what is told
 * as used. */
static void charge(struct vg_core *core, struct vg_core_slice *slice, int64_t used_ns) {
  int64_t before_ns = vg_core_max(slice->turn_least_ns, slice->turn_used_ns);
  slice->turn_used_ns += used_ns;
  charge_share(core, slice, vg_core_max(slice->turn_least_ns, slice->turn_used_ns) - before_ns);
  slice->charged_ns += used_ns;
  if (slice->charged_ns > (int64_t)slice->stats.charged_ns) slice->stats.charged_ns = (uint64_t)slice->charged_ns;
  slice->cap_ns = vg_core_max(slice->cap_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
  slice->guarantee_ns -= used_ns;
  if (slice->guarantee_ns < 0) {
    if (slice->params.max_milli > slice->params.min_milli) /* else all that it has is its own */
      slice->stats.borrowed_ns += (uint64_t)-slice->guarantee_ns;
    slice->guarantee_ns = 0;
  }
  if (slice->saturating) slice->over_cap_ns -= used_ns;
}

void vg_core_begin_turn(struct vg_core *core, struct vg_core_slice *slice) {
  bool has_credit = slice->turn_credit_ns >= VG_CORE_TURN_CREDIT_NS;
  if (has_credit) slice->turn_credit_ns -= VG_CORE_TURN_CREDIT_NS;
  slice->turn_used_ns = 0;
  slice->turn_least_ns = has_credit ? TURN_LEAST_NS : TURN_IDLE_NS;
  charge_share(core, slice, slice->turn_least_ns);
  if (!has_credit) /* a page that tells of no work: its maximum bounds how often others wait in vain */
    slice->cap_ns = vg_core_max(slice->cap_ns - slice->turn_least_ns, -VG_CORE_DEBT_MAX_NS);
}

bool vg_core_somebody_waits(const struct vg_core *core, const struct vg_core_slice *but) {
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other == but || !other->present || !other->wants || other->state == VG_CORE_OPEN) continue;
    if (vg_core_has_cap(core, other)) return true;
  }
  return false;
}

static uint32_t reported_ppm(const struct vg_core_slice *slice) {
  uint64_t ppm = slice->recent_reported_ns * VG_CORE_PPM / (slice->recent_run_ns ? slice->recent_run_ns : 1);
  return (uint32_t)vg_core_least(VG_CORE_PPM, ppm);
}

/* Says little of what it completes, or seldom: no witness of who had the device. */
static bool is_silent(const struct vg_core *core, const struct vg_core_slice *slice) {
  uint64_t since_ns = core->last_ns > slice->reported_at_ns ? core->last_ns - slice->reported_at_ns : 0;
  bool seldom = slice->reported_after_ns > SILENT_NS || since_ns > SILENT_NS;
  return slice->contexts && (seldom || (slice->recent_run_ns > REPORTED_NS && reported_ppm(slice) < VG_CORE_PPM / 4));
}

/* What it has completed, by what it tells now. How much of its time one that saturates tells is seen while it runs
 * alone. */
static uint64_t note_reported(struct vg_core_slice *slice, int ran, uint64_t now_ns) {
  uint64_t more_ns = vg_core_least(slice->done_ns - slice->done_reported_ns, VG_CORE_DEBT_MAX_NS);
  slice->done_reported_ns = slice->done_ns;
  if (more_ns) slice->reported_after_ns = now_ns - slice->reported_at_ns;
  if (more_ns || !slice->contexts) slice->reported_at_ns = now_ns;
  if (slice->contexts && (!slice->saturating || ran == 1)) {
    slice->recent_run_ns += slice->busy_ns;
    slice->recent_reported_ns = vg_core_least(slice->recent_reported_ns + more_ns, VG_CORE_DEBT_MAX_NS);
  }
  if (slice->recent_run_ns > 2 * REPORTED_NS) {
    slice->recent_run_ns /= 2;
    slice->recent_reported_ns /= 2;
  }
  if (slice->saturating) {
    bool exaggerates = slice->recent_reported_ns > slice->recent_run_ns && slice->recent_run_ns;
    int64_t own_ns = (int64_t)(exaggerates ? more_ns * slice->recent_run_ns / slice->recent_reported_ns : more_ns);
    slice->unpaid_ns += own_ns / 2;
    slice->over_cap_ns += own_ns;
  }
  if (!slice->saturating || slice->recent_run_ns <= REPORTED_NS) return more_ns;
  uint64_t ppm = reported_ppm(slice) > VG_CORE_PPM / 4 ? reported_ppm(slice) : VG_CORE_PPM / 4;
  return more_ns * VG_CORE_PPM / ppm;
}

/* Without what changes of context take while several run, more or less. */
static int64_t less_changes(uint64_t ns) {
  return (int64_t)(ns - ns / 32);
}

/* Lately all together have told no more than a quarter beyond the time that was there: estimates are never so wrong, so
 * somebody says what it likes. */
static bool is_believable(struct vg_core *core, uint64_t reported_ns, uint64_t available_ns) {
  core->available_ns += available_ns;
  core->all_reported_ns += reported_ns;
  if (core->available_ns > 2 * REPORTED_NS) {
    core->available_ns /= 2;
    core->all_reported_ns /= 2;
  }
  return 4 * core->all_reported_ns <= 5 * core->available_ns + 4 * (uint64_t)LATE_REPORTED_NS;
}

/* Estimates that were taken beside others may be too long. What all tell together is not charged beyond the time that
 * was there; who told more than his contexts' part is charged less. Not beside the slot: what others are charged, that
 * one is not. */
static void remit(struct vg_core *core, const uint64_t *reported_ns, uint64_t passed_ns) {
  uint64_t busy_ns = 0, all_reported_ns = 0;
  uint32_t contexts = 0;
  int ran = 0;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || !slice->contexts) continue;
    if (slice->saturating) return;
    ran++;
    contexts += slice->contexts;
    busy_ns += slice->busy_ns;
  }
  int64_t over_ns = 0;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating) continue;
    all_reported_ns += reported_ns[i];
    core->excess_ns += (int64_t)reported_ns[i];
    int64_t part_ns = less_changes(slice->busy_ns * slice->contexts / (contexts ? contexts : 1));
    slice->over_reported_ns =
        vg_core_within(slice->over_reported_ns + (int64_t)reported_ns[i] - part_ns, UNEXPLAINED_MAX_NS);
    int64_t remittable_ns = slice->remittable_ns + (int64_t)reported_ns[i] / REMITTED_PART;
    slice->remittable_ns = vg_core_min(remittable_ns, UNEXPLAINED_MAX_NS);
    over_ns += vg_core_max(0, slice->over_reported_ns);
  }
  busy_ns = vg_core_least(passed_ns, busy_ns);
  bool believable = is_believable(core, all_reported_ns, busy_ns);
  core->excess_ns -= ran > 1 ? less_changes(busy_ns) : (int64_t)busy_ns;
  core->excess_ns = vg_core_within(core->excess_ns, UNEXPLAINED_MAX_NS);
  int64_t remitted_ns = believable ? vg_core_max(0, vg_core_min(core->excess_ns, over_ns)) : 0;
  core->excess_ns -= remitted_ns;
  if (!remitted_ns) return;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating) continue;
    slice->remitted_ns =
        vg_core_min(remitted_ns * vg_core_max(0, slice->over_reported_ns) / over_ns, slice->remittable_ns);
    slice->remittable_ns -= slice->remitted_ns;
    slice->over_reported_ns -= slice->remitted_ns;
  }
}

/* The time in which several ran, or one and somebody waited, and what they say that they have completed. */
static void weigh(struct vg_core *core, uint64_t passed_ns, uint64_t now_ns) {
  uint64_t reported_ns = 0, busy_ns = 0, each_reported_ns[VG_SLICES_MAX] = {0};
  const struct vg_core_slice *runs = NULL;
  int ran = 0;
  uint32_t least_ppm = VG_CORE_PPM;
  bool found = false;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || !slice->contexts) continue;
    if (!ran++) runs = slice;
    if (slice->busy_ns > busy_ns) busy_ns = slice->busy_ns;
  }
  core->witnessed = true;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    each_reported_ns[i] = note_reported(slice, ran, now_ns);
    reported_ns += each_reported_ns[i];
    if (slice->saturating) {
      if (is_silent(core, slice)) core->witnessed = false;
    } else if (slice->recent_run_ns && vg_core_lately_active(slice, core->last_ns)) {
      least_ppm = reported_ppm(slice) < least_ppm ? reported_ppm(slice) : least_ppm;
      found = true;
    }
  }
  remit(core, each_reported_ns, passed_ns);
  core->least_reported_ppm = found ? least_ppm : 0;
  bool alone = ran == 1 && !runs->saturating && vg_core_somebody_waits(core, runs);
  if (!core->witnessed || !(alone || ran > 1)) return;
  /* Changes of context; and alone what lies between the end of work and its being noticed. */
  uint64_t nobodys_ns = busy_ns / (alone ? 8 : 16);
  int64_t left_ns = core->unexplained_ns + (int64_t)(busy_ns - nobodys_ns) - (int64_t)reported_ns;
  core->unexplained_ns = vg_core_within(left_ns, UNEXPLAINED_MAX_NS);
}

/* Completed work is what the tenant says. More than that is charged as far as nobody's work explains the time: up to
 * its part of it, or all in which it had work outstanding for the one who tells least; up to half of its part where the
 * others do not say what they do. */
static int64_t doubted(struct vg_core *core, const struct vg_core_slice *slice, int64_t done_ns) {
  if (!core->witnessed) return vg_core_max(0, slice->provisional_ns / 2 - done_ns);
  int64_t most_ns = reported_ppm(slice) <= core->least_reported_ppm ? slice->outstanding_ns : slice->provisional_ns;
  int64_t doubted_ns = vg_core_max(0, vg_core_min(most_ns - done_ns, core->unexplained_ns));
  core->unexplained_ns -= doubted_ns;
  return doubted_ns;
}

/* A free slice: its contexts' part of the time in which it had work outstanding, put right by its completed work when
 * it has none left, and now and then: what the hardware gives in slices is uneven over a short time. */
static void charge_free(struct vg_core *core, struct vg_core_slice *slice, uint32_t contexts, uint64_t passed_ns,
                        uint64_t now_ns) {
  int64_t used_ns = (int64_t)(slice->busy_ns * slice->contexts / (contexts ? contexts : 1));
  if (slice->has_precedence && vg_core_somebody_waits(core, slice)) used_ns = (int64_t)passed_ns; /* whatever it says */
  if (slice->busy_ns) { /* what it keeps from them with nothing to run is not put right later */
    slice->provisional_ns += used_ns;
    slice->outstanding_ns += vg_core_max(used_ns, (int64_t)slice->busy_ns);
  }
  slice->beside_slot |= core->slot_occupied && slice->busy_ns;
  bool alone = slice->holds || !vg_core_somebody_waits(core, slice);
  if (slice->contexts == contexts && alone) slice->alone_ns += (int64_t)slice->busy_ns;
  if (core->slot_occupied) core->free_used_ns += used_ns;
  int64_t done_ns = vg_core_max(0, (int64_t)(slice->done_ns - slice->done_seen_ns));
  if (slice->holds && !slice->has_precedence && vg_core_somebody_waits(core, slice))
    used_ns += (int64_t)(passed_ns - slice->busy_ns); /* it let that pass, and nobody else had it */
  used_ns -= slice->remitted_ns;
  slice->remitted_ns = 0;
  bool due = (core->witnessed || done_ns) && now_ns >= slice->settled_ns + VG_CORE_TICK_NS;
  if (!slice->outstanding || due) {
    int64_t reported_ns = done_ns + doubted(core, slice, done_ns);
    int64_t ahead_ns = vg_core_max(0, slice->alone_ns / 2 - reported_ns);
    int64_t more_ns = reported_ns + ahead_ns - slice->provisional_ns;
    used_ns += more_ns;
    if (slice->beside_slot)
      core->free_used_ns += more_ns; /* what it has had more or less, the slot has had less or more */
    slice->beside_slot = false;
    slice->provisional_ns = slice->outstanding_ns = slice->alone_ns = 0;
    if (!slice->outstanding || slice->done_seen_ns < slice->done_ns) slice->done_seen_ns = slice->done_ns;
    if (slice->outstanding) slice->done_seen_ns += (uint64_t)ahead_ns;
    slice->settled_ns = now_ns;
  }
  charge(core, slice, used_ns);
}

/* Splits what free ones have left of the time among those of the slot that occupied the device. Wall time while
 * somebody waits for them, for then the holder keeps the device from him; else the time with work outstanding. */
static void charge_slot(struct vg_core *core, uint64_t passed_ns, uint64_t now_ns) {
  if (!core->slot_occupied) return;
  uint32_t contexts = 0;
  for (int i = 0; i < core->slice_count; i++)
    if (vg_core_shares_device(&core->slices[i], now_ns))
      contexts += core->slices[i].contexts ? core->slices[i].contexts : 1;
  int64_t taken_ns = vg_core_within(core->free_used_ns, (int64_t)passed_ns);
  core->free_used_ns = vg_core_within(core->free_used_ns - taken_ns, CARRIED_MAX_NS);
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!vg_core_shares_device(slice, now_ns)) continue;
    int64_t used_ns = (int64_t)slice->busy_ns;
    if (vg_core_keeps_others_waiting(core, slice)) {
      used_ns = (int64_t)passed_ns;
      bool over = slice->quiet && slice->state != VG_CORE_OPEN;
      if (over && slice->drained_ns < now_ns) /* the drain was noticed later than it happened */
        used_ns = vg_core_max(0, (int64_t)(slice->drained_ns - core->last_ns));
    }
    uint32_t own = slice->contexts ? slice->contexts : 1;
    charge(core, slice, vg_core_max(0, used_ns - taken_ns) * own / contexts);
  }
}

/* What it says itself that it has completed counts, whatever others say that they have had meanwhile: in full for its
 * maximum, by half for its share, for estimates that were taken beside others may be twice too long. */
static void charge_unpaid(struct vg_core *core, struct vg_core_slice *slice) {
  uint64_t since_ns = core->last_ns > slice->reported_at_ns ? core->last_ns - slice->reported_at_ns : 0;
  int64_t late_ns = LATE_REPORTED_NS + (int64_t)since_ns;
  slice->unpaid_ns = vg_core_max(slice->unpaid_ns, -late_ns);
  slice->over_cap_ns = vg_core_max(slice->over_cap_ns, -late_ns);
  charge(core, slice, vg_core_max(0, slice->unpaid_ns - LATE_REPORTED_NS));
  int64_t more_ns = vg_core_max(0, slice->over_cap_ns - LATE_REPORTED_NS);
  slice->over_cap_ns -= more_ns;
  slice->cap_ns = vg_core_max(slice->cap_ns - more_ns, -VG_CORE_DEBT_MAX_NS);
}

/* How much a cap bucket may hold. Idle time is saved up only a little; a slice that is kept from what is its own is in
 * arrears instead, and may catch up. What it could only have borrowed, it has not missed. */
static int64_t cap_depth(const struct vg_core *core, const struct vg_core_slice *slice) {
  int64_t depth_ns = vg_core_scaled(core->params.cap_depth_ns, slice->params.max_milli);
  int64_t own_ns = vg_core_scaled(VG_CORE_DEBT_MAX_NS, slice->params.min_milli);
  return vg_core_active(slice) ? vg_core_max(depth_ns, own_ns) : depth_ns;
}

/* All its processes together complete no more than a second's work in a second in which some is outstanding. */
static void count_done(struct vg_core_slice *slice, uint64_t passed_ns) {
  slice->reportable_ns = vg_core_least(slice->reportable_ns + slice->busy_ns, VG_CORE_DEBT_MAX_NS);
  if (!slice->outstanding && !slice->was_outstanding)
    slice->reportable_ns = vg_core_least(slice->reportable_ns, LATE_REPORTED_NS);
  uint64_t more_ns = vg_core_least(slice->done_total_ns - slice->reported_total_ns, slice->reportable_ns);
  slice->reported_total_ns = slice->done_total_ns;
  slice->reportable_ns -= more_ns;
  slice->done_ns += more_ns;
  slice->renewed_ns -= vg_core_least(slice->renewed_ns, RENEWED_BY_WORK * more_ns);
  uint64_t refill_ns = passed_ns / (VG_CORE_TURN_REFILL_NS / VG_CORE_TURN_CREDIT_NS);
  slice->turn_credit_ns = vg_core_min(slice->turn_credit_ns + (int64_t)(more_ns + refill_ns),
                                      VG_CORE_TURN_CREDITS * VG_CORE_TURN_CREDIT_NS);
}

static void accrue(const struct vg_core *core, struct vg_core_slice *slice, uint64_t passed_ns) {
  slice->busy_ns = vg_core_least(slice->busy_total_ns - slice->busy_seen_ns, passed_ns);
  slice->busy_seen_ns = slice->busy_total_ns;
  /* A page without sense: work is outstanding and takes no time. */
  if (!slice->busy_ns && slice->attached && slice->was_outstanding) slice->busy_ns = passed_ns;
  count_done(slice, passed_ns);
  slice->was_outstanding = slice->outstanding;
  slice->contexts = 0;
  if (slice->busy_ns) slice->contexts = slice->running ? slice->running : 1;
  uint64_t active_ns = vg_core_least(slice->active_total_ns - slice->active_seen_ns, passed_ns);
  slice->active_seen_ns = slice->active_total_ns;
  if (!active_ns && slice->attached && slice->was_active) active_ns = passed_ns;
  slice->window_idle_ns += passed_ns - active_ns;
  const struct vg_arbiter_params *params = &core->params;
  uint32_t min_milli = slice->params.min_milli, max_milli = slice->params.max_milli;
  int64_t deepest_ns = cap_depth(core, slice);
  if (vg_core_lately_active(slice, core->last_ns)) /* arrears outlast a short pause, and do not grow in it */
    deepest_ns = vg_core_max(deepest_ns, slice->cap_ns);
  slice->cap_ns = vg_core_min(slice->cap_ns + vg_core_scaled(passed_ns, max_milli), deepest_ns);
  slice->guarantee_ns = vg_core_min(slice->guarantee_ns + vg_core_scaled(passed_ns, min_milli),
                                    vg_core_scaled(params->guarantee_depth_ns, min_milli));
  if (slice->saturating && !slice->was_active) slice->virtual_ns += passed_ns; /* its due of then is not saved up */
  if (slice->saturating) return;
  /* A latency slice that needs just its minimum must not fall behind by roundings: a hundredth more. */
  uint32_t ppm = slice->params.latency ? slice->entitlement_ppm * 101 / 100 : slice->entitlement_ppm;
  deepest_ns = vg_core_max(part(params->guarantee_depth_ns, slice->entitlement_ppm), slice->free_lag_ns);
  if (vg_core_active(slice)) /* what it lacks for others have had it, since their work could not be taken back */
    deepest_ns = vg_core_max(deepest_ns, -core->slot_lag_ns);
  slice->free_lag_ns = vg_core_min(slice->free_lag_ns + part(passed_ns, ppm), deepest_ns);
  if (!vg_core_may_begin_turn(slice)) /* it is not owed what it does not take */
    slice->free_lag_ns = vg_core_min(slice->free_lag_ns, VG_CORE_SHORT_NS);
  int64_t owed_ns = slice->owed_ns + part(passed_ns, min_milli * VG_CORE_MILLI * 101 / 100);
  slice->owed_ns = vg_core_min(owed_ns, vg_core_scaled(params->guarantee_depth_ns, min_milli));
}

void vg_core_charge(struct vg_core *core, uint64_t now_ns) {
  uint64_t passed_ns = now_ns - core->last_ns;
  if (passed_ns > STALLED_NS) passed_ns = 0;
  uint32_t contexts = 0;
  core->slot_occupied = false;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    accrue(core, slice, passed_ns);
    contexts += slice->contexts;
    core->slot_occupied |= vg_core_shares_device(slice, now_ns);
  }
  weigh(core, passed_ns, now_ns);
  vg_core_sum_slot(core); /* some may have gone since */
  core->slot_lag_ns = vg_core_min(core->slot_lag_ns + part(passed_ns, core->slot_ppm),
                                  part(core->params.guarantee_depth_ns, core->slot_ppm));
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present && !core->slices[i].saturating)
      charge_free(core, &core->slices[i], contexts, passed_ns, now_ns);
  charge_slot(core, passed_ns, now_ns);
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present && core->slices[i].saturating) charge_unpaid(core, &core->slices[i]);
}
