/*
 * helper_thread.c - the helper thread of a tenant: serves the gate and the ledger whenever the daemon rings, notices
 * that the daemon is gone (socket at end, or an arbiter without heartbeat) and attaches to a new one. One per
 * process, started at attach, detached, all signals blocked. It looks every POLL_NS, and every VG_REST_NS while the
 * process is idle: threads that begin work wake it (gate/report.c, ledger/credit.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "attach/pages.h"
#include "attach/rest.h"
#include "attach/state.h"
#include "base/log.h"
#include "base/prim.h"
#include "gate/gate.h"
#include "ledger/credit.h"
#include "moves/move.h"
#include "session/helper_wake.h"

#define POLL_NS (50 * VG_NS_PER_MS)
#define LOOK_LEAST_NS (10 * VG_NS_PER_MS) /* between two looks at the socket, however often the gate is served */
#define ANSWER_POLL_NS (5 * VG_NS_PER_MS)
#define ANSWER_DEADLINE_NS (2 * VG_NS_PER_S)
#define BACK_OFF_MIN_NS (50 * VG_NS_PER_MS)
#define BACK_OFF_MAX_NS (1000 * VG_NS_PER_MS)
#define STACK_BYTES (1 << 20) /* the driver is called from this thread */

static struct {
  int asked_fd; /* a socket on which an answer is expected; -1: none */
  uint64_t answer_deadline_ns;
  uint64_t next_try_ns;
  uint64_t back_off_ns;
} helper = {.asked_fd = -1};

/* ---- is the daemon there? ---- */

/* The site's mode may have changed since the attach: the page has the daemon's last value. */
static void take_mode(void) {
  const struct vg_control_header *header = VG_LOAD(&vg_session.header);
  if (header) vg_session.mode = VG_LOAD_RELAXED(&header->mode);
}

static void set_gone(uint32_t index, bool gone) {
  if (vg_link.gone[index] == gone) return;
  vg_link.gone[index] = gone;
  take_mode();
  if (gone)
    vg_gate_daemon_gone(&vg_session.devices[index]);
  else
    vg_gate_daemon_back(&vg_session.devices[index]);
}

static bool has_doorbells(void) {
  bool has = true;
  for (uint32_t i = 0; i < vg_session.device_count && has; i++) {
    const struct vg_device *device = &vg_session.devices[i];
    has = !device->control || vg_prim_eventfd_is(VG_LOAD_RELAXED(&device->doorbell_fd));
  }
  return has;
}

/* No daemon answers wants for memory from here on. */
static void lose_memory(void) {
  for (uint32_t i = 0; i < vg_session.device_count; i++) vg_memory_lost(&vg_session.devices[i]);
  VG_STORE(&vg_session.link_lost, true);
}

/* The program closed every descriptor that it did not know: the numbers are its own now. */
static void lose_doorbells(void) {
  for (uint32_t i = 0; i < vg_session.device_count; i++) VG_STORE_RELAXED(&vg_session.devices[i].doorbell_fd, -1);
  if (!vg_session.link_lost) lose_memory();
}

/* The program has closed the socket. The daemon still runs: as long as its arbiters send heartbeats, the pages are
 * used. For new doorbells the process attaches again, but not at once each time: that must not reset its accounts.
 */
static void unplug(uint64_t now_ns) {
  vg_link.socket_fd = -1;
  vg_link.unplugged = true;
  helper.back_off_ns = BACK_OFF_MIN_NS;
  helper.next_try_ns = vg_link.attached_ns + BACK_OFF_MAX_NS;
  if (helper.next_try_ns < now_ns) helper.next_try_ns = now_ns;
}

static void lose(uint64_t now_ns) {
  take_mode();
  vg_prim_close(vg_link.socket_fd);
  vg_link.socket_fd = -1;
  vg_link.unplugged = false;
  lose_memory();
  vg_session.daemon_gone = true;
  helper.back_off_ns = BACK_OFF_MIN_NS;
  helper.next_try_ns = now_ns;
  for (uint32_t i = 0; i < vg_session.device_count; i++)
    if (vg_session.devices[i].control) set_gone(i, true);
  vg_log("the daemon at %s is gone; continuing in mode %s", vg_link.path,
         (const char *[]){"coast", "open", "closed"}[vg_session.mode % 3]);
}

/* The daemon's process lives; do its arbiters? While one is stopped or stalled, the process coasts; a new heartbeat
 * ends that at once. */
static void watch_heartbeats(uint64_t now_ns) {
  bool any = false;
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    const struct vg_control_device *control = vg_session.devices[i].control;
    if (!control) continue;
    uint64_t beat_ns = vg_arbiter_seen_ns(&vg_session.devices[i], control, now_ns);
    if (beat_ns < vg_link.attached_ns) beat_ns = vg_link.attached_ns; /* no round yet since the pages were taken over */
    set_gone(i, now_ns > beat_ns + VG_HEARTBEAT_LATE_NS);
    any |= vg_link.gone[i];
  }
  vg_session.daemon_gone = any;
}

/* ---- coming back ---- */

static void try_later(uint64_t now_ns) {
  if (!helper.back_off_ns) helper.back_off_ns = BACK_OFF_MIN_NS;
  helper.next_try_ns = now_ns + helper.back_off_ns;
  helper.back_off_ns = helper.back_off_ns * 2 < BACK_OFF_MAX_NS ? helper.back_off_ns * 2 : BACK_OFF_MAX_NS;
}

static void take_answer(uint64_t now_ns) {
  struct vg_wire_answer answer;
  int result = vg_wire_receive(helper.asked_fd, &answer);
  if (result == -EAGAIN && now_ns < helper.answer_deadline_ns) return;
  if (result == 0) result = vg_link_refusal(&answer.reply);
  if (result) {
    vg_prim_close(helper.asked_fd);
    try_later(now_ns);
  } else {
    vg_link_adopt(&answer, helper.asked_fd);
    vg_log("attached to the daemon at %s again, slice %s", vg_link.path, vg_session.slice);
  }
  helper.asked_fd = -1;
}

static void come_back(uint64_t now_ns) {
  if (helper.asked_fd >= 0) {
    take_answer(now_ns);
  } else if (now_ns >= helper.next_try_ns) {
    if (vg_link_ask(true, &helper.asked_fd)) {
      helper.asked_fd = -1;
      try_later(now_ns);
    }
    helper.answer_deadline_ns = now_ns + ANSWER_DEADLINE_NS;
  }
}

/* Is the process attached to a daemon, with socket or pages and doorbells? */
static bool is_attached(uint64_t now_ns) {
  if (vg_link.socket_fd >= 0 && vg_wire_identity(vg_link.socket_fd) != vg_link.socket_identity) unplug(now_ns);
  if (vg_link.socket_fd >= 0 && vg_wire_ended(vg_link.socket_fd)) lose(now_ns);
  if (vg_link.socket_fd >= 0 || vg_link.unplugged) watch_heartbeats(now_ns);
  if (!vg_link.unplugged) return vg_link.socket_fd >= 0;
  bool whole = has_doorbells();
  if (!whole) lose_doorbells();
  if (vg_session.daemon_gone) lose(now_ns);
  return whole && vg_link.unplugged;
}

static uint64_t service_link(uint64_t now_ns) {
  static uint64_t
      looked_ns; /* a look is two system calls: launching threads feel it on the processors that they share */
  bool again = vg_link.socket_fd >= 0 && !vg_session.daemon_gone && now_ns < looked_ns + LOOK_LEAST_NS;
  if (again || is_attached(now_ns)) {
    if (!again) looked_ns = now_ns;
    return vg_session.daemon_gone ? now_ns + POLL_NS : vg_rest_until_ns(vg_session.process_id, now_ns);
  }
  come_back(now_ns);
  return now_ns + (helper.asked_fd >= 0 ? ANSWER_POLL_NS : POLL_NS);
}

/* ---- the thread ---- */

static uint64_t earlier(uint64_t a, uint64_t b) {
  return b && b < a ? b : a;
}

static void *helper_main(void *unused) {
  static const uint32_t no_word; /* before the first daemon answers, no word is there to wake the helper */
  (void)unused;
  vg_prim_thread_name("vgpu-helper");
  vg_prim_timer_slack_ns(1);
  for (;;) {
    const struct vg_control_header *header = VG_LOAD(&vg_session.header);
    const uint32_t *wake_word = header ? &header->helper_wake : &no_word;
    uint32_t seen = VG_LOAD(wake_word);
    vg_helper_awake();
    uint64_t now_ns = vg_prim_now_ns();
    uint64_t deadline_ns = service_link(now_ns);
    if (vg_session.attached) {
      deadline_ns = earlier(deadline_ns, vg_gate_service(now_ns));
      deadline_ns = earlier(deadline_ns, vg_memory_service(now_ns));
      deadline_ns = earlier(deadline_ns, vg_move_service(now_ns));
    }
    if (VG_LOAD(&vg_session.header) == header) vg_helper_sleep(wake_word, seen, deadline_ns);
  }
  return NULL;
}

int vg_link_helper_start(void) {
  if (vg_link.helper_runs) return 0;
  pthread_attr_t attributes;
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited: the helper never handles the program's signals */
  pthread_t thread;
  int error = pthread_create(&thread, &attributes, helper_main, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (error) vg_log("cannot start the helper thread (%s)", strerror(error));
  vg_link.helper_runs = error == 0;
  return error ? -EAGAIN : 0;
}

void vg_link_helper_forked_child(void) {
  memset(&helper, 0, sizeof helper);
  helper.asked_fd = -1;
}
