/* pages.c - see pages.h. */
#include "arbiter/pages.h"

#include <limits.h>
#include <string.h>

#include "arbiter/coast.h"
#include "arbiter/helper_bell.h"
#include "arbiter/links.h"
#include "arbiter/memory_pages.h"
#include "arbiter/overlap.h"
#include "arbiter/residence.h"
#include "arbiter/turns.h"
#include "base/prim.h"

#define FORECAST_MAX_NS (100 * VG_NS_PER_S) /* a longer forecast is ignored */
#define COUNTER_MAX (1ull << 58)            /* nine years of nanoseconds: a larger value is ignored */
#define REVIVED_NS (100 * VG_NS_PER_MS)     /* how often the doorbell alone counts as a sign of life */
/* Time with work outstanding that need not be counted: so many times what has been, and at most so much at once. */
#define AHEAD_FACTOR 20
#define AHEAD_MAX_NS (200 * VG_NS_PER_MS)
/* So long after a gap, what a process reports may still be of that time: it comes back from its timetable first. */
#define SETTLING_NS (100 * VG_NS_PER_MS)

static bool is_open(uint32_t word) {
  return (word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
}

/* ---- reading the report pages ---- */

/* A counter that a tenant may only raise; anything else is ignored. Returns by how much it has risen. */
static uint64_t raise_counter(uint64_t *counter, const uint64_t *reported) {
  uint64_t value = VG_LOAD_RELAXED(reported);
  uint64_t before = *counter;
  if (value > before && value <= COUNTER_MAX) *counter = value;
  return *counter - before;
}

/* The API has signed numbers: a sum beyond them would make the whole answer fail. */
static void add_counter(uint64_t *total, uint64_t more) {
  *total = *total > INT64_MAX - more ? INT64_MAX : *total + more;
}

static void read_wait_counts(struct vg_process *process) {
  uint64_t *totals = process->slice->stats.wait_counts;
  for (int i = 0; i < VG_WAIT_BUCKETS; i++) {
    uint32_t count = VG_LOAD_RELAXED(&process->report->wait_counts[i]);
    if (count <= process->wait_counts[i]) continue;
    totals[i] += count - process->wait_counts[i];
    process->wait_counts[i] = count;
  }
}

static void read_span(struct vg_span *span, const uint64_t *total_at, const uint64_t *since_at) {
  span->total_ns = VG_LOAD(total_at); /* before since, which is taken back before the span is added */
  span->since_ns = VG_LOAD(since_at);
}

/* Returns by how much the span has grown since begin_ns. settles: what it differs by from the clock is of a gap, and is
 * never counted; else it is later. */
static uint64_t count_span(struct vg_span *span, uint64_t begin_ns, uint64_t now_ns, bool settles) {
  uint64_t total_ns = span->total_ns;
  if (span->since_ns && span->since_ns < now_ns) total_ns += now_ns - span->since_ns;
  span->told_ns = total_ns;
  int64_t grown_ns = (int64_t)(total_ns - span->left_out_ns - span->counted_ns);
  uint64_t more_ns = grown_ns > 0 ? (uint64_t)grown_ns : 0, most_ns = now_ns - begin_ns;
  if (more_ns > most_ns) more_ns = most_ns;
  span->counted_ns += more_ns;
  if (settles) span->left_out_ns = total_ns - span->counted_ns;
  return more_ns;
}

/* Whether the time that has passed since work was found outstanding has been counted earlier: the total moves, within
 * what has been counted. A false page may move it for ever, so only a multiple of what was counted is believed. */
static bool is_counted_ahead(struct vg_process *process, uint64_t told_ns, uint64_t more_ns, uint64_t passed_ns) {
  bool ahead = !more_ns && process->busy.told_ns != told_ns && process->ahead_ns >= passed_ns;
  if (ahead) process->ahead_ns -= passed_ns;
  return ahead;
}

/* runs: work was outstanding when its time was last counted. */
static void count_time(struct vg_arbiter *arbiter, struct vg_process *process, bool runs, uint64_t now_ns) {
  bool settles = now_ns < process->settled_ns;
  /* What a page reports late, a step cannot count for more time than it has: the rest is for the next one. */
  uint64_t step_ns = arbiter->core.last_ns, begin_ns = process->counted_ns > step_ns ? process->counted_ns : step_ns;
  if (begin_ns > now_ns) begin_ns = now_ns;
  uint64_t told_ns = process->busy.told_ns, more_ns = count_span(&process->busy, begin_ns, now_ns, settles);
  arbiter->busy_ns += more_ns;
  process->own_busy_ns += more_ns;
  vg_overlap_count(vg_lane_of(arbiter, process->slice), process, more_ns, now_ns);
  process->slice->in.active_total_ns += count_span(&process->active, begin_ns, now_ns, settles);
  process->ahead_ns += AHEAD_FACTOR * more_ns;
  if (process->ahead_ns > AHEAD_MAX_NS) process->ahead_ns = AHEAD_MAX_NS;
  bool ahead = runs && is_counted_ahead(process, told_ns, more_ns, now_ns - process->counted_ns);
  vg_lane_of(arbiter, process->slice)->counted_ahead |= ahead;
  process->counted_ns = now_ns;
}

/* Completed work, at most the time in which some was outstanding; without that of a gap, as its time. */
static void read_done(struct vg_process *process, uint64_t now_ns) {
  uint64_t told_ns = VG_LOAD_RELAXED(&process->report->done_ns);
  int64_t grown_ns = (int64_t)(told_ns - process->done_left_out_ns - process->done_ns);
  uint64_t more_ns = grown_ns > 0 ? (uint64_t)grown_ns : 0, most_ns = process->busy.counted_ns - process->done_ns;
  if (more_ns > most_ns) more_ns = most_ns;
  process->slice->in.done_total_ns += more_ns;
  process->done_ns += more_ns;
  if (now_ns < process->settled_ns) process->done_left_out_ns = told_ns - process->done_ns;
}

/* Returns whether the process has launched anything. */
static bool read_counters(struct vg_arbiter *arbiter, struct vg_process *process) {
  const struct vg_report_device *report = process->report;
  struct vg_slice_stats *stats = &process->slice->stats;
  uint64_t launched = raise_counter(&process->launches, &report->launches);
  vg_links_read(arbiter, process);
  add_counter(&stats->launches, launched);
  if (VG_LOAD_RELAXED(&report->waited_ns) > process->waited_ns) read_wait_counts(process);
  add_counter(&stats->throttled_ns, raise_counter(&process->waited_ns, &report->waited_ns));
  raise_counter(&process->peak_bytes, &report->peak_bytes);
  raise_counter(&process->denied, &report->denied);
  return launched > 0;
}

/* Every process of a gang counts as at work: the other devices must know that no launch follows. */
static bool is_at_work(const struct vg_process *process) {
  bool may_run = process->may_run || process->slice->params.gang;
  return process->contexts && (process->reported.outstanding || process->busy.since_ns || may_run);
}

/* The process's answer to the word in its page. Without a context it can have nothing on the device. A process that
 * hides the device (CUDA_VISIBLE_DEVICES) never answers here: no drain of its slice would end. */
static void read_answers(struct vg_process *process, uint64_t now_ns) {
  const struct vg_report_device *report = process->report;
  bool open = is_open(process->word);
  process->reported.noticed = process->reported.gave_up_while_waiting = false;
  process->reported.drained_ns = process->reported.drain_expected_ns = process->reported.overdue_ns = 0;
  bool answered = VG_LOAD(open ? &report->given_up_word : &report->drained_word) == process->word;
  process->reported.quiet = process->contexts == 0 || answered || (!open && !process->answers);
  process->reported.gave_up_while_waiting = open && answered && process->reported.waiting;
  if (open) return;
  if (answered) process->may_run = false;
  uint64_t drained_ns = VG_LOAD(&report->drained_ns);
  process->reported.drained_ns = drained_ns < now_ns ? drained_ns : now_ns;
  process->reported.noticed = VG_LOAD(&report->noticed_word) == process->word;
  if (!process->reported.noticed) return;
  process->reported.drain_expected_ns = VG_LOAD(&report->drain_expected_ns);
  uint64_t overdue_ns = answered || !process->reported.outstanding ? 0 : VG_LOAD(&report->overdue_ns);
  process->reported.overdue_ns = overdue_ns < now_ns ? overdue_ns : now_ns;
}

/* May the page change, without its doorbell, in a way that matters before the next heartbeat? */
static uint8_t due_next(const struct vg_process *process) {
  bool open = is_open(process->word);
  bool runs = process->reported.outstanding || process->busy.since_ns || vg_span_is_late(&process->busy) ||
              process->has_unread_runs;
  bool drains = !open && !process->reported.quiet;
  bool enters = open && process->reported.waiting;
  if (runs || drains || enters) return VG_DUE_PAGE;
  return process->active.since_ns ? VG_DUE_CLOCK : 0;
}

/* Threads at the gate launch soon after it was opened. A process that does not is stopped (SIGSTOP, a paused container)
 * or reports falsely: it counts as not waiting until it works, since its neighbours would wait for it. At a closed gate
 * no process can work; there its doorbell shows, at a bounded rate, that it runs again. */
static uint32_t believed_waiting(struct vg_process *process, uint32_t waiting, bool worked, uint64_t now_ns) {
  bool at_closed = process->rang && !is_open(process->word) && process->still_ns >= VG_STILL_NS;
  bool revived = at_closed && now_ns >= process->revived_ns + REVIVED_NS;
  process->rang = at_closed && !revived && !worked; /* it counts once REVIVED_NS have passed */
  if (revived) process->revived_ns = now_ns;
  if (worked || revived)
    process->still_ns = 0;
  else if (waiting && is_open(process->word))
    process->still_ns += now_ns - process->counted_ns;
  return process->still_ns < VG_STILL_NS ? waiting : 0;
}

static void read_page(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t now_ns) {
  const struct vg_report_device *report = process->report;
  struct vg_reported before = process->reported;
  uint64_t busy_ns = process->busy.total_ns;
  bool worked = read_counters(arbiter, process);
  bool had_context = process->contexts > 0;
  process->contexts = VG_LOAD_RELAXED(&report->contexts);
  process->reported.passed_serial = VG_LOAD(&report->passed_serial); /* first: what passes is outstanding before */
  process->reported.outstanding = VG_LOAD(&report->outstanding) != 0;
  uint32_t waiting = VG_LOAD(&report->waiting);
  vg_pages_read_memory(arbiter, process, now_ns);
  read_span(&process->busy, &report->busy_ns, &report->busy_since_ns);
  read_span(&process->active, &report->active_ns, &report->active_since_ns);
  worked |= process->reported.outstanding || process->busy.total_ns > busy_ns;
  process->reported.waiting = believed_waiting(process, waiting, worked, now_ns);
  vg_residence_note_work(process, worked, now_ns);
  count_time(arbiter, process, before.outstanding, now_ns);
  read_done(process, now_ns);
  bool late = !is_open(process->word) && !process->answers && process->reported.outstanding && process->contexts;
  process->answers |= late; /* it launched at the moment at which its gate was closed */
  if (late || (!had_context && process->contexts))
    vg_helper_bell_ring(process); /* its helper has not been woken for this word */
  read_answers(process, now_ns);
  uint8_t *due = &arbiter->due[process->index];
  *due = due_next(process) | (*due & VG_DUE_DOORBELL);
  bool same = memcmp(&before, &process->reported, sizeof before) == 0 && !process->reported.drain_expected_ns;
  if (!same) vg_lane_of(arbiter, process->slice)->stale = true;
}

/* The core's inputs of one slice, from the last reports of its processes. */
static void sum_up(struct vg_arbiter *arbiter, struct vg_core_slice *slice, uint64_t now_ns) {
  struct vg_lane *lane = vg_lane_of(arbiter, slice);
  uint32_t waiting = 0;
  bool attached = lane->first != NULL;
  arbiter->coast_version += attached != slice->in.attached;
  slice->in.attached = attached;
  slice->in.running = 0;
  slice->in.outstanding = slice->in.gave_up_while_waiting = slice->in.noticed = false;
  slice->in.quiet = true;
  slice->in.drained_ns = slice->gate.close_ns;
  slice->in.drain_expected_ns = 0; /* the hardware runs one process at a time: the forecasts add up */
  for (const struct vg_process *process = lane->first; process; process = process->next) {
    waiting += process->reported.waiting;
    slice->in.outstanding |= process->reported.outstanding;
    slice->in.running += process->reported.outstanding;
    slice->in.gave_up_while_waiting |= process->reported.gave_up_while_waiting;
    slice->in.noticed |= process->reported.noticed;
    slice->in.quiet &= process->reported.quiet && !vg_turn_is_awaited(lane, process);
    if (process->reported.drained_ns > slice->in.drained_ns) slice->in.drained_ns = process->reported.drained_ns;
    if (process->reported.drain_expected_ns <= now_ns || process->reported.drain_expected_ns > now_ns + FORECAST_MAX_NS)
      continue;
    if (!slice->in.drain_expected_ns) slice->in.drain_expected_ns = now_ns;
    slice->in.drain_expected_ns += process->reported.drain_expected_ns - now_ns;
  }
  slice->in.wants = waiting > 0;
  arbiter->waiting[slice - arbiter->core.slices] = waiting;
  lane->stale = false;
}

void vg_pages_end_gap(struct vg_arbiter *arbiter, uint64_t now_ns) {
  for (int i = 0; i < arbiter->process_end; i++) {
    struct vg_process *process = arbiter->processes[i];
    if (!process) continue;
    process->counted_ns = now_ns;
    process->settled_ns = now_ns + SETTLING_NS;
    arbiter->due[i] |= VG_DUE_PAGE; /* as last read it says nothing of the gap */
    if (process->is_unread) continue;
    VG_STORE(&process->control->heartbeat_ns, now_ns);
    vg_helper_bell_ring(process);
  }
}

void vg_pages_read(struct vg_arbiter *arbiter, uint64_t now_ns) {
  bool holds[VG_SLICES_MAX];
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    const struct vg_core_slice *slice = &arbiter->core.slices[i];
    /* the processes of the slot's holder may begin at any moment, and do not ring */
    holds[i] = slice->present && slice->saturating && slice->gate.state == VG_CORE_OPEN;
  }
  for (int i = 0; i < arbiter->process_end; i++) {
    bool page = (arbiter->due[i] & VG_DUE_PAGE) || holds[arbiter->lane_of[i]];
    if (page && arbiter->processes[i])
      read_page(arbiter, arbiter->processes[i], now_ns);
    else if (arbiter->due[i] & VG_DUE_CLOCK)
      count_time(arbiter, arbiter->processes[i], arbiter->processes[i]->reported.outstanding, now_ns);
  }
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    struct vg_core_slice *slice = &arbiter->core.slices[i];
    slice->in.busy_total_ns += vg_overlap_take(&arbiter->lanes[i], now_ns - arbiter->core.last_ns);
    slice->in.counted_ahead = arbiter->lanes[i].counted_ahead;
    arbiter->lanes[i].counted_ahead = false;
    if (slice->present && arbiter->lanes[i].stale) sum_up(arbiter, slice, now_ns);
  }
}

/* ---- publishing ---- */

/* Stores a gate word. A thread that begins to wait, or to launch, after its page was read here finds the new word. */
static void publish_word(struct vg_arbiter *arbiter, struct vg_process *process, uint32_t word) {
  process->word = word;
  VG_STORE(&process->control->gate, word);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  process->reported.outstanding = VG_LOAD_RELAXED(&process->report->outstanding) != 0;
  process->may_run |= (word & VG_GATE_STATE_MASK) == VG_GATE_SOLO;
  process->answers = !is_open(word) && is_at_work(process);
  process->reported.quiet = process->contexts == 0 || (!is_open(word) && !process->answers);
  process->reported.noticed = process->reported.gave_up_while_waiting = false;
  process->reported.drained_ns = process->reported.drain_expected_ns = 0;
  if (is_open(word) && VG_LOAD_RELAXED(&process->report->waiting)) vg_prim_futex_wake(&process->control->gate, INT_MAX);
  arbiter->due[process->index] |= VG_DUE_PAGE;
}

/* The helpers of processes with nothing to run are not woken: they could only report that. A page is left unread long
 * after the helper has begun to rest, and whatever begins then wakes it; but launches at a SOLO gate change no page. */
static bool is_helper_needed(const struct vg_process *process, bool drains, bool changes) {
  changes &= !process->is_unread || is_at_work(process);
  return process->contexts && (changes || (drains && (process->answers || is_at_work(process))));
}

static void publish_to(struct vg_arbiter *arbiter, const struct vg_core_slice *slice, struct vg_process *process,
                       bool admitted) {
  struct vg_control_device *control = process->control;
  VG_STORE_RELAXED(&control->min_milli, slice->params.min_milli);
  VG_STORE_RELAXED(&control->max_milli, slice->params.max_milli);
  VG_STORE_RELAXED(&control->bound_ns, slice->out.bound_ns);
  VG_STORE(&control->neighbour_waits, slice->out.neighbour_waits);
  uint32_t watch = slice->params.rotates ? VG_WATCH_CALLS : 0; /* also before the core's first step for the slice */
  if (slice->params.moves_itself) watch |= VG_WATCH_MOVES;
  VG_STORE(&control->watch, slice->out.watch | watch);
  if (admitted && process->word != slice->out.word) publish_word(arbiter, process, slice->out.word);
}

static void publish_lane(struct vg_arbiter *arbiter, const struct vg_core_slice *slice, struct vg_lane *lane) {
  bool word = lane->word != slice->out.word;
  bool drains = lane->neighbour_waits != slice->out.neighbour_waits || (word && !is_open(slice->out.word));
  bool changes = lane->watch != slice->out.watch;
  bool rotates = (lane->watch ^ slice->out.watch) & VG_WATCH_CALLS; /* or does no longer: who rests knows it, too */
  bool waits = false;
  const struct vg_process *alone = vg_turn_give(&arbiter->core, slice, lane);
  for (struct vg_process *process = lane->first; process; process = process->next) {
    bool moves = vg_residence_publish(lane, process);
    publish_to(arbiter, slice, process, !alone || process == alone);
    if (moves || rotates || is_helper_needed(process, drains, changes)) vg_helper_bell_ring(process);
    waits |= !process->reported.quiet;
  }
  arbiter->hurry |= word && !is_open(slice->out.word) && !waits;
  lane->stale |= word || (lane->apart && !alone);
  lane->apart = alone != NULL;
  lane->word = slice->out.word;
  lane->neighbour_waits = slice->out.neighbour_waits;
  lane->watch = slice->out.watch;
  lane->residence_shown = lane->residence;
  lane->move_word_shown = lane->move_word;
  lane->min_milli = slice->params.min_milli;
  lane->max_milli = slice->params.max_milli;
  lane->bound_ns = slice->out.bound_ns;
}

static bool is_published(const struct vg_core *core, const struct vg_core_slice *slice, const struct vg_lane *lane) {
  return lane->word == slice->out.word && lane->neighbour_waits == slice->out.neighbour_waits &&
         lane->watch == slice->out.watch && lane->min_milli == slice->params.min_milli &&
         lane->max_milli == slice->params.max_milli && lane->bound_ns == slice->out.bound_ns &&
         lane->residence_shown == lane->residence && lane->move_word_shown == lane->move_word &&
         !vg_turn_is_over(core, slice, lane);
}

static void publish_others(const struct vg_arbiter *arbiter, struct vg_process *process, uint64_t now_ns) {
  bool others_run = arbiter->busy_count > process->reported.outstanding;
  VG_STORE_RELAXED(&process->control->others_busy_ns, 1 + arbiter->busy_ns - process->own_busy_ns); /* 0: not known */
  VG_STORE(&process->control->others_since_ns, others_run ? now_ns : 0);
}

void vg_pages_publish(struct vg_arbiter *arbiter) {
  for (int open = 1; open >= 0; open--)
    for (int i = 0; i < arbiter->core.slice_count; i++) {
      const struct vg_core_slice *slice = &arbiter->core.slices[i];
      struct vg_lane *lane = &arbiter->lanes[i];
      if (slice->present && is_open(slice->out.word) == open && !is_published(&arbiter->core, slice, lane))
        publish_lane(arbiter, slice, lane);
    }
}

static struct vg_coast_slot coast_slot(struct vg_arbiter *arbiter, const struct vg_core_slice *slice) {
  if (arbiter->coast_made != arbiter->coast_version) vg_core_coast(&arbiter->core, arbiter->coast_slots);
  arbiter->coast_made = arbiter->coast_version;
  return arbiter->coast_slots[slice - arbiter->core.slices];
}

static void publish_coast(struct vg_arbiter *arbiter, struct vg_process *process) {
  struct vg_control_device *control = process->control;
  struct vg_coast_slot slot = coast_slot(arbiter, process->slice);
  uint32_t seq = control->coast_seq;
  VG_STORE_RELAXED(&control->coast_seq, seq + 1);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  VG_STORE_RELAXED(&control->coast_period_us, VG_CORE_COAST_PERIOD_US);
  VG_STORE_RELAXED(&control->coast_slot_count, 1);
  VG_STORE_RELAXED(&control->coast_slots[0].begin_us, slot.begin_us);
  VG_STORE_RELAXED(&control->coast_slots[0].end_us, slot.end_us);
  VG_STORE(&control->coast_seq, seq + 2);
  process->coast_version = arbiter->coast_version;
}

/* Its control page says so, and it rings when its page changes. */
static bool rests(const struct vg_arbiter *arbiter, int index) {
  return arbiter->calm[index] == VG_REST_BEATS && !arbiter->due[index];
}

/* Not to those that rest: they know an earlier time. */
void vg_pages_publish_busy(struct vg_arbiter *arbiter, uint64_t now_ns) {
  uint32_t count = 0;
  for (int i = 0; i < arbiter->process_end; i++)
    if ((arbiter->due[i] & VG_DUE_PAGE) && arbiter->processes[i]) count += arbiter->processes[i]->reported.outstanding;
  if (arbiter->busy_ns == arbiter->busy_shown_ns && count == arbiter->busy_count) return;
  arbiter->busy_shown_ns = arbiter->busy_ns;
  arbiter->busy_count = count;
  for (int i = 0; i < arbiter->process_end; i++)
    if (arbiter->processes[i] && !rests(arbiter, i)) publish_others(arbiter, arbiter->processes[i], now_ns);
}

/* A thousand pages are in no cache: the next ones are fetched while this one is read. */
static void fetch_ahead(const struct vg_arbiter *arbiter, int index) {
  const struct vg_process *soon = index + 4 < arbiter->process_end ? arbiter->processes[index + 4] : NULL;
  if (index + 8 < arbiter->process_end) __builtin_prefetch(arbiter->processes[index + 8]);
  if (!soon || rests(arbiter, index + 4)) return;
  __builtin_prefetch(&soon->control->heartbeat_ns, 1);
  for (size_t at = 0; at < offsetof(struct vg_report_device, run_count); at += 64)
    __builtin_prefetch((const char *)soon->report + at);
}

void vg_pages_beat_soon(struct vg_arbiter *arbiter, uint64_t now_ns) {
  uint64_t soon_ns = now_ns + arbiter->core.params.heartbeat_ns; /* never sooner: calm is counted in heartbeats */
  if (arbiter->beat_due_ns > soon_ns) arbiter->beat_due_ns = soon_ns;
  if (!arbiter->beat_parts) arbiter->beat_parts = 1;
}

void vg_pages_wake(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t now_ns) {
  arbiter->calm[process->index] = 0;
  if (!process->is_unread) return;
  vg_pages_beat_soon(arbiter, now_ns);
  process->is_unread = false;
  VG_STORE(&process->control->heartbeat_ns, now_ns); /* it is due one from here on */
  VG_STORE(&process->control->unread, 0);
}

/* The number is the time: a process that attaches again, also to another daemon, gets another one than that for which
 * it has rung. */
static void leave_unread(struct vg_process *process, uint64_t now_ns) {
  uint32_t time_ms = (uint32_t)(now_ns / VG_NS_PER_MS);
  process->is_unread = true;
  VG_STORE(&process->control->unread, time_ms ? time_ms : 1);
}

/* Returns whether the page has changed. */
static bool beat(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t now_ns) {
  uint8_t *calm = &arbiter->calm[process->index];
  if (process->coast_version != arbiter->coast_version) publish_coast(arbiter, process);
  if (!rests(arbiter, process->index)) VG_STORE(&process->control->heartbeat_ns, now_ns);
  uint64_t active_ns = process->active.total_ns;
  read_page(arbiter, process, now_ns);
  if (arbiter->due[process->index] || process->active.total_ns != active_ns)
    vg_pages_wake(arbiter, process, now_ns);
  else if (*calm < VG_REST_BEATS && ++*calm == VG_CALM_BEATS)
    leave_unread(process, now_ns);
  return vg_lane_of(arbiter, process->slice)->stale;
}

uint64_t vg_pages_period_ns(const struct vg_arbiter *arbiter) {
  return arbiter->core.params.heartbeat_ns * (arbiter->beat_parts ? 1 : VG_REST_PERIODS);
}

/* In how many rounds a table is served in which so many processes do not rest, or all are looked at. Counted again in
 * each round, since processes begin to rest, and a thousand may ring between two rounds. */
static int parts_of(const struct vg_arbiter *arbiter) {
  int count = 0;
  for (int i = 0; i < arbiter->process_end; i++)
    count += arbiter->processes[i] && (arbiter->beat_all || !rests(arbiter, i));
  return (count + VG_BEAT_PROCESSES - 1) / VG_BEAT_PROCESSES;
}

bool vg_pages_beat(struct vg_arbiter *arbiter, uint64_t now_ns) {
  bool news = false;
  int i = arbiter->beat_index;
  if (i == 0) {
    arbiter->beat_all = arbiter->coast_beaten != arbiter->coast_version || ++arbiter->beats % VG_SWEEP_BEATS == 0;
    arbiter->coast_beaten = arbiter->coast_version;
  }
  for (int served = 0; i < arbiter->process_end && served < VG_BEAT_PROCESSES; i++) {
    if (!arbiter->processes[i] || (rests(arbiter, i) && !arbiter->beat_all)) continue;
    fetch_ahead(arbiter, i);
    served++;
    news |= beat(arbiter, arbiter->processes[i], now_ns);
  }
  bool whole = i >= arbiter->process_end; /* processes at the end may have gone since the round before */
  arbiter->beat_all &= !whole;
  arbiter->beat_index = whole ? 0 : i;
  arbiter->beat_parts = parts_of(arbiter);
  int parts = arbiter->beat_parts > 1 ? arbiter->beat_parts : 1;
  arbiter->beat_due_ns = now_ns + vg_pages_period_ns(arbiter) / (uint64_t)parts;
  return news || arbiter->memory_stale;
}

/* ---- a new process ---- */

void vg_pages_begin(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t now_ns) {
  publish_coast(arbiter, process);
  if (process->memory.granted_bytes)
    vg_pages_memory(arbiter, now_ns);
  else
    vg_pages_begin_memory(arbiter, process, now_ns);
  arbiter->links_due_ns = 0; /* it has no rate yet */
  VG_STORE(&process->control->heartbeat_ns, now_ns);
  vg_residence_publish(vg_lane_of(arbiter, process->slice), process);
  publish_to(arbiter, process->slice, process, true); /* the slice's others have theirs, or get it in the next round */
}
