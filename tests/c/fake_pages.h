/*
 * fake_pages.h - for tests of the gate without an arbiter: pages that the test itself writes, threads that launch into
 * a fake driver, and the helper's rounds called by hand. Included by one test each.
 */
#ifndef FAKE_PAGES_H
#define FAKE_PAGES_H
#include <poll.h>
#include <string.h>

#include "fake_driver.h"
#include "gate/short_path.h"

#define LAUNCH_NS (200 * VG_NS_PER_US)
#define PAGES 32

struct vg_session vg_session;
static struct vg_control_header header;
static struct vg_control_device control;
static struct vg_report_device pages[PAGES]; /* as in a program, an old page stays: a slow thread may look at it yet */
static int page_count, gate_count;
/* As in a program, a gate is never freed. */
struct vg_gate_state *gates[PAGES];
static const int functions[8];

static struct vg_device *device(void) {
  return &vg_session.devices[0];
}

static struct vg_report_device *report(void) {
  return device()->report;
}

static inline void set_gate(uint32_t state) {
  uint32_t epoch = (control.gate >> VG_GATE_EPOCH_SHIFT) + 1;
  VG_STORE(&control.gate, epoch << VG_GATE_EPOCH_SHIFT | state);
  vg_prim_futex_wake(&control.gate, 1);
}

static inline void new_page(void) {
  CHECK(page_count < PAGES);
  VG_STORE(&device()->report, &pages[page_count++]);
}

static void begin(uint32_t watch) {
  vg_gate_forked_child(); /* as in a new process: threads remember nothing of the last test's gate */
  memset(&vg_session, 0, sizeof vg_session);
  memset(&control, 0, sizeof control);
  control.bound_ns = 20 * VG_NS_PER_MS;
  control.max_milli = 1000;
  control.others_busy_ns = 1; /* no other process has run */
  control.watch = watch;
  vg_session.attached = true;
  vg_session.device_count = 1;
  vg_session.header = &header;
  device()->control = &control;
  device()->doorbell_fd = vg_prim_eventfd();
  new_page();
  fake_driver_start(device());
  CHECK(vg_gate_attach(device()) == 0);
  set_gate(VG_GATE_COUNT);
}

static void end(void) {
  CHECK(gate_count < PAGES);
  gates[gate_count++] = device()->gate;
  vg_prim_close(device()->doorbell_fd);
}

static inline void end_context(void) {
  vg_gate_context_gone(device(), FAKE_CONTEXT);
  fake_context_end();
}

static inline bool rang(void) {
  struct pollfd poll_fd = {.fd = device()->doorbell_fd, .events = POLLIN};
  bool rings = poll(&poll_fd, 1, 0) == 1;
  vg_prim_eventfd_drain(device()->doorbell_fd);
  return rings;
}

/* As the hook does. */
static inline void launch_into(CUstream stream, const void *function, uint64_t cost_ns) {
  struct vg_work *again = vg_gate_enter_short(stream, false, function, 1024);
  if (again) {
    fake_launch(stream, cost_ns);
    vg_gate_leave_short(again, CUDA_SUCCESS, true, false);
    return;
  }
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, stream, false, function, 1024);
  fake_launch(stream, cost_ns);
  vg_gate_leave(&ticket, CUDA_SUCCESS);
}

static inline void launch(uint64_t cost_ns) {
  launch_into(fake_stream(1), &functions[0], cost_ns);
}

static inline void synchronize(CUstream stream) {
  uint64_t begin_of_wait = vg_gate_sync_begin();
  vg_prim_sleep_until_ns(fake_end_of(stream));
  vg_gate_synced(begin_of_wait, stream, false, false);
}

#define ROUNDS_MOST 3000 /* of the helper, when nothing runs any more; it finds that in a few */

/* The helper's rounds until nothing is outstanding any more, or it has not found that. */
static inline bool serve_until_idle(void) {
  for (int in_vain = 0; in_vain < ROUNDS_MOST && VG_LOAD(&report()->outstanding);) {
    uint64_t now_ns = vg_prim_now_ns(), due_ns = vg_gate_service(now_ns), most_ns = now_ns + 10 * VG_NS_PER_MS;
    in_vain += now_ns > fake_all_end();
    vg_prim_sleep_until_ns(due_ns < most_ns ? due_ns : most_ns);
  }
  return !VG_LOAD(&report()->outstanding);
}

static inline void sleep_ns(uint64_t length_ns) {
  vg_prim_sleep_until_ns(vg_prim_now_ns() + length_ns);
}

#endif
