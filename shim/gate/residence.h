/*
 * residence.h - calls of the driver in a slice whose memory may leave the device (rotation, idle-after). While it
 * leaves or is away, the driver has the process locked, or is about to: what it would block there waits here instead,
 * counts itself in the report page, and so brings the slice back.
 *
 *   struct vg_gate_line *here = vg_residence_enter();   // waits; never under a lock of the shim
 *   CUresult result = real(...);
 *   vg_residence_leave(here);
 *
 * Between the two the thread is marked as being in the driver. The helper tells the arbiter that the process has left
 * the driver when no thread is marked, all that was submitted has completed, and none can enter any more (departure.c).
 * Only then is the process locked, so no thread ever blocks in a locked driver, unseen. Where memory never leaves, all
 * this is one load that finds 0.
 */
#ifndef VG_GATE_RESIDENCE_H
#define VG_GATE_RESIDENCE_H
#include "base/prim.h"

struct vg_gate_line;

extern uint32_t vg_residence_watched __attribute__((visibility("hidden")));
/* Is the process to move its memory itself (VG_WATCH_MOVES)? Has it moved it off the device? Then calls wait whatever
 * the daemon says: set and cleared by moves/move.c. */
extern uint32_t vg_residence_moves __attribute__((visibility("hidden")));
extern uint32_t vg_residence_is_out __attribute__((visibility("hidden")));
/* Has it memory that it could move? Then calls are marked: one that began before it may be asked again is seen. */
extern uint32_t vg_residence_has_movable __attribute__((visibility("hidden")));
/* Has it events or memory of other processes, or they its events? Their work shows there, and that its own has
 * completed says nothing of it: polls are calls as any other while the memory is away, and it moves no memory itself.
 * For good. */
extern uint32_t vg_residence_shared __attribute__((visibility("hidden")));

static inline bool vg_residence_is_watched(void) { /* may the slice's memory leave? */
  return VG_LOAD_RELAXED(&vg_residence_watched) != 0;
}

struct vg_gate_line *vg_residence_enter_watched(void);
void vg_residence_leave_watched(struct vg_gate_line *line);

/* NULL: nothing is marked. May be called again by a thread that is marked: it does not wait then. */
static inline struct vg_gate_line *vg_residence_enter(void) {
  return VG_LIKELY(!vg_residence_is_watched()) ? NULL : vg_residence_enter_watched();
}

static inline void vg_residence_leave(struct vg_gate_line *line) {
  if (VG_UNLIKELY(line != NULL)) vg_residence_leave_watched(line);
}

/* As vg_residence_enter(), but instead of waiting, false. */
bool vg_residence_try(struct vg_gate_line **ret_line);
/* For a call that only asks whether work has completed, and so does not make the slice come back. */
enum vg_poll {
  VG_POLL_ASK,       /* the driver is to be asked; vg_residence_end_poll() follows */
  VG_POLL_COMPLETED, /* all that the process has submitted has completed */
};
enum vg_poll vg_residence_poll_watched(void);
void vg_residence_end_poll(void);

struct vg_device;

void vg_residence_set_out(bool is_out);
/* Has the process left the driver, with all of its work completed? After vg_residence_set_out(true) it stays so. */
bool vg_residence_has_left(struct vg_device *device);

#endif
