/*
 * helper.c - the gate's work in the helper thread: seeing a closed lease drain, seeing that no work is left although
 * the program never waits, and following the site's mode while there is no daemon.
 *
 * A drain: the gate is closed; wait until no thread is inside a launch, record an event behind each context, poll it
 * (short sleeps, predicted from the estimates), report. Driver calls of this thread are in capture mode RELAXED, which
 * may query events at any time. An event behind a whole context would end the captures in it: while a stream of the
 * process captures, only the markers of the launching threads are used (vg_gate_settled()).
 */
#include <limits.h>

#include "context/context.h"
#include "gate/state.h"
#include "gen/abi/real.h"

#define FOREVER UINT64_MAX
#define IN_FLIGHT_PATIENCE_NS (5 * VG_NS_PER_MS) /* a thread stopped inside a launch never clears its mark */
#define POLL_AHEAD_NS 60000ull
#define POLL_LEAST_NS 30000ull
#define POLL_MOST_NS 1000000ull
#define POLL_GANG_NS 150000ull /* a gang's other devices may have to launch something first */
#define QUIET_NS 200000ull     /* no launch for this long: a probe is worth its cost */
#define BUSY_LOOK_LEAST_NS 200000ull
#define BUSY_LOOK_MOST_NS 1000000ull
#define CALM_LOOK_LEAST_NS 500000ull /* no neighbour waits: a look takes a processor from launching threads */
#define CALM_LOOK_MOST_NS 2000000ull
#define IDLE_LOOK_NS 1000000ull
#define REST_AFTER_NS (20 * VG_NS_PER_MS)
#define IDLE_PROBE_NS 50000ull /* a probe of an idle device takes no longer */
#define LOOK_AROUND_NS (50 * VG_NS_PER_MS)

/* Sleeps until a moment before the forecast, then polls; the later it is, the less often. */
static uint64_t next_poll(struct vg_device *device, uint64_t now_ns) {
  uint64_t remaining_ns = vg_gate_reap(device, now_ns);
  remaining_ns -= remaining_ns < device->gate->waiting_ns ? remaining_ns : device->gate->waiting_ns;
  bool overdue = vg_gate_gang_report_overdue(device, remaining_ns, now_ns);
  uint64_t expected_ns = remaining_ns && !overdue ? now_ns + remaining_ns : 0;
  VG_STORE(&VG_LOAD(&device->report)->drain_expected_ns, expected_ns);
  uint64_t pause_ns = (now_ns - device->gate->drain_begun_ns) / 64;
  if (expected_ns > now_ns + POLL_AHEAD_NS) pause_ns = expected_ns - now_ns - POLL_AHEAD_NS;
  if (pause_ns < POLL_LEAST_NS) pause_ns = POLL_LEAST_NS;
  uint64_t most_ns = vg_gate_gang_counts(device) ? POLL_GANG_NS : POLL_MOST_NS;
  if (pause_ns > most_ns) pause_ns = most_ns;
  return now_ns + pause_ns;
}

/* A probe shows when the device was done, unless it was idle already when the probe was recorded: this thread had no
 * processor before. Call it with the locks of all works, when all that has completed is reported. */
static bool was_idle_at_probe(const struct vg_gate_state *gate, uint64_t done_ns) {
  return gate->probed_ns && done_ns <= gate->probed_ns + IDLE_PROBE_NS;
}

static uint64_t done_before_probe(const struct vg_device *device, const struct vg_work *locked, uint64_t done_ns) {
  const struct vg_gate_state *gate = device->gate;
  uint64_t seen_ns = 0;
  if (!was_idle_at_probe(gate, done_ns)) return done_ns;
  if (gate->measures) return gate->ran_ns && gate->ran_ns < done_ns ? gate->ran_ns : done_ns;
  for (const struct vg_work *work = locked; work; work = work->next) vg_work_pending(work, &seen_ns);
  return vg_gate_busy_end(device, 0, seen_ns, done_ns);
}

/* all: no work is outstanding. Else what is left waits for something else. */
static void report_drained(struct vg_device *device, uint64_t done_ns, bool all) {
  struct vg_gate_state *gate = device->gate;
  struct vg_report_device *report = VG_LOAD(&device->report);
  bool probed = gate->drain == VG_DRAIN_PROBED && all;
  gate->drain = VG_DRAIN_NONE;
  struct vg_work *locked;
  vg_gate_lock_all(device, &locked);
  vg_gate_stop_tallies(device, locked);
  if (all) vg_gate_clear_all(locked, done_ns, probed && was_idle_at_probe(gate, done_ns));
  vg_gate_report_all(device, locked);
  if (probed) done_ns = done_before_probe(device, locked, done_ns);
  vg_gate_become_idle(device, done_ns);
  vg_gate_unlock_all(locked);
  VG_STORE_RELAXED(&report->overdue_ns, 0);
  VG_STORE_RELAXED(&report->drained_ns, done_ns);
  VG_STORE(&report->drained_word, gate->drain_word);
  vg_prim_eventfd_ring(device->doorbell_fd);
}

/* Have all launches before since_ns completed? *ret_done_ns is now on entry, and when they had, if that is known. */
static bool is_done(struct vg_device *device, bool probed, uint64_t since_ns, uint64_t *ret_done_ns) {
  struct vg_gate_state *gate = device->gate;
  uint64_t now_ns = *ret_done_ns;
  bool calm = VG_LOAD_RELAXED(&VG_LOAD(&device->control)->neighbour_waits) == VG_NO_NEIGHBOUR_WAITS;
  vg_probe_relax_captures(); /* the probe may be of another thread: in a test, or before a fork */
  if (probed && vg_probe_done(&gate->probes, device, calm, ret_done_ns)) return true;
  if (!VG_LOAD_RELAXED(&vg_gate_captures) || (probed && !gate->probes.ask_streams)) return false;
  vg_gate_reap(device, now_ns);
  return vg_gate_settled(device, since_ns, now_ns);
}

/* One step of the drain; returns when the next is due, FOREVER when done. Under the gate's mutex. */
static uint64_t drain_step(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  bool first = gate->drain == VG_DRAIN_IN_FLIGHT;
  if (first) {
    if (vg_gate_in_flight(device) && now_ns < gate->drain_begun_ns + IN_FLIGHT_PATIENCE_NS)
      return now_ns + POLL_LEAST_NS;
    if (!gate->busy.since_ns && !VG_LOAD_RELAXED(&gate->solo_dirty)) {
      report_drained(device, now_ns, !gate->waits);
      return gate->waits ? now_ns : FOREVER;
    }
  }
  vg_gate_mark_tails(device, gate->drain_begun_ns, now_ns);
  if (gate->drain != VG_DRAIN_PROBED) gate->drain = vg_probe_start(device) ? VG_DRAIN_PROBED : VG_DRAIN_MARKERS;
  uint64_t done_ns = now_ns;
  if (!is_done(device, gate->drain == VG_DRAIN_PROBED, gate->drain_begun_ns, &done_ns)) {
    uint64_t due_ns = next_poll(device, now_ns);
    if (vg_gate_rest(device, now_ns)) {
      report_drained(device, gate->ran_ns ? gate->ran_ns : now_ns, false);
      return now_ns;
    }
    if (first) vg_prim_eventfd_ring(device->doorbell_fd); /* the arbiter uses the forecast */
    return due_ns;
  }
  report_drained(device, done_ns, true);
  return FOREVER;
}

static uint64_t drain_again(struct vg_device *device, uint64_t now_ns) {
  device->gate->drain = VG_DRAIN_NONE;
  VG_STORE(&VG_LOAD(&device->report)->drained_word, VG_GATE_NO_WORD);
  vg_prim_eventfd_ring(device->doorbell_fd);
  return now_ns;
}

/* The gate is closed and drained. There is a drain again if work that waited for something else runs, or if a launch
 * that the driver had held up for longer than IN_FLIGHT_PATIENCE_NS has continued since. */
static uint64_t service_drained(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  if (gate->busy.since_ns) return drain_again(device, now_ns);
  if (!gate->waits) return FOREVER;
  uint64_t due_ns = vg_gate_look_at_waiting(device, now_ns);
  return due_ns ? due_ns : drain_again(device, now_ns);
}

static uint64_t service_closed(struct vg_device *device, uint32_t word, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  if (VG_LOAD_RELAXED(&VG_LOAD(&device->report)->drained_word) == word) return service_drained(device, now_ns);
  if (gate->drain == VG_DRAIN_NONE || gate->drain_word != word) {
    vg_gate_set_open_word(device, VG_GATE_NO_WORD);
    VG_STORE(&VG_LOAD(&device->report)->drain_expected_ns, 0);
    VG_STORE(&VG_LOAD(&device->report)->overdue_ns, 0);
    VG_STORE(&VG_LOAD(&device->report)->noticed_word, word);
    gate->drain = VG_DRAIN_IN_FLIGHT;
    gate->drain_word = word;
    gate->drain_begun_ns = now_ns;
    gate->look_due_ns = gate->probed_ns = gate->drain_forecast_ns = 0;
    VG_STORE_RELAXED(&gate->accepted_ns, 0);
    gate->idle_probe = false;
  }
  return drain_step(device, now_ns);
}

/* No work is outstanding: looks every millisecond whether some has begun, and after a while waits to be woken. Before
 * that, a waiting neighbour has to see that the lease was given up. */
static uint64_t service_idle(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  uint64_t look_ns = gate->waits ? vg_gate_look_at_waiting(device, now_ns) : now_ns + IDLE_LOOK_NS;
  if (!look_ns) return now_ns + BUSY_LOOK_LEAST_NS;
  bool neighbour = VG_LOAD_RELAXED(&VG_LOAD(&device->control)->neighbour_waits) == VG_NEIGHBOUR_WAITS;
  if (neighbour) vg_gate_give_up(device);
  if (gate->waits) return look_ns;
  bool given_up = !neighbour || VG_LOAD_RELAXED(&device->open_word) == VG_GATE_NO_WORD;
  return given_up && now_ns > gate->idle_since_ns + REST_AFTER_NS ? FOREVER : now_ns + IDLE_LOOK_NS;
}

/* No launches lately? */
static bool is_quiet(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  uint64_t launched = vg_gate_launched(device);
  if (launched != gate->launched) gate->launched_ns = now_ns;
  gate->launched = launched;
  return now_ns >= gate->launched_ns + QUIET_NS;
}

/* A probe behind all known launches has completed. */
static bool end_idle_probe(struct vg_device *device, uint64_t done_ns) {
  struct vg_gate_state *gate = device->gate;
  struct vg_work *locked;
  vg_gate_lock_all(device, &locked);
  vg_gate_stop_tallies(device, locked);
  bool idle = vg_gate_launched_all(locked) == gate->idle_probe_launched;
  if (!idle) vg_gate_set_counted_word(device);
  if (idle) {
    vg_gate_clear_all(locked, done_ns, gate->idle_probe && was_idle_at_probe(gate, done_ns));
    vg_gate_report_all(device, locked);
    vg_gate_become_idle(device, gate->idle_probe ? done_before_probe(device, locked, done_ns) : done_ns);
    if (!vg_gate_give_up(device)) vg_gate_ring_edge(device);
  }
  gate->idle_probe = false;
  vg_gate_unlock_all(locked);
  return idle;
}

static uint64_t look_pause(const struct vg_device *device, uint64_t left_ns) {
  bool neighbour = VG_LOAD_RELAXED(&VG_LOAD(&device->control)->neighbour_waits) != VG_NO_NEIGHBOUR_WAITS;
  bool calm = !neighbour && !device->gate->waits; /* soon all that is left may wait */
  uint64_t least_ns = calm ? CALM_LOOK_LEAST_NS : BUSY_LOOK_LEAST_NS;
  uint64_t most_ns = calm ? CALM_LOOK_MOST_NS : BUSY_LOOK_MOST_NS;
  if (left_ns < least_ns) return least_ns;
  return left_ns < most_ns ? left_ns : most_ns;
}

/* Work is outstanding: looks how much has completed and, after a while without launches, whether any is left. */
static uint64_t service_busy(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  uint64_t done_ns = now_ns;
  uint64_t left_ns = vg_gate_reap(device, now_ns);
  if (gate->look_due_ns) vg_gate_looked_late(device, gate->look_due_ns, now_ns);
  vg_gate_review_solo(device, left_ns, now_ns);
  if (vg_gate_rest(device, now_ns)) return now_ns + BUSY_LOOK_LEAST_NS;
  uint64_t pause_ns = look_pause(device, left_ns); /* no earlier than it can have completed, by the estimates */
  gate->look_due_ns = now_ns + pause_ns;
  if (!is_quiet(device, now_ns)) {
    gate->idle_probe = false;
    return now_ns + pause_ns;
  }
  vg_gate_mark_tails(device, gate->launched_ns, now_ns);
  if (!gate->idle_probe || gate->idle_probe_launched != gate->launched) {
    gate->idle_probe_launched = gate->launched;
    gate->idle_probe = vg_probe_start(device);
  }
  bool unknown = !gate->idle_probe && VG_LOAD_RELAXED(&gate->solo_dirty); /* only a probe covers those launches */
  if (unknown || !is_done(device, gate->idle_probe, gate->launched_ns, &done_ns)) return now_ns + pause_ns;
  return end_idle_probe(device, done_ns) ? now_ns + IDLE_LOOK_NS : now_ns + pause_ns;
}

/* The gate is open. How much work has completed, and is any left although the program never waits? It matters when a
 * neighbour waits, under a cap, when the arbiter watches usage, or when a slice that is alone counts. */
static uint64_t service_open(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  const struct vg_control_device *control = VG_LOAD(&device->control);
  bool neighbour = VG_LOAD_RELAXED(&control->neighbour_waits) != VG_NO_NEIGHBOUR_WAITS;
  bool capped = VG_LOAD_RELAXED(&control->max_milli) < 1000;
  bool watched = VG_LOAD_RELAXED(&control->watch) & (VG_WATCH_USAGE | VG_WATCH_EDGES);
  gate->drain = VG_DRAIN_NONE;
  bool alone = vg_gate_is_alone(device) && gate->busy.since_ns;
  if (!neighbour && !capped && !watched && !alone) {
    vg_gate_review_solo(device, 0, now_ns);
    return vg_gate_is_alone(device) && gate->deep ? now_ns + IDLE_LOOK_NS : FOREVER;
  }
  bool busy = gate->busy.since_ns || VG_LOAD_RELAXED(&gate->solo_dirty);
  if (!busy) gate->look_due_ns = 0;
  return busy ? service_busy(device, now_ns) : service_idle(device, now_ns);
}

/* No work is outstanding, no thread waits, and none can begin without waking the helper: launches at an accepted SOLO
 * gate do not wake it. */
static bool may_rest(const struct vg_device *device, uint32_t word, uint64_t now_ns) {
  const struct vg_gate_state *gate = device->gate;
  bool solo = (word & VG_GATE_STATE_MASK) == VG_GATE_SOLO && word == VG_LOAD_RELAXED(&device->open_word);
  bool idle = !gate->busy.since_ns && !gate->waiters && !gate->waits && !VG_LOAD_RELAXED(&gate->solo_dirty);
  return idle && !solo && now_ns > gate->idle_since_ns + REST_AFTER_NS;
}

uint64_t vg_gate_service(uint64_t now_ns) {
  uint64_t deadline_ns = FOREVER;
  vg_residence_review();
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    struct vg_device *device = &vg_session.devices[i];
    struct vg_gate_state *gate = device->gate;
    const uint32_t *word_at = VG_LOAD(&device->gate_word);
    if (!gate || word_at == &device->private_word || vg_departure_is_over(device)) continue;
    uint32_t word = VG_LOAD(word_at);
    pthread_mutex_lock(&gate->mutex);
    bool closed = (word & VG_GATE_STATE_MASK) == VG_GATE_CLOSED;
    uint64_t due_ns = closed ? service_closed(device, word, now_ns) : service_open(device, now_ns);
    uint64_t departure_ns = closed ? vg_departure_step(device, word, now_ns) : FOREVER;
    if (departure_ns < due_ns) due_ns = departure_ns;
    gate->helper_rests = due_ns == FOREVER && may_rest(device, word, now_ns);
    bool naps = due_ns == FOREVER && !gate->helper_rests;
    if (naps) due_ns = now_ns + LOOK_AROUND_NS;
    gate->naps_behind_drain = naps && closed;
    pthread_mutex_unlock(&gate->mutex);
    if (due_ns < deadline_ns) deadline_ns = due_ns;
  }
  return deadline_ns;
}

/* ---- without a daemon ---- */

static bool has_whole_device(const struct vg_control_device *control) {
  return control->max_milli >= 1000 && control->coast_slot_count == 1 && control->coast_slots[0].begin_us == 0 &&
         control->coast_slots[0].end_us == control->coast_period_us;
}

static void turn_to(struct vg_device *device, const uint32_t *word_at) {
  uint32_t *before = (uint32_t *)(uintptr_t)VG_LOAD(&device->gate_word);
  VG_STORE(&device->open_word, VG_GATE_NO_WORD);
  VG_STORE(&device->solo_word, VG_GATE_NO_WORD);
  VG_STORE(&device->counted_word, VG_GATE_NO_WORD);
  VG_STORE(&device->gate_word, word_at);
  vg_prim_futex_wake(before, INT_MAX); /* works on the read-only page, too */
}

void vg_gate_daemon_gone(struct vg_device *device) {
  const struct vg_control_device *control = VG_LOAD(&device->control);
  uint32_t epoch = (device->private_word >> VG_GATE_EPOCH_SHIFT) + 1;
  uint32_t state = VG_GATE_CLOSED;
  bool coast = vg_session.mode == VG_MODE_COAST;
  if (vg_session.mode == VG_MODE_OPEN || (coast && has_whole_device(control))) state = VG_GATE_SOLO;
  if (VG_LOAD_RELAXED(&control->residence)) state = VG_GATE_CLOSED; /* the driver may have locked the process */
  VG_STORE(&device->gate->coasting, coast && state == VG_GATE_CLOSED);
  VG_STORE(&device->private_word, epoch << VG_GATE_EPOCH_SHIFT | state);
  turn_to(device, &device->private_word);
}

void vg_gate_daemon_back(struct vg_device *device) {
  struct vg_gate_state *gate = device->gate;
  pthread_mutex_lock(&gate->mutex);
  VG_STORE(&gate->coasting, false);
  gate->drain = VG_DRAIN_NONE;
  vg_gate_report_again(device);
  /* Work that was launched without the daemon is outstanding also where its word is closed and was drained before: the
   * helper drains once more, else nothing would report the end of that work. */
  VG_STORE(&VG_LOAD(&device->report)->drained_word, VG_GATE_NO_WORD);
  turn_to(device, &VG_LOAD(&device->control)->gate);
  pthread_mutex_unlock(&gate->mutex);
  vg_residence_review();
}
