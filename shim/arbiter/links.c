/* links.c - see links.h. A page that lies about its copies hurts its own slice alone: see vg_core_copy_demand(). */
#include "arbiter/links.h"

#include "arbiter/copies.h"
#include "base/prim.h"

#define WINDOW_NS (10 * VG_NS_PER_MS)
#define LATELY_WINDOWS 16        /* a piece at a low rate takes several windows */
#define COUNTER_MAX (1ull << 58) /* bytes: a larger value is ignored */

void vg_links_read(struct vg_arbiter *arbiter, struct vg_process *process) {
  struct vg_slice_stats *stats = &process->slice->stats;
  struct vg_lane *lane = vg_lane_of(arbiter, process->slice);
  for (int i = 0; i < VG_COPY_DIRECTIONS; i++) {
    uint64_t bytes = VG_LOAD_RELAXED(&process->report->copy_bytes[i]);
    uint32_t delays = VG_LOAD_RELAXED(&process->report->copies_delayed[i]);
    uint64_t more = bytes > process->copy_bytes[i] && bytes <= COUNTER_MAX ? bytes - process->copy_bytes[i] : 0;
    process->copy_bytes[i] += more;
    stats->copy_bytes[i] = more < INT64_MAX - stats->copy_bytes[i] ? stats->copy_bytes[i] + more : INT64_MAX;
    lane->copied_bytes[i] += more;
    bool waits = delays != process->copies_delayed[i];
    lane->delays_copies[i] |= waits;
    if (more || waits) process->copies_lately[i] = LATELY_WINDOWS;
    process->copies_delayed[i] = delays;
  }
}

static uint32_t copy_max_milli(const struct vg_core_slice *slice) {
  return slice->params.copy_max_milli ? slice->params.copy_max_milli : VG_CORE_MILLI;
}

static bool is_paced(const struct vg_arbiter *arbiter) {
  if (!arbiter->core.params.link_bytes_per_ms) return false;
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    const struct vg_core_slice *slice = &arbiter->core.slices[i];
    if (slice->present && (slice->params.copy_min_milli || copy_max_milli(slice) < VG_CORE_MILLI)) return true;
  }
  return false;
}

/* Each process that copies has an equal part of its slice's rate; one that does not has what it would have then. */
static void publish(const struct vg_lane *lane, int direction, uint64_t bytes_per_ms) {
  uint64_t copying = 0;
  for (const struct vg_process *process = lane->first; process; process = process->next)
    copying += process->copies_lately[direction] != 0;
  for (struct vg_process *process = lane->first; process; process = process->next) {
    uint64_t part = bytes_per_ms / (copying + !process->copies_lately[direction]);
    if (bytes_per_ms && !part) part = 1;
    VG_STORE_RELAXED(&process->control->copy_bytes_per_ms[direction], part);
    if (process->copies_lately[direction]) process->copies_lately[direction]--;
  }
}

static void divide(struct vg_arbiter *arbiter, int direction, bool paced, uint64_t elapsed_ns) {
  static const uint32_t WEIGHT = 1;
  struct vg_core_copier copiers[VG_SLICES_MAX];
  struct vg_core_slice *slices[VG_SLICES_MAX];
  uint64_t link_bytes_per_ms = arbiter->core.params.link_bytes_per_ms;
  int count = 0;
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    struct vg_core_slice *slice = &arbiter->core.slices[i];
    if (!slice->present) continue;
    struct vg_lane *lane = vg_lane_of(arbiter, slice);
    uint64_t copied = (uint64_t)((double)lane->copied_bytes[direction] * VG_NS_PER_MS / (double)elapsed_ns);
    slices[count] = slice;
    copiers[count++] = (struct vg_core_copier){
        .min_milli = slice->params.copy_min_milli,
        .max_milli = copy_max_milli(slice),
        .weight = slice->params.weight ? slice->params.weight : WEIGHT,
        .demand_bytes_per_ms = vg_core_copy_demand(copied, lane->delays_copies[direction], lane->copy_demand[direction],
                                                   link_bytes_per_ms)};
    lane->copy_demand[direction] = copiers[count - 1].demand_bytes_per_ms;
    lane->copied_bytes[direction] = 0;
    lane->delays_copies[direction] = false;
  }
  if (paced) vg_core_divide_link(copiers, count, link_bytes_per_ms);
  for (int i = 0; i < count; i++) {
    slices[i]->stats.copy_bytes_per_ms[direction] = paced ? copiers[i].bytes_per_ms : 0;
    publish(vg_lane_of(arbiter, slices[i]), direction, paced ? copiers[i].bytes_per_ms : 0);
  }
}

uint64_t vg_links_round(struct vg_arbiter *arbiter, uint64_t now_ns) {
  bool paced = is_paced(arbiter), active = false;
  if (!paced && !arbiter->paces_copies) return UINT64_MAX;
  if (paced == arbiter->paces_copies && now_ns < arbiter->links_due_ns) return arbiter->links_due_ns;
  for (int i = 0; i < arbiter->process_end; i++) {
    struct vg_process *process = arbiter->processes[i];
    if (!process) continue;
    vg_links_read(arbiter, process);
    active |= process->copies_lately[0] || process->copies_lately[1];
  }
  uint64_t elapsed_ns = now_ns > arbiter->links_ns ? now_ns - arbiter->links_ns : 1;
  for (int i = 0; i < VG_COPY_DIRECTIONS; i++) divide(arbiter, i, paced, elapsed_ns);
  arbiter->paces_copies = paced;
  arbiter->links_ns = now_ns;
  arbiter->links_due_ns = now_ns + WINDOW_NS;
  return active ? arbiter->links_due_ns : UINT64_MAX;
}
