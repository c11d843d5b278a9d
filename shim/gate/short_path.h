/*
 * short_path.h - a counted launch like the one before it: into the same stream, while the gate stays open, of a
 * function whose cost is known and not to be timed now, with no marker due behind it and the bound not reached. It is
 * counted in the thread's own tally (thread_work.h). Inline: it costs about as much as moving the arguments. Whatever
 * is otherwise takes the long path, vg_gate_enter() and vg_gate_leave(), which opens the short one again.
 *
 * Without a lock, three things have to be right:
 *
 * - A launch that is on its way when the gate closes. The thread sets its mark, then reads the gate word; a reader of
 *   marks closes the word, makes all threads pass a barrier (membarrier), and then reads the marks. Between the two
 *   lines of the thread stands only the compiler's fence: of two threads one sees the other.
 * - A launch that is counted while another thread declares that no work is outstanding: the same with the tally and
 *   counted_word, see vg_gate_stop_tallies().
 * - A launch that is counted while another thread ends a wait. The wait covers launches of epochs before its own. The
 *   epoch is read after the driver's launch: if it is still that of the launches in the tally, the wait begins later
 *   than the launch. Else the launch is counted under the lock, in the new epoch.
 *
 * What a launch has to look at is brought together: a capture that begins, or a change of contexts, has all threads
 * find their work no longer known (context.h), and in a gang, whose collectives are counted, the tally never opens.
 *
 * The bound may be lowered and work of other threads added while the tally is open; the launches that it still takes do
 * not see it: an eighth of the bound.
 */
#ifndef VG_GATE_SHORT_PATH_H
#define VG_GATE_SHORT_PATH_H
#include "context/context.h"
#include "gate/state.h"
#include "gate/thread_work.h"

/* Not a call even where a compiler would rather make it one: the arguments of the launch stay where they are. */
#define VG_SHORT_PATH static inline __attribute__((always_inline))

/* Returns the thread's work, which is all that is to be kept over the driver's launch; NULL: the launch takes the long
 * path. */
VG_SHORT_PATH struct vg_work *vg_gate_enter_short(CUstream stream, bool per_thread, const void *function,
                                                  uint64_t threads) {
  if (VG_UNLIKELY(VG_LOAD(&vg_context_generation) != vg_context_here.work_generation)) return NULL;
  struct vg_work *work = vg_context_here.work;
  if (VG_UNLIKELY((per_thread && !stream ? CU_STREAM_PER_THREAD : stream) != work->tally.handle)) return NULL;
  uint64_t key = vg_work_key(function, threads);
  struct vg_estimate *estimate = vg_work_estimate_at(work, key);
  __asm__("" : "+r"(estimate)); /* one register; gcc would keep its parts, and compute it again for each field */
  /* An unknown function has a countdown of one: each of its launches is to be timed. */
  if (VG_UNLIKELY(estimate->key != key || estimate->countdown <= 1)) return NULL;
  if (VG_UNLIKELY(VG_LOAD_RELAXED(&estimate->charge) >= work->tally.left)) return NULL;
  const struct vg_device *device = work->device;
  work->tally.estimate = estimate;
  VG_STORE_RELAXED(&work->tally.in_flight, true);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  uint32_t word = VG_LOAD(VG_LOAD(&device->gate_word));
  if (VG_LIKELY(word == VG_LOAD_RELAXED(&device->counted_word))) return work;
  VG_STORE(&work->tally.in_flight, false);
  return NULL;
}

/* After a launch that the driver has accepted. */
VG_SHORT_PATH void vg_gate_count_short(struct vg_work *work, bool kernel, bool programmatic) {
  struct vg_tally *tally = &work->tally;
  struct vg_estimate *estimate = tally->estimate;
  struct vg_device *device = work->device;
  estimate->countdown--;
  if (VG_UNLIKELY(VG_LOAD(&device->epoch) != tally->epoch) || VG_UNLIKELY(programmatic && !tally->programmatic)) {
    vg_gate_count_long(work, estimate, kernel, programmatic);
    return;
  }
  VG_STORE(&tally->left, tally->left - VG_LOAD_RELAXED(&estimate->charge));
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (VG_UNLIKELY(VG_LOAD_RELAXED(&device->counted_word) == VG_GATE_NO_WORD)) vg_gate_stay_busy(device);
}

/* kernel, programmatic: as in struct vg_ticket. */
VG_SHORT_PATH CUresult vg_gate_leave_short(struct vg_work *work, CUresult result, bool kernel, bool programmatic) {
  if (VG_LIKELY(result == CUDA_SUCCESS)) vg_gate_count_short(work, kernel, programmatic);
  VG_STORE(&work->tally.in_flight, false);
  return result;
}

#endif
