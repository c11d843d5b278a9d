/* arbiter_core.c - see arbiter_core.h. Order of one step: charge the time that has passed, note who has drained, close
 * what must close, grant. Nothing is ever granted to a slice whose cap bucket is empty. */
#include "arbiter_core.h"

#include <string.h>

#define MILLI 1000
/* Debt is bounded: a single kernel of a minute must not shut its owner out for an hour. */
#define DEBT_MAX_NS 1000000000ll
#define ARREARS_FACTOR 10
#define RESCUE_NS 50000000ull
/* No step for so long: the tenants followed their timetables meanwhile, which charge nobody. */
#define STALLED_NS 100000000ull
#define STOPPED_NS 50000000ull /* without notice for so long: it does not run */
/* A holder that has just been let in needs this long to wake up and launch before it can be called idle. */
#define WAKE_GRACE_NS 500000ull

static uint32_t weight_of(const struct vg_core_slice *slice) {
  uint32_t weight = slice->params.weight ? slice->params.weight : slice->params.min_milli;
  return weight ? weight : 1;
}

static bool uncapped(const struct vg_core_slice *slice) {
  return slice->params.max_milli >= MILLI;
}

static int64_t scaled(uint64_t ns, uint32_t milli) {
  return (int64_t)(ns * milli / MILLI);
}

static int64_t min_i64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t max_i64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

void vg_core_init(struct vg_core *core, const struct vg_arbiter_params *params, uint64_t now_ns) {
  memset(core, 0, sizeof *core);
  core->params = *params;
  core->last_ns = now_ns;
}

struct vg_core_slice *vg_core_find(struct vg_core *core, uint64_t id) {
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present && core->slices[i].id == id) return &core->slices[i];
  return NULL;
}

static struct vg_core_slice *free_slot(struct vg_core *core) {
  for (int i = 0; i < core->slice_count; i++)
    if (!core->slices[i].present) return &core->slices[i];
  return core->slice_count < VG_CORE_SLICES_MAX ? &core->slices[core->slice_count++] : NULL;
}

struct vg_core_slice *vg_core_set(struct vg_core *core, uint64_t id, const struct vg_slice_params *params) {
  struct vg_core_slice *slice = vg_core_find(core, id);
  if (!slice) {
    slice = free_slot(core);
    if (!slice) return NULL;
    memset(slice, 0, sizeof *slice);
    slice->present = true;
    slice->id = id;
    slice->guarantee_ns = scaled(core->params.guarantee_depth_ns, params->min_milli);
    slice->cap_ns = scaled(core->params.cap_depth_ns, params->max_milli);
    slice->bound_ns = core->params.open_bound_ns;
  }
  slice->params = *params;
  return slice;
}

void vg_core_remove(struct vg_core *core, uint64_t id) {
  struct vg_core_slice *slice = vg_core_find(core, id);
  if (slice) slice->present = false;
}

static void set_word(struct vg_core_slice *slice, uint32_t gate_state) {
  uint32_t epoch = (slice->word >> VG_GATE_EPOCH_SHIFT) + 1;
  slice->word = epoch << VG_GATE_EPOCH_SHIFT | gate_state;
}

static bool occupies(const struct vg_core_slice *slice) {
  return slice->present && slice->state != VG_CORE_SHUT;
}

/* Does it run beside others? A process that does not even notice that its gate was shut is a stopped one: what it had
 * launched is bounded and soon over, so it stops counting. */
static bool shares_device(const struct vg_core_slice *slice, uint64_t now_ns) {
  if (!occupies(slice)) return false;
  bool rescued = (slice->word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
  return slice->state != VG_CORE_OVERLAP || rescued || slice->noticed || now_ns < slice->close_ns + STOPPED_NS;
}

static bool waits(const struct vg_core_slice *slice) {
  if (!slice->present || !slice->wants || slice->state == VG_CORE_OPEN) return false;
  return slice->state == VG_CORE_SHUT || slice->noticed;
}

/* Nobody else occupies the device. */
static bool alone_now(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count; i++)
    if (&core->slices[i] != self && occupies(&core->slices[i])) return false;
  return true;
}

/* How much a cap bucket may hold. Idle time is saved up only a little; a slice that wants to run and is kept from it
 * (by a neighbour's long kernel) is in arrears instead, and may catch up: it stays under its cap from the time on which
 * it began to want. */
static int64_t cap_depth(const struct vg_core *core, const struct vg_core_slice *slice) {
  int64_t depth_ns = scaled(core->params.cap_depth_ns, slice->params.max_milli);
  return slice->was_wanting ? depth_ns * ARREARS_FACTOR : depth_ns;
}

/* A gate that was shut for its cap opens again when a lease worth granting has come together: half a quantum when
 * somebody else runs, so that hand-overs stay rare. */
static int64_t cap_needed(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (slice->state == VG_CORE_OPEN) return 0;
  uint64_t worth_ns = alone_now(core, slice) ? core->params.quantum_min_ns : core->params.quantum_ns / 2;
  return min_i64((int64_t)worth_ns, cap_depth(core, slice) / 2);
}

static bool has_cap(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (uncapped(slice)) return true;
  return slice->cap_ns > cap_needed(core, slice);
}

static bool other_waits(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count; i++)
    if (&core->slices[i] != self && waits(&core->slices[i])) return true;
  return false;
}

/* Somebody waits who might run at once: not one that has used up its cap. */
static bool keeps_others_waiting(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count; i++)
    if (&core->slices[i] != self && waits(&core->slices[i]) && has_cap(core, &core->slices[i])) return true;
  return false;
}

/* ---- charging ---- */

static void charge(struct vg_core_slice *slice, uint64_t used_ns) {
  slice->stats.charged_ns += used_ns;
  if (slice->owed_class)
    slice->guarantee_ns = max_i64(slice->guarantee_ns - (int64_t)used_ns, -DEBT_MAX_NS);
  else
    slice->virtual_ns += used_ns * MILLI / weight_of(slice); /* borrowed: only that is shared by weight */
  slice->cap_ns = max_i64(slice->cap_ns - (int64_t)used_ns, -DEBT_MAX_NS);
}

/* Splits the time since the last step among those that occupied the device. Wall time while somebody waits for them,
 * for then the holder keeps the device from him; reported busy time otherwise, so that an idle holder is not charged.
 */
static void charge_all(struct vg_core *core, uint64_t now_ns) {
  if (now_ns > core->last_ns + STALLED_NS) core->last_ns = now_ns;
  uint64_t passed_ns = now_ns - core->last_ns;
  int occupants = 0;
  for (int i = 0; i < core->slice_count; i++) occupants += shares_device(&core->slices[i], now_ns);
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    slice->guarantee_ns = min_i64(slice->guarantee_ns + scaled(passed_ns, slice->params.min_milli),
                                  scaled(core->params.guarantee_depth_ns, slice->params.min_milli));
    slice->cap_ns = min_i64(slice->cap_ns + scaled(passed_ns, slice->params.max_milli), cap_depth(core, slice));
    uint64_t busy_ns = slice->busy_total_ns - slice->busy_seen_ns;
    slice->busy_seen_ns = slice->busy_total_ns;
    if (!shares_device(slice, now_ns)) continue;
    uint64_t used_ns = busy_ns < passed_ns ? busy_ns : passed_ns;
    if (keeps_others_waiting(core, slice)) {
      used_ns = passed_ns;
      bool over = slice->quiet && slice->state != VG_CORE_OPEN;
      if (over && slice->drained_ns < now_ns) /* the drain was noticed later than it happened */
        used_ns = slice->drained_ns > core->last_ns ? slice->drained_ns - core->last_ns : 0;
    }
    charge(slice, used_ns / (uint64_t)occupants);
  }
}

/* ---- transitions ---- */

static void shut(struct vg_core_slice *slice) {
  slice->state = VG_CORE_SHUT;
  slice->lease_end_ns = 0;
}

static void close_gate(struct vg_core_slice *slice, uint64_t now_ns) {
  bool gave_up = slice->quiet; /* nothing in flight and none can be: no drain to wait for */
  set_word(slice, VG_GATE_CLOSED);
  slice->quiet = false;
  slice->overran = false;
  slice->drain_expected_ns = 0;
  slice->close_ns = now_ns;
  if (gave_up) {
    slice->stats.early_releases++;
    shut(slice);
  } else {
    slice->state = VG_CORE_DRAINING;
  }
}

static bool alone(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other != self && other->present && (other->attached || other->state != VG_CORE_SHUT)) return false;
  }
  return true;
}

static uint32_t open_state(const struct vg_core *core, const struct vg_core_slice *slice) {
  return alone(core, slice) && uncapped(slice) ? VG_GATE_SOLO : VG_GATE_COUNT;
}

static void open_gate(struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns) {
  set_word(slice, open_state(core, slice));
  slice->state = VG_CORE_OPEN;
  slice->quiet = false;
  slice->wants = false;
  slice->idle_since_ns = 0;
  slice->grant_ns = now_ns;
  slice->served = ++core->served;
  slice->stats.grants++;
}

/* ---- policy ---- */

static bool owed(const struct vg_core_slice *slice) {
  return slice->params.min_milli && slice->guarantee_ns > 0;
}

/* Is a to be served before b? Most owed part of the guarantee first, then the smallest virtual time, then whoever was
 * served longest ago. */
static bool before(const struct vg_core_slice *a, const struct vg_core_slice *b) {
  if (owed(a) != owed(b)) return owed(a);
  if (owed(a)) {
    int64_t of_a = a->guarantee_ns * (int64_t)b->params.min_milli;
    int64_t of_b = b->guarantee_ns * (int64_t)a->params.min_milli;
    if (of_a != of_b) return of_a > of_b;
  } else if (a->virtual_ns != b->virtual_ns) {
    return a->virtual_ns < b->virtual_ns;
  }
  return a->served < b->served;
}

static bool most_owed_waiter_is_behind(const struct vg_core *core, const struct vg_core_slice *holder) {
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other != holder && waits(other) && has_cap(core, other) && before(other, holder)) return false;
  }
  return true;
}

/* A holder with nothing to run that is owed more than those who wait keeps the device for a moment: a program that
 * waits for each step and then launches the next would otherwise lose a whole lease at every step. It is charged for
 * it. */
static bool is_patient(const struct vg_core *core, const struct vg_core_slice *holder) {
  bool fresh = holder->idle_since_ns && core->last_ns < holder->idle_since_ns + core->params.patience_ns;
  return fresh && owed(holder) && most_owed_waiter_is_behind(core, holder);
}

static bool active_holder(const struct vg_core *core, const struct vg_core_slice *holder) {
  if (holder->quiet) return false;
  if (holder->outstanding || holder->wants || core->last_ns < holder->grant_ns + WAKE_GRACE_NS) return true;
  return is_patient(core, holder);
}

static bool candidate(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (!slice->present || !has_cap(core, slice)) return false;
  return slice->state == VG_CORE_OPEN ? active_holder(core, slice) : waits(slice);
}

static struct vg_core_slice *pick(struct vg_core *core) {
  struct vg_core_slice *best = NULL;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (candidate(core, slice) && (!best || before(slice, best))) best = slice;
  }
  return best;
}

/* A slice that wakes from idle starts at the virtual time of those who run: idleness is not saved up. */
static void raise_virtual_time(struct vg_core *core) {
  uint64_t floor_ns = UINT64_MAX, highest_ns = 0;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (slice->present && slice->virtual_ns > highest_ns) highest_ns = slice->virtual_ns;
    bool running = slice->present && slice->was_wanting && (slice->wants || occupies(slice));
    if (running && slice->virtual_ns < floor_ns) floor_ns = slice->virtual_ns;
  }
  if (floor_ns == UINT64_MAX) floor_ns = highest_ns; /* the device was free: what was borrowed then is nobody's loss */
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    bool wanting = slice->present && (slice->wants || occupies(slice));
    if (wanting && !slice->was_wanting && slice->virtual_ns < floor_ns) slice->virtual_ns = floor_ns;
    slice->was_wanting = wanting;
  }
}

/* ---- one round ---- */

static uint64_t patience_end(const struct vg_core *core, const struct vg_core_slice *slice) {
  return slice->close_ns + core->params.bound_ns + core->params.overrun_ns;
}

/* From when on the next may run beside a slice that drains: a moment before it is expected to be done, so that its
 * waking up costs no device time, or when it is late. */
static uint64_t overlap_from(const struct vg_core *core, const struct vg_core_slice *slice) {
  uint64_t expected_ns = slice->drain_expected_ns;
  if (expected_ns < slice->close_ns) return patience_end(core, slice);
  uint64_t early_ns = expected_ns - core->params.lookahead_ns;
  return early_ns < patience_end(core, slice) ? early_ns : patience_end(core, slice);
}

static void note_drains(struct vg_core *core, uint64_t now_ns) {
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    bool draining = slice->state == VG_CORE_DRAINING || slice->state == VG_CORE_OVERLAP;
    if (draining && (slice->quiet || !slice->attached)) {
      if ((slice->word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED) set_word(slice, VG_GATE_CLOSED);
      shut(slice);
    }
    if (slice->state == VG_CORE_OPEN && !slice->attached) {
      set_word(slice, VG_GATE_CLOSED);
      shut(slice);
    }
    if (slice->state == VG_CORE_DRAINING && now_ns >= overlap_from(core, slice)) {
      slice->state = VG_CORE_OVERLAP;
      slice->rescue_ns = now_ns + RESCUE_NS;
    }
    if (slice->state == VG_CORE_OVERLAP && !slice->overran && now_ns >= patience_end(core, slice)) {
      slice->overran = true;
      slice->stats.overruns++;
    }
  }
}

static struct vg_core_slice *find_state(struct vg_core *core, enum vg_core_state state) {
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present && core->slices[i].state == state) return &core->slices[i];
  return NULL;
}

static void set_lease(struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns, bool contended) {
  slice->owed_class = contended && owed(slice);
  slice->lease_end_ns = contended ? now_ns + core->params.quantum_ns : 0;
  if (contended && !uncapped(slice) && (uint64_t)slice->cap_ns < core->params.quantum_ns) {
    uint64_t lease_ns = (uint64_t)slice->cap_ns;
    if (lease_ns < core->params.quantum_min_ns) lease_ns = core->params.quantum_min_ns;
    slice->lease_end_ns = now_ns + lease_ns;
  }
}

/* Somebody who has used much less than his guarantee has come back, and the holder runs on borrowed time: the lease is
 * cut short. Saturating tenants never get there: a turn costs them less than two quanta. */
static bool must_return(const struct vg_core *core, const struct vg_core_slice *holder,
                        const struct vg_core_slice *next) {
  if (next == holder || !owed(next) || owed(holder)) return false;
  int64_t arrears_ns = next->guarantee_ns * MILLI / next->params.min_milli;
  int64_t much_ns = min_i64(2 * (int64_t)core->params.quantum_ns, (int64_t)core->params.guarantee_depth_ns / 2);
  return arrears_ns >= much_ns && core->last_ns >= holder->grant_ns + core->params.quantum_min_ns;
}

/* The holder: its lease goes on, is extended, or ends. */
static void review_holder(struct vg_core *core, struct vg_core_slice *holder, uint64_t now_ns) {
  if (holder->quiet && holder->wants) { /* gave the device up and thought better of it: a word can be given up once */
    close_gate(holder, now_ns);
    return;
  }
  if (!has_cap(core, holder)) {
    close_gate(holder, now_ns);
    return;
  }
  if (holder->regrets) set_word(holder, open_state(core, holder)); /* its other processes run: a new word lets it in */
  if (!other_waits(core, holder)) {
    set_lease(core, holder, now_ns, false);
    return;
  }
  struct vg_core_slice *next = pick(core);
  if (!next) { /* those who wait are over their caps, and the holder is idle: let it be */
    set_lease(core, holder, now_ns, false);
    return;
  }
  if (!active_holder(core, holder)) {
    close_gate(holder, now_ns);
    return;
  }
  if (!holder->lease_end_ns) { /* somebody has just come: the open end becomes one lease, counted from its grant */
    set_lease(core, holder, now_ns, true);
    if (holder->grant_ns + core->params.quantum_ns <= now_ns) holder->lease_end_ns = now_ns;
  }
  if (now_ns < holder->lease_end_ns && !must_return(core, holder, next)) return;
  if (next == holder)
    set_lease(core, holder, now_ns, true);
  else
    close_gate(holder, now_ns);
}

static void grant(struct vg_core *core, uint64_t now_ns) {
  if (find_state(core, VG_CORE_OPEN) || find_state(core, VG_CORE_DRAINING)) return;
  struct vg_core_slice *next = pick(core);
  if (!next) return;
  open_gate(core, next, now_ns);
  set_lease(core, next, now_ns, other_waits(core, next));
}

/* Work that does not end because it waits for something that a thread at our gate has yet to launch would wait for
 * ever, and be charged for it until no bucket is left. So the gate of whoever has not drained for so long is opened for
 * a moment now and then, beside the holder's and whatever is owed. Long kernels gain nothing by it: the bound on
 * outstanding work holds their next launch back. */
static void rescue(struct vg_core *core, uint64_t now_ns) {
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->state != VG_CORE_OVERLAP || now_ns < slice->rescue_ns) continue;
    bool open = (slice->word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
    if (open || waits(slice)) set_word(slice, open ? VG_GATE_CLOSED : VG_GATE_COUNT);
    bool opened = (slice->word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
    slice->rescue_ns = now_ns + (opened ? core->params.quantum_min_ns : RESCUE_NS);
  }
}

/* Solo and counting differ only in what the shim does at the gate; a second tenant turns the one into the other. */
static void review_solo(struct vg_core *core) {
  struct vg_core_slice *holder = find_state(core, VG_CORE_OPEN);
  if (!holder) return;
  uint32_t wanted = open_state(core, holder);
  if ((holder->word & VG_GATE_STATE_MASK) != wanted) set_word(holder, wanted);
}

static uint64_t earlier(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* When a slice shut for its cap has a lease together again, or a holder will have used up its cap. */
static uint64_t cap_deadline(const struct vg_core *core, const struct vg_core_slice *slice, uint64_t now_ns) {
  if (uncapped(slice)) return VG_CORE_NEVER;
  if (slice->state == VG_CORE_OPEN) {
    if (!slice->outstanding) return VG_CORE_NEVER;
    uint64_t left_ns = slice->cap_ns > 0 ? (uint64_t)slice->cap_ns : 0;
    return now_ns + left_ns * MILLI / (MILLI - slice->params.max_milli) + 1000;
  }
  if (!slice->wants || has_cap(core, slice) || !slice->params.max_milli) return VG_CORE_NEVER;
  int64_t need_ns = cap_needed(core, slice) - slice->cap_ns;
  return now_ns + (uint64_t)need_ns * MILLI / slice->params.max_milli + 1000;
}

static uint64_t next_deadline(const struct vg_core *core, uint64_t now_ns) {
  uint64_t deadline_ns = VG_CORE_NEVER;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    if (slice->state == VG_CORE_OPEN && slice->lease_end_ns) {
      deadline_ns = earlier(deadline_ns, slice->lease_end_ns);
      if (!slice->outstanding && now_ns < slice->grant_ns + WAKE_GRACE_NS)
        deadline_ns = earlier(deadline_ns, slice->grant_ns + WAKE_GRACE_NS);
      if (slice->idle_since_ns && now_ns < slice->idle_since_ns + core->params.patience_ns)
        deadline_ns = earlier(deadline_ns, slice->idle_since_ns + core->params.patience_ns);
    }
    if (slice->state == VG_CORE_DRAINING) deadline_ns = earlier(deadline_ns, overlap_from(core, slice));
    if (slice->state == VG_CORE_OVERLAP) deadline_ns = earlier(deadline_ns, slice->rescue_ns);
    deadline_ns = earlier(deadline_ns, cap_deadline(core, slice, now_ns));
  }
  return deadline_ns;
}

static void note_idle(struct vg_core_slice *holder, uint64_t now_ns) {
  if (holder->outstanding || holder->wants)
    holder->idle_since_ns = 0;
  else if (!holder->idle_since_ns)
    holder->idle_since_ns = now_ns;
}

static uint32_t waiting_sign(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (!other_waits(core, slice)) return VG_NOBODY_WAITS;
  bool keeps = owed(slice) && most_owed_waiter_is_behind(core, slice);
  return keeps ? VG_NEIGHBOUR_MAY_WAIT : VG_NEIGHBOUR_WAITS;
}

uint64_t vg_core_step(struct vg_core *core, uint64_t now_ns) {
  if (now_ns < core->last_ns) now_ns = core->last_ns;
  charge_all(core, now_ns);
  core->last_ns = now_ns;
  note_drains(core, now_ns);
  raise_virtual_time(core);
  struct vg_core_slice *holder = find_state(core, VG_CORE_OPEN);
  if (holder) note_idle(holder, now_ns);
  if (holder) review_holder(core, holder, now_ns);
  grant(core, now_ns);
  rescue(core, now_ns);
  review_solo(core);
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    slice->neighbour_waits = waiting_sign(core, slice);
    slice->bound_ns = slice->neighbour_waits != VG_NOBODY_WAITS || !uncapped(slice) ? core->params.bound_ns
                                                                                    : core->params.open_bound_ns;
  }
  return next_deadline(core, now_ns);
}

/* ---- coasting ---- */

static uint32_t coast_share_milli(const struct vg_core *core, const struct vg_core_slice *slice) {
  uint64_t reserved = 0, weights = 0;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (!other->present || !other->attached) continue;
    reserved += other->params.min_milli;
    if (other->params.max_milli > other->params.min_milli) weights += weight_of(other);
  }
  uint64_t share = slice->params.min_milli;
  if (slice->params.max_milli > slice->params.min_milli && reserved < MILLI && weights)
    share += (MILLI - reserved) * weight_of(slice) / weights;
  return (uint32_t)(share < slice->params.max_milli ? share : slice->params.max_milli);
}

int vg_core_coast_slots(const struct vg_core *core, uint64_t id, struct vg_coast_slot *ret_slots, int capacity) {
  uint32_t begin_milli = 0;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || !slice->attached) continue;
    uint32_t share = coast_share_milli(core, slice);
    if (slice->id == id) {
      if (!share || capacity < 1) return 0;
      ret_slots[0].begin_us = begin_milli * VG_CORE_COAST_PERIOD_US / MILLI;
      ret_slots[0].end_us = (begin_milli + share) * VG_CORE_COAST_PERIOD_US / MILLI;
      return 1;
    }
    begin_milli += share;
  }
  return 0;
}
