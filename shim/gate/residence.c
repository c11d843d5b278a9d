/*
 * residence.c - see residence.h. Called by threads of the program. A thread marks its line and then looks at the
 * control page; the helper sees the departure there, makes all threads pass a barrier, and then reads the marks: one of
 * the two sees the other.
 */
#include "gate/residence.h"

#include "gate/state.h"

#define WAIT_ROUND_NS (100 * VG_NS_PER_MS) /* how long a thread sleeps before it looks around */

uint32_t vg_residence_watched;

/* A device that the slice's memory leaves, or has left, and the number of the departure; NULL: there is none. */
static struct vg_device *find_away(uint32_t *ret_residence) {
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    const struct vg_control_device *control = VG_LOAD(&vg_session.devices[i].control);
    *ret_residence = control ? VG_LOAD(&control->residence) : 0;
    if (*ret_residence) return &vg_session.devices[i];
  }
  return NULL;
}

static bool is_away(void) {
  uint32_t residence;
  return find_away(&residence) != NULL;
}

static void wait_one_round(struct vg_device *device, uint32_t residence) {
  struct vg_report_device *report = VG_LOAD(&device->report); /* of a daemon that has gone, perhaps */
  const uint32_t *word_at = &VG_LOAD(&device->control)->residence;
  int fd = VG_LOAD_RELAXED(&device->doorbell_fd);
  __atomic_add_fetch(&report->wishes, 1, __ATOMIC_ACQ_REL);
  vg_report_changes(device);
  if (vg_prim_eventfd_is(fd)) vg_prim_eventfd_ring(fd);
  vg_prim_futex_wait(word_at, residence, vg_prim_now_ns() + WAIT_ROUND_NS);
  __atomic_sub_fetch(&report->wishes, 1, __ATOMIC_ACQ_REL);
}

static void wait_until_back(void) {
  struct vg_device *device;
  uint32_t residence;
  while ((device = find_away(&residence)) != NULL) wait_one_round(device, residence);
}

/* Other threads' calls may be lost from the count: it only shows that there are some. */
static void count_call(void) {
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    struct vg_device *device = &vg_session.devices[i];
    struct vg_report_device *report = VG_LOAD(&device->report);
    if (!report) continue;
    VG_STORE_RELAXED(&report->calls, VG_LOAD_RELAXED(&report->calls) + 1);
    vg_report_changes(device);
  }
}

static struct vg_gate_line *line_here(void) {
  return VG_LIKELY(vg_gate_own_line != NULL) ? vg_gate_own_line : vg_gate_make_line();
}

/* False: away, and not marked. */
static bool mark(struct vg_gate_line *line) {
  if (line->calls) {
    VG_STORE_RELAXED(&line->calls, line->calls + 1);
    return true;
  }
  VG_STORE_RELAXED(&line->calls, 1);
  __atomic_signal_fence(__ATOMIC_SEQ_CST); /* mark before look; the helper's membarrier does the rest */
  if (VG_UNLIKELY(VG_LOAD_RELAXED(&vg_prim_membarrier_refused))) __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (VG_LIKELY(!is_away())) return true;
  VG_STORE(&line->calls, 0);
  return false;
}

struct vg_gate_line *vg_residence_enter_watched(void) {
  struct vg_gate_line *line = line_here();
  if (!line) { /* no memory for it: the thread is not seen in the driver */
    wait_until_back();
    return NULL;
  }
  bool nested = line->calls != 0;
  while (!mark(line)) wait_until_back();
  if (!nested) count_call();
  return line;
}

void vg_residence_leave_watched(struct vg_gate_line *line) {
  VG_STORE(&line->calls, line->calls - 1);
}

bool vg_residence_try(struct vg_gate_line **ret_line) {
  struct vg_gate_line *line = *ret_line = vg_residence_is_watched() ? line_here() : NULL;
  if (!line) return !is_away();
  if (mark(line)) return true;
  *ret_line = NULL;
  return false;
}

/* While the process leaves, work may be outstanding. Once it has left, all has completed, as the driver would say;
 * where the helper could not find that out, this is a call as any other. */
bool vg_residence_poll_watched(struct vg_gate_line **ret_line, CUresult *ret_answer) {
  uint32_t residence;
  while (!vg_residence_try(ret_line)) {
    const struct vg_device *device = find_away(&residence);
    if (!device || !device->gate) continue;
    if (VG_LOAD(&VG_LOAD(&device->report)->left_word) != residence) {
      *ret_answer = CUDA_ERROR_NOT_READY;
      return false;
    }
    if (vg_session.device_count == 1 && VG_LOAD(&device->gate->completed_residence) == residence) {
      *ret_answer = CUDA_SUCCESS;
      return false;
    }
    wait_until_back();
  }
  return true;
}

void vg_residence_review(void) {
  bool watched = false;
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    const struct vg_control_device *control = VG_LOAD(&vg_session.devices[i].control);
    watched |= control && (VG_LOAD_RELAXED(&control->watch) & VG_WATCH_CALLS || VG_LOAD_RELAXED(&control->residence));
  }
  VG_STORE(&vg_residence_watched, watched);
}
