/*
 * residence.c - see residence.h. Called by threads of the program. A thread marks its line and then looks at the
 * control page; the helper sees the departure there, makes all threads pass a barrier, and then reads the marks: one of
 * the two sees the other.
 */
#include "gate/residence.h"

#include "gate/state.h"

#define WAIT_ROUND_NS (100 * VG_NS_PER_MS) /* how long a thread sleeps before it looks around */

uint32_t vg_residence_watched, vg_residence_moves, vg_residence_is_out, vg_residence_has_movable, vg_residence_shared;

/* A device that the slice's memory leaves, or has left, and the number of the departure; NULL: there is none. A daemon
 * that does not know that the memory is away has no number for it. */
static struct vg_device *find_away(uint32_t *ret_residence) {
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    const struct vg_control_device *control = VG_LOAD(&vg_session.devices[i].control);
    *ret_residence = control ? VG_LOAD(&control->residence) : 0;
    if (*ret_residence || (control && VG_UNLIKELY(VG_LOAD(&vg_residence_is_out)))) return &vg_session.devices[i];
  }
  return NULL;
}

static bool is_away(void) {
  uint32_t residence;
  return find_away(&residence) != NULL;
}

/* Returns for how long. A round is reported as it ends, so that a wait of minutes is seen. */
static uint64_t wait_one_round(struct vg_device *device, uint32_t residence) {
  struct vg_report_device *report = VG_LOAD(&device->report); /* of a daemon that has gone, perhaps */
  const uint32_t *word_at = &VG_LOAD(&device->control)->residence;
  int fd = VG_LOAD_RELAXED(&device->doorbell_fd);
  uint64_t begun_ns = vg_prim_now_ns();
  __atomic_add_fetch(&report->waiting_calls, 1, __ATOMIC_ACQ_REL);
  vg_report_changes(device);
  if (vg_prim_eventfd_is(fd)) vg_prim_eventfd_ring(fd);
  vg_prim_futex_wait(word_at, residence, begun_ns + WAIT_ROUND_NS);
  __atomic_sub_fetch(&report->waiting_calls, 1, __ATOMIC_ACQ_REL);
  uint64_t waited_ns = vg_prim_now_ns() - begun_ns;
  vg_gate_report_memory_wait(device, waited_ns, 0);
  return waited_ns;
}

static void wait_until_back(void) {
  struct vg_device *device, *last = NULL;
  uint32_t residence;
  uint64_t waited_ns = 0;
  while ((device = find_away(&residence)) != NULL) {
    waited_ns += wait_one_round(device, residence);
    last = device;
  }
  if (last) vg_gate_report_memory_wait(last, 0, waited_ns);
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

/* Mark before look; the helper's membarrier does the rest. */
static void fence(void) {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (VG_UNLIKELY(VG_LOAD_RELAXED(&vg_prim_membarrier_refused))) __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* False: away, and not marked. The first look keeps threads that try in a loop from looking like calls. */
static bool mark(struct vg_gate_line *line) {
  if (line->calls) {
    VG_STORE_RELAXED(&line->calls, line->calls + 1);
    return true;
  }
  if (VG_UNLIKELY(is_away())) return false;
  VG_STORE_RELAXED(&line->calls, 1);
  fence();
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

static bool is_quiet(const struct vg_device *device, uint32_t residence) {
  const struct vg_gate_state *gate = device->gate;
  return !gate || VG_LOAD(&gate->quiet_residence) == residence || VG_LOAD(&gate->carried_residence) == residence;
}

static bool has_completed(const struct vg_gate_state *gate, uint32_t residence) {
  uint32_t completed = VG_LOAD(&gate->completed_residence);
  if (completed == residence) return true;
  return VG_LOAD(&gate->carried_residence) == residence && completed == VG_LOAD(&gate->quiet_residence);
}

/* While the process leaves, the driver is asked as ever: a poll submits nothing. Once the process is quiet, all that it
 * has submitted has completed; where the helper could not find that out, this is a call as any other. */
enum vg_poll vg_residence_poll_watched(void) {
  struct vg_gate_line *line = line_here();
  for (;;) {
    uint32_t residence;
    if (line) VG_STORE_RELAXED(&line->polls, 1);
    fence();
    const struct vg_device *device = find_away(&residence);
    if (!device || !is_quiet(device, residence)) return VG_POLL_ASK;
    vg_residence_end_poll();
    if (vg_session.device_count == 1 && device->gate && has_completed(device->gate, residence))
      return VG_POLL_COMPLETED;
    wait_until_back();
  }
}

void vg_residence_end_poll(void) {
  if (vg_gate_own_line) VG_STORE(&vg_gate_own_line->polls, 0);
}

void vg_residence_review(void) {
  bool watched = VG_LOAD(&vg_residence_is_out) || VG_LOAD(&vg_residence_has_movable), moves = false;
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    const struct vg_control_device *control = VG_LOAD(&vg_session.devices[i].control);
    watched |= control && (VG_LOAD_RELAXED(&control->watch) & VG_WATCH_CALLS || VG_LOAD_RELAXED(&control->residence));
    moves |= control && VG_LOAD_RELAXED(&control->watch) & VG_WATCH_MOVES;
  }
  VG_STORE(&vg_residence_watched, watched);
  VG_STORE(&vg_residence_moves, moves);
}

void vg_residence_set_out(bool is_out) {
  VG_STORE(&vg_residence_is_out, is_out);
}

bool vg_residence_has_left(struct vg_device *device) {
  uint32_t residence = VG_LOAD(&VG_LOAD(&device->control)->residence);
  return residence && device->gate && VG_LOAD(&VG_LOAD(&device->report)->left_word) == residence &&
         VG_LOAD(&device->gate->completed_residence) == residence && !vg_gate_calls_under_way(false) &&
         !vg_gate_in_flight(device);
}
