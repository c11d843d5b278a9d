/* memory_pages.c - what the shared pages say of memory, for memory.c; see memory_pages.h. */
#include "arbiter/memory_pages.h"

#include <limits.h>
#include <string.h>

#include "arbiter/helper_bell.h"
#include "base/prim.h"

#define BEGIN_READS_MAX 64            /* pages of its slice that a newcomer's begin reads */
#define PINNED_MAX_BYTES (1ull << 50) /* of a process: a page that says more still adds up to a number */

uint64_t vg_pages_pinned_bytes(const struct vg_process *process) {
  uint64_t bytes = VG_LOAD_RELAXED(&process->report->pinned_bytes);
  return bytes < PINNED_MAX_BYTES ? bytes : PINNED_MAX_BYTES;
}

/* Returns whether the table of memory has to be stepped. */
static bool read_memory(struct vg_process *process, uint64_t now_ns) {
  const struct vg_report_device *report = process->report;
  uint32_t want_seq = VG_LOAD(&report->want_seq); /* before want_bytes, which the tenant writes first */
  uint32_t watchers = VG_LOAD(&report->watchers), before = process->memory.watchers;
  uint64_t movable_bytes = process->slice->params.moves_itself ? VG_LOAD_RELAXED(&report->movable_bytes) : 0;
  bool moves = movable_bytes != process->memory.movable_bytes;
  process->memory.movable_bytes = movable_bytes;
  process->memory.want_least_bytes = VG_LOAD_RELAXED(&report->want_least_bytes);
  process->memory.watchers = watchers;
  uint64_t pinned_bytes = vg_pages_pinned_bytes(process);
  bool pins = pinned_bytes != process->pinned_bytes;
  process->pinned_bytes = pinned_bytes;
  return moves | pins | (watchers != before) |
         vg_memory_row_update(&process->memory, VG_LOAD(&report->returned_bytes), VG_LOAD(&report->used_bytes),
                              VG_LOAD(&report->want_bytes), want_seq, now_ns);
}

void vg_pages_read_memory(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t now_ns) {
  arbiter->memory_stale |= read_memory(process, now_ns);
}

/* Two processes that pin at the same time may be beyond the slice's maximum together, until the next round. */
static uint64_t pinned_limit(const struct vg_process *process, const struct vg_memory_slice *slice,
                             uint64_t max_bytes) {
  if (!max_bytes) return 0;
  uint64_t others_bytes = slice->pinned_bytes - process->pinned_bytes;
  return others_bytes < max_bytes ? max_bytes - others_bytes + 1 : 1;
}

static void publish_memory(struct vg_process *process, const struct vg_memory_slice *slice, uint64_t pinned_max_bytes) {
  struct vg_control_device *control = process->control;
  const struct vg_memory_row *row = &process->memory;
  struct vg_memory_shown *shown = &process->memory_shown,
                         next = {
                             .limit_bytes = slice->max_bytes,
                             .slice_used_bytes = slice->used_bytes - row->used_bytes,
                             .granted_bytes = row->granted_bytes,
                             .coast_bytes = row->coast_bytes,
                             .want_answered = row->want_answered,
                             .pressure = row->pressure,
                             .want_deadline_ns = row->want_deadline_ns,
                             .reclaim_bytes = slice->reclaim.remaining_bytes,
                             .reclaim_deadline_ns = slice->reclaim.deadline_ns,
                             .reclaim_serial = slice->reclaim.serial,
                             .pinned_limit = pinned_limit(process, slice, pinned_max_bytes),
                         };
  if (memcmp(shown, &next, sizeof next) == 0) return;
  VG_STORE_RELAXED(&control->limit_bytes, next.limit_bytes);
  VG_STORE_RELAXED(&control->slice_used_bytes, next.slice_used_bytes);
  VG_STORE_RELAXED(&control->coast_bytes, next.coast_bytes);
  VG_STORE_RELAXED(&control->pinned_limit, next.pinned_limit);
  VG_STORE(&control->granted_bytes, next.granted_bytes);
  VG_STORE(&control->want_deadline_ns, next.want_deadline_ns);
  VG_STORE(&control->reclaim_bytes, next.reclaim_bytes);
  VG_STORE_RELAXED(&control->reclaim_deadline_ns, next.reclaim_deadline_ns);
  VG_STORE(&control->reclaim_serial, (uint32_t)next.reclaim_serial);
  if (shown->want_answered != next.want_answered) {
    VG_STORE(&control->want_answered, next.want_answered);
    vg_prim_futex_wake(&control->want_answered, INT_MAX);
  }
  VG_STORE(&control->memory_pressure, next.pressure);
  bool asks = next.reclaim_bytes && next.reclaim_serial != shown->reclaim_serial;
  if (asks || (next.pressure && !shown->pressure)) vg_helper_bell_ring(process);
  *shown = next;
}

void vg_pages_memory(struct vg_arbiter *arbiter, uint64_t now_ns) {
  struct vg_memory_row *rows[VG_PROCESSES_MAX];
  struct vg_memory_table table = {
      .total_bytes = arbiter->core.params.memory_total_bytes,
      .slices = arbiter->memory_slices,
      .slice_count = arbiter->core.slice_count,
      .rows = rows,
      .space_bytes = arbiter->space_bytes,
      .grace_ns = arbiter->core.params.memory_grace_ns,
      .stale = true,
  };
  for (int i = 0; i < arbiter->process_end; i++)
    if (arbiter->processes[i]) rows[table.row_count++] = &arbiter->processes[i]->memory;
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    const struct vg_core_slice *slice = &arbiter->core.slices[i];
    arbiter->memory_slices[i].min_bytes = slice->present ? slice->params.mem_min_bytes : 0;
    arbiter->memory_slices[i].max_bytes = slice->present ? slice->params.mem_max_bytes : 0;
    arbiter->memory_slices[i].away = slice->present && slice->params.away;
    arbiter->memory_slices[i].moves_itself = slice->present && slice->params.moves_itself;
  }
  arbiter->memory_due_ns = vg_memory_table_step(&table, now_ns);
  if (arbiter->memory_due_ns <= now_ns) { /* a want does not fit by the rows as known, and freeing does not ring */
    for (int i = 0; i < arbiter->process_end; i++)
      if (arbiter->processes[i]) read_memory(arbiter->processes[i], now_ns);
    table.stale = false;
    arbiter->memory_due_ns = vg_memory_table_step(&table, now_ns);
  }
  arbiter->memory_stale = false;
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    uint64_t *peak_bytes = &arbiter->core.slices[i].stats.mem_peak_bytes;
    if (arbiter->memory_slices[i].used_bytes > *peak_bytes) *peak_bytes = arbiter->memory_slices[i].used_bytes;
    arbiter->memory_slices[i].pinned_bytes = 0;
  }
  for (int i = 0; i < arbiter->process_end; i++) {
    const struct vg_process *process = arbiter->processes[i];
    if (process) arbiter->memory_slices[process->memory.slice].pinned_bytes += process->pinned_bytes;
  }
  for (int i = 0; i < arbiter->process_end; i++) {
    struct vg_process *process = arbiter->processes[i];
    if (!process) continue;
    process->slice->stats.mem_denied += process->memory.denied;
    publish_memory(process, &arbiter->memory_slices[process->memory.slice], arbiter->core.params.pinned_max_bytes);
  }
}

/* What the slice's programs use now: without, the newcomer would be shown memory as free that another one has taken
 * since the last round. */
static void read_slice_memory(struct vg_arbiter *arbiter, struct vg_process *newcomer, uint64_t now_ns) {
  struct vg_memory_slice *slice = &arbiter->memory_slices[newcomer->memory.slice];
  uint64_t used_bytes = slice->unattributed_bytes + slice->disconnected_bytes;
  uint32_t reads = 0;
  if (slice->rows > BEGIN_READS_MAX) return; /* as of the last round */
  for (struct vg_process *process = newcomer->next; process; process = process->next) {
    if (++reads > BEGIN_READS_MAX) return;
    read_memory(process, now_ns);
    used_bytes += process->memory.used_bytes;
  }
  slice->used_bytes = used_bytes;
}

/* It holds nothing: the numbers of the last round do for all but what its slice uses, until the round that is due. A
 * thousand that begin together would go through all rows a thousand times. */
void vg_pages_begin_memory(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t now_ns) {
  struct vg_memory_slice *slice = &arbiter->memory_slices[process->memory.slice];
  slice->max_bytes = process->slice->params.mem_max_bytes;
  read_slice_memory(arbiter, process, now_ns);
  slice->pinned_bytes += process->pinned_bytes;
  publish_memory(process, slice, arbiter->core.params.pinned_max_bytes);
  arbiter->memory_stale = true;
}

int vg_arbiter_make_room(struct vg_arbiter *arbiter, uint64_t bytes) {
  pthread_mutex_lock(&arbiter->mutex);
  arbiter->space_bytes = bytes;
  arbiter->memory_stale = true;
  return vg_arbiter_leave(arbiter, 0);
}
