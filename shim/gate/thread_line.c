/* thread_line.c - see thread_line.h. */
#include "gate/thread_line.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "context/context.h"
#include "gate/state.h"

/* A definition does not take the model from the header. */
__thread struct vg_gate_line *vg_gate_own_line __attribute__((tls_model("initial-exec")));
static struct vg_gate_line *lines; /* all lines ever made; never freed, reused by later threads */
static pthread_key_t line_key;
static pthread_once_t line_once = PTHREAD_ONCE_INIT;

static void line_free(void *line) {
  vg_gate_own_line = NULL; /* another destructor of this thread may launch yet: it gets a line of its own again */
  vg_context_here.work_generation = 0;
  VG_STORE(&((struct vg_gate_line *)line)->calls, 0); /* it was cancelled within one */
  VG_STORE(&((struct vg_gate_line *)line)->polls, 0);
  VG_STORE(&((struct vg_gate_line *)line)->owned, 0);
}

static void make_key(void) {
  pthread_key_create(&line_key, line_free);
}

struct vg_gate_line *vg_gate_make_line(void) {
  pthread_once(&line_once, make_key);
  struct vg_gate_line *line = VG_LOAD(&lines);
  for (; line; line = line->next) {
    uint32_t unowned = 0;
    if (__atomic_compare_exchange_n(&line->owned, &unowned, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) break;
  }
  if (!line) {
    line = aligned_alloc(64, sizeof *line);
    if (!line) return NULL;
    *line = (struct vg_gate_line){.owned = 1, .next = VG_LOAD(&lines)};
    while (!__atomic_compare_exchange_n(&lines, &line->next, line, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    }
  }
  pthread_setspecific(line_key, line);
  vg_gate_own_line = line;
  return line;
}

struct vg_work *vg_gate_work_here(const struct vg_device *device) {
  return vg_gate_own_line ? vg_gate_own_line->works[device - vg_session.devices] : NULL;
}

bool vg_gate_in_flight(const struct vg_device *device) {
  const struct vg_work *own = vg_gate_work_here(device);
  vg_prim_membarrier();
  for (const struct vg_work *work = VG_LOAD(&device->gate->works); work; work = work->next)
    if (work != own && VG_LOAD(&work->tally.in_flight)) return true;
  return false;
}

bool vg_gate_calls_under_way(bool or_polls) {
  vg_prim_membarrier();
  for (const struct vg_gate_line *line = VG_LOAD(&lines); line; line = line->next)
    if (VG_LOAD(&line->calls) || (or_polls && VG_LOAD(&line->polls))) return true;
  return false;
}

bool vg_gate_give_up(struct vg_device *device) {
  const struct vg_control_device *control = VG_LOAD(&device->control);
  uint32_t word = VG_LOAD(&device->open_word);
  if (word == VG_GATE_NO_WORD || VG_LOAD_RELAXED(&control->neighbour_waits) == VG_NO_NEIGHBOUR_WAITS) return false;
  vg_gate_set_open_word(device, VG_GATE_NO_WORD);
  if (vg_gate_in_flight(device)) {
    vg_gate_set_open_word(device, word);
    return false;
  }
  VG_STORE(&VG_LOAD(&device->report)->given_up_word, word);
  vg_prim_eventfd_ring(device->doorbell_fd);
  return true;
}

/* The parent's other threads do not exist here: their works mean nothing. */
void vg_gate_lines_forked_child(void) {
  vg_context_here.work_generation = 0;
  for (struct vg_gate_line *line = VG_LOAD(&lines); line; line = line->next) {
    memset(line->works, 0, sizeof line->works);
    line->calls = line->polls = 0;
  }
}
