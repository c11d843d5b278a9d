/* turns.c - see turns.h. */
#include "arbiter/turns.h"

#include <stddef.h>

#include "base/prim.h"

/* Processes that leave gaps fill each other's: after a turn that was given up, all have the slice's leases for so long.
 * A host that stands still for a moment looks the same, so it is not long. */
#define GAPS_NS (200 * VG_NS_PER_MS)
/* After work that did not drain: it may wait for that of another process, and loses a whole lease each time. */
#define OVERRUN_NS VG_NS_PER_S
/* Beside a slice of a hundredth a lease is extended for a second. All have the remainder of a long one. */
#define TURN_MAX_NS (50 * VG_NS_PER_MS)

static bool is_open(uint32_t word) {
  return (word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
}

static bool any_is_open(const struct vg_lane *lane) {
  for (const struct vg_process *process = lane->first; process; process = process->next)
    if (is_open(process->word)) return true;
  return false;
}

/* Not the only one with the open word: one that attaches meanwhile has it, too. NULL: it has ended. */
static struct vg_process *holder(const struct vg_lane *lane) {
  for (struct vg_process *process = lane->first; process; process = process->next)
    if (process->has_turn) return process;
  return NULL;
}

static bool gave_up(const struct vg_process *holder) {
  return !holder || holder->reported.quiet;
}

bool vg_turn_is_over(const struct vg_core *core, const struct vg_core_slice *slice, const struct vg_lane *lane) {
  if (!lane->apart || !is_open(slice->out.word)) return false;
  bool is_long = core->last_ns >= slice->gate.grant_ns + TURN_MAX_NS;
  return !slice->out.lease_end_ns || is_long || gave_up(holder(lane));
}

bool vg_turn_is_awaited(const struct vg_lane *lane, const struct vg_process *process) {
  return lane->apart && !is_open(process->word) && process->reported.waiting;
}

/* Start-time fair queueing among the processes, by the lengths of the leases that they had to themselves. */
static struct vg_process *next_to_run(const struct vg_lane *lane) {
  struct vg_process *next = NULL;
  int waiting = 0;
  for (struct vg_process *process = lane->first; process; process = process->next) {
    if (!process->reported.waiting) continue;
    waiting++;
    if (process->turns_ns < lane->turns_ns) process->turns_ns = lane->turns_ns;
    if (!next || process->turns_ns < next->turns_ns) next = process;
  }
  return waiting > 1 ? next : NULL;
}

static void end_turn(const struct vg_core *core, const struct vg_core_slice *slice, struct vg_process *process) {
  uint64_t end_ns = is_open(slice->out.word) ? core->last_ns : slice->gate.close_ns;
  if (!process) return;
  process->turns_ns += end_ns - slice->gate.grant_ns;
  process->has_turn = false;
}

struct vg_process *vg_turn_give(const struct vg_core *core, const struct vg_core_slice *slice, struct vg_lane *lane) {
  bool open = is_open(slice->out.word), contended = open && slice->out.lease_end_ns;
  if (lane->apart) {
    struct vg_process *process = holder(lane);
    if (open && !vg_turn_is_over(core, slice, lane)) return process;
    if (contended && gave_up(process)) lane->together_until_ns = core->last_ns + GAPS_NS;
    end_turn(core, slice, process);
    return NULL;
  }
  if (!contended || any_is_open(lane) || slice->params.gang) return NULL;
  if (slice->gate.overran) lane->together_until_ns = core->last_ns + OVERRUN_NS;
  struct vg_process *next = core->last_ns < lane->together_until_ns ? NULL : next_to_run(lane);
  if (!next) return NULL;
  lane->turns_ns = next->turns_ns;
  next->has_turn = true;
  return next;
}
