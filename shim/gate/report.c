/*
 * report.c - the gate's reports to the arbiter, in the report page: since when work is outstanding (busy), since when
 * the device is wanted (active: work outstanding or a thread at the closed gate), completed work, how long threads
 * waited. Called under the gate's mutex.
 *
 * A page of a restarted daemon counts time from zero, so that its arbiter charges nothing for the time before. A span's
 * end is written after its beginning was cleared, and read in the other order: a reader in between sees too little for
 * a moment, never too much.
 */
#include "gate/state.h"
#include "session/helper_wake.h"

#define WAIT_FIRST_BUCKET_NS (16 * VG_NS_PER_US)

/* What the slice's other processes ran at the same time counts once, which only the arbiter knows. */
static void show_run(struct vg_report_device *report, uint64_t begin_ns, uint64_t end_ns) {
  if (end_ns <= begin_ns) return;
  uint64_t count = report->run_count;
  struct vg_run_shown *run = &report->runs[count % VG_RUNS_SHOWN];
  VG_STORE_RELAXED(&run->begin_ns, begin_ns);
  VG_STORE_RELAXED(&run->end_ns, end_ns);
  VG_STORE(&report->run_count, count + 1);
}

static void show_runs(struct vg_report_device *report, const struct vg_runs *runs, uint64_t begin_ns, uint64_t end_ns) {
  for (uint32_t i = 0; i < runs->count; i++) {
    const struct vg_run *run = &runs->of[i];
    show_run(report, run->begin_ns > begin_ns ? run->begin_ns : begin_ns, run->end_ns < end_ns ? run->end_ns : end_ns);
  }
}

static void span_begin(struct vg_gate_span *span, uint64_t now_ns, uint64_t *since_at) {
  VG_STORE_RELAXED(&span->since_ns, now_ns); /* launching threads read whether it is 0 */
  VG_STORE(since_at, now_ns);
}

static void span_end(struct vg_gate_span *span, uint64_t now_ns, uint64_t *since_at, uint64_t *total_at) {
  if (now_ns > span->since_ns) span->total_ns += now_ns - span->since_ns;
  VG_STORE_RELAXED(&span->since_ns, 0);
  VG_STORE(since_at, 0);
  VG_STORE(total_at, span->total_ns);
}

/* A span begins again on a page that has not been written to yet. */
static void span_restart(struct vg_gate_span *span, uint64_t now_ns, uint64_t *since_at) {
  span->total_ns = 0;
  if (span->since_ns) span_begin(span, now_ns, since_at);
}

static struct vg_report_device *page_of(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  struct vg_report_device *report = VG_LOAD(&device->report);
  vg_report_changes(device);
  if (gate->page != report) {
    gate->page = report;
    if (now_ns > gate->settled_ns) gate->settled_ns = now_ns;
    span_restart(&gate->busy, now_ns, &report->busy_since_ns);
    span_restart(&gate->active, now_ns, &report->active_since_ns);
    VG_STORE(&report->outstanding, gate->busy.since_ns != 0);
    VG_STORE(&report->collectives, gate->collectives);
  }
  return report;
}

void vg_gate_report_again(struct vg_device *device) {
  page_of(device, vg_prim_now_ns());
}

void vg_gate_wake_helper(struct vg_device *device) {
  struct vg_gate_state *gate = device->gate;
  if (VG_LIKELY(!gate->helper_rests)) return;
  gate->helper_rests = false;
  /* While the helper rested, the program may have closed the shim's descriptors and may have files of its own there. */
  int fd = VG_LOAD_RELAXED(&device->doorbell_fd);
  if (!vg_prim_eventfd_is(fd))
    __atomic_compare_exchange_n(&device->doorbell_fd, &fd, -1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  vg_helper_wake();
  vg_prim_eventfd_ring(VG_LOAD_RELAXED(&device->doorbell_fd)); /* the arbiter has not read the page meanwhile either */
}

void vg_gate_set_counted_word(struct vg_device *device) {
  uint32_t word = VG_LOAD_RELAXED(&device->open_word), state = word & VG_GATE_STATE_MASK;
  bool solo = state == VG_GATE_SOLO && !device->gate->deep;
  bool counted = device->gate->busy.since_ns && !solo && (state == VG_GATE_COUNT || state == VG_GATE_SOLO) &&
                 !VG_LOAD_RELAXED(&vg_prim_membarrier_refused); /* the short path has no fence */
  VG_STORE(&device->solo_word, solo ? word : VG_GATE_NO_WORD);
  VG_STORE(&device->counted_word, counted ? word : VG_GATE_NO_WORD);
}

void vg_gate_set_open_word(struct vg_device *device, uint32_t word) {
  VG_STORE(&device->open_word, word);
  vg_gate_set_counted_word(device);
}

void vg_gate_become_busy(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  if (gate->busy.since_ns) return;
  struct vg_report_device *report = page_of(device, now_ns);
  gate->span_done_ns = 0;
  /* What waited may have begun to run since then; nothing else has. */
  if (!VG_LOAD_RELAXED(&gate->waits) && now_ns > gate->settled_ns) gate->settled_ns = now_ns;
  span_begin(&gate->busy, now_ns, &report->busy_since_ns);
  if (!gate->active.since_ns) span_begin(&gate->active, now_ns, &report->active_since_ns);
  VG_STORE(&report->outstanding, 1);
  vg_gate_set_counted_word(device);
  vg_gate_wake_helper(device);
  if (gate->naps_behind_drain) vg_helper_wake();
  gate->naps_behind_drain = false;
  vg_gate_ring_edge(device);
}

bool vg_gate_become_idle(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  bool passed = VG_LOAD_RELAXED(&gate->solo_dirty);
  if (gate->busy.since_ns || passed) gate->idle_since_ns = now_ns;
  if (passed) gate->settled_ns = now_ns;
  VG_STORE_RELAXED(&gate->solo_dirty, VG_LOAD_RELAXED(&device->solo_word) != VG_GATE_NO_WORD);
  if (!gate->busy.since_ns) return false;
  struct vg_report_device *report = page_of(device, now_ns);
  bool measured = gate->measures && !passed;
  uint64_t end_ns = measured ? gate->busy.since_ns : now_ns;
  show_run(report, gate->busy.since_ns, end_ns);
  span_end(&gate->busy, end_ns, &report->busy_since_ns, &report->busy_ns);
  if (report->done_ns > gate->busy.total_ns) VG_STORE_RELAXED(&report->done_ns, gate->busy.total_ns);
  if (!measured) gate->settled_ns = now_ns;
  if (!gate->waiters) span_end(&gate->active, now_ns, &report->active_since_ns, &report->active_ns);
  VG_STORE(&report->outstanding, 0);
  vg_gate_set_counted_word(device);
  return true;
}

uint64_t vg_gate_busy_end(const struct vg_device *device, uint64_t left_ns, uint64_t seen_ns, uint64_t now_ns) {
  const struct vg_gate_state *gate = device->gate;
  if (!gate->busy.since_ns || VG_LOAD_RELAXED(&gate->solo_dirty)) return now_ns;
  uint64_t end_ns = gate->busy.since_ns + gate->span_done_ns + left_ns;
  if (end_ns < seen_ns) end_ns = seen_ns;
  return end_ns < now_ns ? end_ns : now_ns;
}

void vg_gate_take_back(struct vg_device *device, uint64_t idle_ns) {
  struct vg_gate_state *gate = device->gate;
  if (!gate->busy.since_ns || !idle_ns || gate->measures) return;
  span_begin(&gate->busy, gate->busy.since_ns + idle_ns, &page_of(device, vg_prim_now_ns())->busy_since_ns);
}

void vg_gate_ring_edge(struct vg_device *device) {
  if (VG_LOAD_RELAXED(&VG_LOAD(&device->control)->watch) & VG_WATCH_EDGES) vg_prim_eventfd_ring(device->doorbell_fd);
}

void vg_gate_wait_begins(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  struct vg_report_device *report = page_of(device, now_ns);
  gate->waiters++;
  vg_gate_wake_helper(device);
  if (!gate->active.since_ns) span_begin(&gate->active, now_ns, &report->active_since_ns);
}

static void count_wait(struct vg_report_device *report, uint64_t waited_ns) {
  int bucket = 0;
  while (bucket < VG_WAIT_BUCKETS - 1 && waited_ns >= WAIT_FIRST_BUCKET_NS << bucket) bucket++;
  VG_STORE_RELAXED(&report->wait_counts[bucket], report->wait_counts[bucket] + 1);
}

void vg_gate_report_memory_wait(struct vg_device *device, uint64_t part_ns, uint64_t whole_ns) {
  if (!device->gate) return;
  pthread_mutex_lock(&device->gate->mutex);
  struct vg_report_device *report = page_of(device, vg_prim_now_ns());
  VG_STORE_RELAXED(&report->waited_ns, report->waited_ns + part_ns);
  if (whole_ns) count_wait(report, whole_ns);
  pthread_mutex_unlock(&device->gate->mutex);
}

void vg_gate_wait_ends(struct vg_device *device, uint64_t begun_ns, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  struct vg_report_device *report = page_of(device, now_ns);
  count_wait(report, now_ns - begun_ns);
  VG_STORE_RELAXED(&report->waited_ns, report->waited_ns + now_ns - begun_ns);
  gate->waiters--;
  if (!gate->waiters && !gate->busy.since_ns)
    span_end(&gate->active, now_ns, &report->active_since_ns, &report->active_ns);
}

void vg_gate_settle(struct vg_device *device, uint64_t sure_ns) {
  struct vg_gate_state *gate = device->gate;
  bool passed = VG_LOAD_RELAXED(&gate->solo_dirty); /* when such launches run is unknown */
  if (sure_ns > gate->settled_ns && !passed) {
    struct vg_report_device *report = page_of(device, vg_prim_now_ns());
    bool busy = gate->busy.since_ns != 0;
    if (busy) VG_STORE(&report->busy_since_ns, 0);              /* a reader in between sees too little for a moment */
    if (sure_ns < gate->settled_ns) sure_ns = gate->settled_ns; /* the page is new */
    gate->busy.total_ns += vg_runs_within(&gate->runs, gate->settled_ns, sure_ns);
    show_runs(report, &gate->runs, gate->settled_ns, sure_ns);
    uint64_t ran_ns = vg_runs_last(&gate->runs, sure_ns);
    if (ran_ns) gate->ran_ns = ran_ns;
    gate->settled_ns = sure_ns;
    VG_STORE(&report->busy_ns, gate->busy.total_ns);
    if (busy) span_begin(&gate->busy, sure_ns, &report->busy_since_ns);
  }
  vg_runs_forget(&gate->runs, sure_ns);
}

/* Streams that run side by side are each timed as if they had the device alone; together they cannot have had it for
 * longer than work was outstanding. */
void vg_gate_report_news(struct vg_device *device, uint64_t done_ns, uint64_t launches) {
  if (!done_ns && !launches) return;
  struct vg_gate_state *gate = device->gate;
  uint64_t now_ns = vg_prim_now_ns();
  struct vg_report_device *report = page_of(device, now_ns);
  gate->span_done_ns += done_ns;
  uint64_t busy_ns = gate->busy.total_ns;
  if (gate->busy.since_ns && now_ns > gate->busy.since_ns) busy_ns += now_ns - gate->busy.since_ns;
  done_ns += report->done_ns;
  VG_STORE_RELAXED(&report->done_ns, done_ns < busy_ns ? done_ns : busy_ns);
  if (launches) __atomic_add_fetch(&report->launches, launches, __ATOMIC_RELAXED);
}
