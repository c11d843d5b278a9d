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
  if (!slice->present || !slice->in.attached) return false;
  return vg_core_active(slice) || (slice->step.last_active_ns && now_ns < slice->step.last_active_ns + VG_CORE_IDLE_NS);
}

void vg_core_sum_slot(struct vg_core *core) {
  core->slot_ppm = 0;
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present && core->slices[i].saturating) core->slot_ppm += core->slices[i].out.entitlement_ppm;
}

int64_t vg_core_slot_mean(const struct vg_core *core) {
  int64_t total_ns = 0;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!vg_core_in_slot(slice)) continue;
    int64_t ahead_ns = (int64_t)(slice->slot.virtual_ns - core->floor_ns);
    total_ns += ahead_ns / VG_CORE_MILLI * slice->out.entitlement_ppm / VG_CORE_MILLI;
  }
  return core->slot_ppm ? total_ns * VG_CORE_MILLI / core->slot_ppm * VG_CORE_MILLI : 0;
}

int64_t vg_core_lag(const struct vg_core *core, const struct vg_core_slice *slice, int64_t slot_mean_ns) {
  if (!slice->saturating) return slice->free.lag_ns;
  int64_t ahead_ns = (int64_t)(slice->slot.virtual_ns - core->floor_ns) - slot_mean_ns;
  int64_t part_ns = core->slot_lag_ns * slice->out.entitlement_ppm / core->slot_ppm;
  part_ns -= ahead_ns / VG_CORE_MILLI * slice->out.entitlement_ppm / VG_CORE_MILLI;
  return vg_core_within(part_ns, VG_CORE_DEBT_MAX_NS);
}

void vg_core_count_lately(struct vg_core *core) {
  core->lately = 0;
  for (int i = 0; i < core->slice_count; i++) core->lately += vg_core_lately_active(&core->slices[i], core->last_ns);
}

int64_t vg_core_cap_needed(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (slice->gate.state == VG_CORE_OPEN) return 0;
  uint64_t worth_ns = core->params.quantum_min_ns;
  if (slice->saturating && vg_core_others_active(core, slice)) worth_ns = core->params.quantum_ns / 2;
  return vg_core_min((int64_t)worth_ns, vg_core_scaled(core->params.cap_depth_ns, slice->params.max_milli) / 2);
}

bool vg_core_has_cap(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (slice->params.paused) return false;
  /* What spins since a launch of its own stands at another device's gate would pay for it for ever. */
  bool caught = vg_core_leads(slice) && slice->gate.state == VG_CORE_OVERLAP;
  return vg_core_follows(slice) || caught || vg_core_uncapped(slice) ||
         slice->bucket.cap_ns > vg_core_cap_needed(core, slice);
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
  if (!slice->present || !slice->saturating || slice->gate.state == VG_CORE_SHUT) return false;
  bool rescued = (slice->out.word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
  return slice->gate.state != VG_CORE_OVERLAP || rescued || slice->in.noticed ||
         now_ns < slice->gate.close_ns + STOPPED_NS;
}

/* Of what it is due beside others: who is served first, and who waits. */
static void charge_share(struct vg_core *core, struct vg_core_slice *slice, int64_t used_ns) {
  slice->demand.window_work_ns += used_ns;
  if (!slice->saturating) {
    slice->free.lag_ns = vg_core_max(slice->free.lag_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
    slice->free.owed_ns = vg_core_max(slice->free.owed_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
    return;
  }
  slice->slot.unpaid_ns -= used_ns;
  uint64_t most_ns = core->floor_ns + (uint64_t)VG_CORE_DEBT_MAX_NS * VG_CORE_PPM / slice->out.entitlement_ppm;
  uint64_t next_ns = slice->slot.virtual_ns + (uint64_t)used_ns * VG_CORE_PPM / slice->out.entitlement_ppm;
  if (next_ns > most_ns) next_ns = most_ns;
  if (next_ns > slice->slot.virtual_ns) slice->slot.virtual_ns = next_ns;
  core->slot_lag_ns = vg_core_max(core->slot_lag_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
}

/* What a turn costs beyond what was used is no use of the device: it counts neither for the maximum nor in what is told
 * as used. */
static void charge(struct vg_core *core, struct vg_core_slice *slice, int64_t used_ns) {
  int64_t before_ns = vg_core_max(slice->turn.least_ns, slice->turn.used_ns);
  slice->turn.used_ns += used_ns;
  charge_share(core, slice, vg_core_max(slice->turn.least_ns, slice->turn.used_ns) - before_ns);
  slice->charged_ns += used_ns;
  if (slice->charged_ns > (int64_t)slice->stats.charged_ns) slice->stats.charged_ns = (uint64_t)slice->charged_ns;
  slice->bucket.cap_ns = vg_core_max(slice->bucket.cap_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
  slice->bucket.guarantee_ns -= used_ns;
  if (slice->bucket.guarantee_ns < 0) {
    if (slice->params.max_milli > slice->params.min_milli) /* else all that it has is its own */
      slice->stats.borrowed_ns += (uint64_t)-slice->bucket.guarantee_ns;
    slice->bucket.guarantee_ns = 0;
  }
  if (slice->saturating) slice->slot.over_cap_ns -= used_ns;
}

void vg_core_begin_turn(struct vg_core *core, struct vg_core_slice *slice) {
  bool has_credit = slice->turn.credit_ns >= VG_CORE_TURN_CREDIT_NS;
  if (has_credit) slice->turn.credit_ns -= VG_CORE_TURN_CREDIT_NS;
  slice->turn.used_ns = 0;
  slice->turn.least_ns = has_credit ? TURN_LEAST_NS : TURN_IDLE_NS;
  charge_share(core, slice, slice->turn.least_ns);
  if (!has_credit) /* a page that tells of no work: its maximum bounds how often others wait in vain */
    slice->bucket.cap_ns = vg_core_max(slice->bucket.cap_ns - slice->turn.least_ns, -VG_CORE_DEBT_MAX_NS);
}

bool vg_core_somebody_waits(const struct vg_core *core, const struct vg_core_slice *but) {
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other == but || !other->present || !other->in.wants || other->gate.state == VG_CORE_OPEN) continue;
    if (vg_core_has_cap(core, other)) return true;
  }
  return false;
}

static uint32_t reported_ppm(const struct vg_core_slice *slice) {
  uint64_t ppm =
      slice->report.recent_reported_ns * VG_CORE_PPM / (slice->report.recent_run_ns ? slice->report.recent_run_ns : 1);
  return (uint32_t)vg_core_least(VG_CORE_PPM, ppm);
}

/* Says little of what it completes, or seldom: no witness of who had the device. */
static bool is_silent(const struct vg_core *core, const struct vg_core_slice *slice) {
  uint64_t since_ns = core->last_ns > slice->report.reported_at_ns ? core->last_ns - slice->report.reported_at_ns : 0;
  bool seldom = slice->report.reported_after_ns > SILENT_NS || since_ns > SILENT_NS;
  return slice->step.contexts &&
         (seldom || (slice->report.recent_run_ns > REPORTED_NS && reported_ppm(slice) < VG_CORE_PPM / 4));
}

/* What it has completed, by what it tells now. How much of its time one that saturates tells is seen while it runs
 * alone. */
static uint64_t note_reported(struct vg_core_slice *slice, int ran, uint64_t now_ns) {
  uint64_t more_ns = vg_core_least(slice->report.done_ns - slice->report.done_reported_ns, VG_CORE_DEBT_MAX_NS);
  slice->report.done_reported_ns = slice->report.done_ns;
  if (more_ns) slice->report.reported_after_ns = now_ns - slice->report.reported_at_ns;
  if (more_ns || !slice->step.contexts) slice->report.reported_at_ns = now_ns;
  if (slice->step.contexts && (!slice->saturating || ran == 1)) {
    slice->report.recent_run_ns += slice->step.busy_ns;
    slice->report.recent_reported_ns = vg_core_least(slice->report.recent_reported_ns + more_ns, VG_CORE_DEBT_MAX_NS);
  }
  if (slice->report.recent_run_ns > 2 * REPORTED_NS) {
    slice->report.recent_run_ns /= 2;
    slice->report.recent_reported_ns /= 2;
  }
  if (slice->saturating) {
    bool exaggerates = slice->report.recent_reported_ns > slice->report.recent_run_ns && slice->report.recent_run_ns;
    int64_t own_ns =
        (int64_t)(exaggerates ? more_ns * slice->report.recent_run_ns / slice->report.recent_reported_ns : more_ns);
    slice->slot.unpaid_ns += own_ns / 2;
    slice->slot.over_cap_ns += own_ns;
  }
  if (!slice->saturating || slice->report.recent_run_ns <= REPORTED_NS) return more_ns;
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
    if (!slice->present || !slice->step.contexts) continue;
    if (slice->saturating) return;
    ran++;
    contexts += slice->step.contexts;
    busy_ns += slice->step.busy_ns;
  }
  int64_t over_ns = 0;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating) continue;
    all_reported_ns += reported_ns[i];
    core->excess_ns += (int64_t)reported_ns[i];
    int64_t part_ns = less_changes(slice->step.busy_ns * slice->step.contexts / (contexts ? contexts : 1));
    slice->report.over_reported_ns =
        vg_core_within(slice->report.over_reported_ns + (int64_t)reported_ns[i] - part_ns, UNEXPLAINED_MAX_NS);
    int64_t remittable_ns = slice->report.remittable_ns + (int64_t)reported_ns[i] / REMITTED_PART;
    slice->report.remittable_ns = vg_core_min(remittable_ns, UNEXPLAINED_MAX_NS);
    over_ns += vg_core_max(0, slice->report.over_reported_ns);
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
    slice->report.remitted_ns = vg_core_min(remitted_ns * vg_core_max(0, slice->report.over_reported_ns) / over_ns,
                                            slice->report.remittable_ns);
    slice->report.remittable_ns -= slice->report.remitted_ns;
    slice->report.over_reported_ns -= slice->report.remitted_ns;
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
    if (!slice->present || !slice->step.contexts) continue;
    if (!ran++) runs = slice;
    if (slice->step.busy_ns > busy_ns) busy_ns = slice->step.busy_ns;
  }
  core->witnessed = true;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    each_reported_ns[i] = note_reported(slice, ran, now_ns);
    reported_ns += each_reported_ns[i];
    if (slice->saturating) {
      if (is_silent(core, slice)) core->witnessed = false;
    } else if (slice->report.recent_run_ns && vg_core_lately_active(slice, core->last_ns)) {
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
  if (!core->witnessed) return vg_core_max(0, slice->account.provisional_ns / 2 - done_ns);
  int64_t most_ns =
      reported_ppm(slice) <= core->least_reported_ppm ? slice->account.outstanding_ns : slice->account.provisional_ns;
  int64_t doubted_ns = vg_core_max(0, vg_core_min(most_ns - done_ns, core->unexplained_ns));
  core->unexplained_ns -= doubted_ns;
  return doubted_ns;
}

/* A free slice: its contexts' part of the time in which it had work outstanding, put right by its completed work when
 * it has none left, and now and then: what the hardware gives in slices is uneven over a short time. */
static void charge_free(struct vg_core *core, struct vg_core_slice *slice, uint32_t contexts, uint64_t passed_ns,
                        uint64_t now_ns) {
  int64_t used_ns = (int64_t)(slice->step.busy_ns * slice->step.contexts / (contexts ? contexts : 1));
  if (slice->free.has_precedence && vg_core_somebody_waits(core, slice))
    used_ns = (int64_t)passed_ns; /* whatever it says */
  if (slice->step.busy_ns) {      /* what it keeps from them with nothing to run is not put right later */
    slice->account.provisional_ns += used_ns;
    slice->account.outstanding_ns += vg_core_max(used_ns, (int64_t)slice->step.busy_ns);
  }
  slice->account.beside_slot |= core->slot_occupied && slice->step.busy_ns;
  bool alone = slice->free.holds || !vg_core_somebody_waits(core, slice);
  if (slice->step.contexts == contexts && alone) slice->account.alone_ns += (int64_t)slice->step.busy_ns;
  if (core->slot_occupied) core->free_used_ns += used_ns;
  int64_t done_ns = vg_core_max(0, (int64_t)(slice->report.done_ns - slice->account.done_seen_ns));
  if (slice->free.holds && !slice->free.has_precedence && vg_core_somebody_waits(core, slice))
    used_ns += (int64_t)(passed_ns - slice->step.busy_ns); /* it let that pass, and nobody else had it */
  used_ns -= slice->report.remitted_ns;
  slice->report.remitted_ns = 0;
  bool due = (core->witnessed || done_ns) && now_ns >= slice->account.settled_ns + VG_CORE_TICK_NS;
  if (!slice->in.outstanding || due) {
    int64_t reported_ns = done_ns + doubted(core, slice, done_ns);
    int64_t ahead_ns = vg_core_max(0, slice->account.alone_ns / 2 - reported_ns);
    int64_t more_ns = reported_ns + ahead_ns - slice->account.provisional_ns;
    used_ns += more_ns;
    if (slice->account.beside_slot)
      core->free_used_ns += more_ns; /* what it has had more or less, the slot has had less or more */
    slice->account.beside_slot = false;
    slice->account.provisional_ns = slice->account.outstanding_ns = slice->account.alone_ns = 0;
    if (!slice->in.outstanding || slice->account.done_seen_ns < slice->report.done_ns)
      slice->account.done_seen_ns = slice->report.done_ns;
    if (slice->in.outstanding) slice->account.done_seen_ns += (uint64_t)ahead_ns;
    slice->account.settled_ns = now_ns;
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
      contexts += core->slices[i].step.contexts ? core->slices[i].step.contexts : 1;
  int64_t taken_ns = vg_core_within(core->free_used_ns, (int64_t)passed_ns);
  core->free_used_ns = vg_core_within(core->free_used_ns - taken_ns, CARRIED_MAX_NS);
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!vg_core_shares_device(slice, now_ns)) continue;
    int64_t used_ns = (int64_t)slice->step.busy_ns;
    if (vg_core_keeps_others_waiting(core, slice)) {
      used_ns = (int64_t)passed_ns;
      bool over = slice->in.quiet && slice->gate.state != VG_CORE_OPEN;
      if (over && slice->in.drained_ns < now_ns) /* the drain was noticed later than it happened */
        used_ns = vg_core_max(0, (int64_t)(slice->in.drained_ns - core->last_ns));
    }
    uint32_t own = slice->step.contexts ? slice->step.contexts : 1;
    charge(core, slice, vg_core_max(0, used_ns - taken_ns) * own / contexts);
  }
}

/* What it says itself that it has completed counts, whatever others say that they have had meanwhile: in full for its
 * maximum, by half for its share, for estimates that were taken beside others may be twice too long. */
static void charge_unpaid(struct vg_core *core, struct vg_core_slice *slice) {
  uint64_t since_ns = core->last_ns > slice->report.reported_at_ns ? core->last_ns - slice->report.reported_at_ns : 0;
  int64_t late_ns = LATE_REPORTED_NS + (int64_t)since_ns;
  slice->slot.unpaid_ns = vg_core_max(slice->slot.unpaid_ns, -late_ns);
  slice->slot.over_cap_ns = vg_core_max(slice->slot.over_cap_ns, -late_ns);
  charge(core, slice, vg_core_max(0, slice->slot.unpaid_ns - LATE_REPORTED_NS));
  int64_t more_ns = vg_core_max(0, slice->slot.over_cap_ns - LATE_REPORTED_NS);
  slice->slot.over_cap_ns -= more_ns;
  slice->bucket.cap_ns = vg_core_max(slice->bucket.cap_ns - more_ns, -VG_CORE_DEBT_MAX_NS);
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
  slice->report.reportable_ns = vg_core_least(slice->report.reportable_ns + slice->step.busy_ns, VG_CORE_DEBT_MAX_NS);
  if (!slice->in.outstanding && !slice->step.was_outstanding)
    slice->report.reportable_ns = vg_core_least(slice->report.reportable_ns, LATE_REPORTED_NS);
  uint64_t more_ns =
      vg_core_least(slice->in.done_total_ns - slice->report.reported_total_ns, slice->report.reportable_ns);
  slice->report.reported_total_ns = slice->in.done_total_ns;
  slice->report.reportable_ns -= more_ns;
  slice->report.done_ns += more_ns;
  slice->gate.renewed_ns -= vg_core_least(slice->gate.renewed_ns, RENEWED_BY_WORK * more_ns);
  uint64_t refill_ns = passed_ns / (VG_CORE_TURN_REFILL_NS / VG_CORE_TURN_CREDIT_NS);
  slice->turn.credit_ns = vg_core_min(slice->turn.credit_ns + (int64_t)(more_ns + refill_ns),
                                      VG_CORE_TURN_CREDITS * VG_CORE_TURN_CREDIT_NS);
}

static void accrue(const struct vg_core *core, struct vg_core_slice *slice, uint64_t passed_ns) {
  slice->step.busy_ns = vg_core_least(slice->in.busy_total_ns - slice->step.busy_seen_ns, passed_ns);
  slice->step.busy_seen_ns = slice->in.busy_total_ns;
  /* A page without sense: work is outstanding and takes no time. */
  if (!slice->step.busy_ns && slice->in.attached && slice->step.was_outstanding) slice->step.busy_ns = passed_ns;
  count_done(slice, passed_ns);
  slice->step.was_outstanding = slice->in.outstanding;
  slice->step.contexts = 0;
  if (slice->step.busy_ns) slice->step.contexts = slice->in.running ? slice->in.running : 1;
  uint64_t active_ns = vg_core_least(slice->in.active_total_ns - slice->step.active_seen_ns, passed_ns);
  slice->step.active_seen_ns = slice->in.active_total_ns;
  if (!active_ns && slice->in.attached && slice->step.was_active) active_ns = passed_ns;
  slice->demand.window_idle_ns += passed_ns - active_ns;
  const struct vg_arbiter_params *params = &core->params;
  uint32_t min_milli = slice->params.min_milli, max_milli = slice->params.max_milli;
  int64_t deepest_ns = cap_depth(core, slice);
  if (vg_core_lately_active(slice, core->last_ns)) /* arrears outlast a short pause, and do not grow in it */
    deepest_ns = vg_core_max(deepest_ns, slice->bucket.cap_ns);
  slice->bucket.cap_ns = vg_core_min(slice->bucket.cap_ns + vg_core_scaled(passed_ns, max_milli), deepest_ns);
  slice->bucket.guarantee_ns = vg_core_min(slice->bucket.guarantee_ns + vg_core_scaled(passed_ns, min_milli),
                                           vg_core_scaled(params->guarantee_depth_ns, min_milli));
  if (slice->saturating && !slice->step.was_active)
    slice->slot.virtual_ns += passed_ns; /* its due of then is not saved up */
  if (slice->saturating) return;
  /* A latency slice that needs just its minimum must not fall behind by roundings: a hundredth more. */
  uint32_t ppm = slice->params.latency ? slice->out.entitlement_ppm * 101 / 100 : slice->out.entitlement_ppm;
  deepest_ns = vg_core_max(part(params->guarantee_depth_ns, slice->out.entitlement_ppm), slice->free.lag_ns);
  if (vg_core_active(slice)) /* what it lacks for others have had it, since their work could not be taken back */
    deepest_ns = vg_core_max(deepest_ns, -core->slot_lag_ns);
  slice->free.lag_ns = vg_core_min(slice->free.lag_ns + part(passed_ns, ppm), deepest_ns);
  if (!vg_core_may_begin_turn(slice)) /* it is not owed what it does not take */
    slice->free.lag_ns = vg_core_min(slice->free.lag_ns, VG_CORE_SHORT_NS);
  int64_t owed_ns = slice->free.owed_ns + part(passed_ns, min_milli * VG_CORE_MILLI * 101 / 100);
  slice->free.owed_ns = vg_core_min(owed_ns, vg_core_scaled(params->guarantee_depth_ns, min_milli));
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
    contexts += slice->step.contexts;
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
