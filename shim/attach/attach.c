/*
 * attach.c - see attach.h: configuration, the first attach, fork. Requests, answers and the taking over of pages are in
 * pages.c; the helper thread, which comes back to a restarted daemon, is helper_thread.c.
 */
#define _GNU_SOURCE
#include "attach/attach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/pages.h"
#include "attach/state.h"
#include "base/log.h"
#include "base/prim.h"
#include "context/context.h"
#include "gate/gate.h"
#include "ledger/credit.h"
#include "session/visible_devices.h"

#define ATTACH_DEADLINE_NS (5 * VG_NS_PER_S)
#define RESTART_NS (3 * VG_NS_PER_S)   /* a daemon that is restarted is back by then */
#define REBIND_NS (500 * VG_NS_PER_MS) /* how long its socket may be missing while it restarts */
#define CONNECT_RETRY_NS (10 * VG_NS_PER_MS)

void (*vg_link_forked)(void);

bool vg_link_wanted(void) {
  return vg_link.configured;
}

const char *vg_link_refusal_text(void) {
  return vg_link.refusal_text;
}

static void configure(void) {
  const char *path = vg_wire_path(&vg_link.contained);
  const char *mode = secure_getenv("VGPU_MODE");
  vg_session.mode = VG_MODE_COAST;
  if (mode && !strcmp(mode, "open")) vg_session.mode = VG_MODE_OPEN;
  if (mode && !strcmp(mode, "closed")) vg_session.mode = VG_MODE_CLOSED;
  vg_link.configured = path != NULL;
  if (vg_link.configured) strncpy(vg_link.path, path, sizeof vg_link.path - 1);
}

static void forked_child(void) {
  /* Nothing of the parent's is used any more. Its socket stays open on purpose: the child keeps the driver's files open
   * as well, so the parent's memory is not free before this process has ended or called exec. */
  for (uint32_t i = 0; i < vg_session.device_count; i++) vg_prim_close(vg_session.devices[i].doorbell_fd);
  vg_gate_forked_child();
  vg_memory_forked_child();
  vg_context_forked_child();
  if (vg_link_forked) vg_link_forked();
  vg_link_helper_forked_child();
  memset(&vg_session, 0, sizeof vg_session);
  vg_link = (struct vg_link){.lock = PTHREAD_MUTEX_INITIALIZER, .socket_fd = -1};
}

static void register_fork_handler(void) {
  static bool registered; /* inherited by the child together with the handler */
  if (!__atomic_exchange_n(&registered, true, __ATOMIC_ACQ_REL)) pthread_atfork(NULL, NULL, forked_child);
}

/* What is in the way, where it is none of the daemon's answers. */
static void explain(int error) {
  const char *cause = strerror(-error);
  if (error == -EAGAIN) cause = "no thread can be made: raise the limit on processes (ulimit -u, pids.max)";
  if (error == -ENOMEM) cause = "no memory for the accounts of its devices: raise the limit on it (ulimit -v)";
  if (error == -EMFILE) cause = "this process has no file descriptor left: raise the limit on them (ulimit -n)";
  if (error == -ENFILE) cause = "this machine has no file descriptor left: raise fs.file-max";
  if (error == -ETIMEDOUT) cause = "the daemon has not answered";
  if (error == -EACCES) cause = "no permission for the slice's socket";
  if (error == -ENAMETOOLONG) cause = "the path of the slice's socket is too long";
  strncpy(vg_link.refusal_text, cause, sizeof vg_link.refusal_text - 1);
}

/* The first attach: makes the devices, in the order in which the program will see them. */
static int adopt_first(struct vg_wire_answer *answer, int socket_fd) {
  int order[VG_DEVICES_MAX], count = (int)answer->reply.device_count;
  int visible = vg_visible_select(answer->reply.devices, count, getenv("CUDA_VISIBLE_DEVICES"), order);
  for (int i = 0; i < visible; i++) {
    vg_session.devices[i].doorbell_fd = -1;
    if (vg_memory_attach(&vg_session.devices[i])) return -ENOMEM;
  }
  vg_session.device_count = (uint32_t)visible; /* the gate reads it */
  vg_link_bind_session(answer, socket_fd);
  bool used[VG_DEVICES_MAX] = {false};
  for (int i = 0; i < visible; i++) {
    vg_link_bind_device(&vg_session.devices[i], answer, (uint32_t)order[i]);
    used[order[i]] = true;
  }
  for (int i = 0; i < count; i++)
    if (!used[i]) vg_prim_close(answer->doorbell_fds[i]);
  vg_link_publish_session();
  return 0;
}

int vg_link_devices(const uint8_t *uuids, uint32_t count) {
  if (!vg_link.configured || vg_session.ledger) return 0;
  if (count > VG_DEVICES_MAX) count = VG_DEVICES_MAX;
  for (uint32_t i = 0; i < count; i++) {
    struct vg_device *device = &vg_session.devices[i];
    memcpy(device->resolved.uuid, uuids + (size_t)i * VG_UUID_BYTES, VG_UUID_BYTES);
    device->doorbell_fd = -1;
    if (vg_memory_attach(device)) return -ENOMEM;
  }
  vg_session.device_count = count;
  __atomic_store_n(&vg_session.ledger, true, __ATOMIC_RELEASE);
  return vg_link_helper_start();
}

/* ---- the first attach ---- */

static int ask_patiently(uint64_t deadline_ns, int *ret_socket_fd) {
  for (;;) {
    int result = vg_link_ask(false, ret_socket_fd);
    uint64_t now_ns = vg_prim_now_ns();
    if (result != -EAGAIN) return result; /* EAGAIN: the daemon's backlog is full */
    if (now_ns >= deadline_ns) return -ETIMEDOUT;
    vg_prim_sleep_until_ns(now_ns + CONNECT_RETRY_NS);
  }
}

static int attach_first(void) {
  uint64_t deadline_ns = vg_prim_now_ns() + ATTACH_DEADLINE_NS;
  int fd;
  int result = ask_patiently(deadline_ns, &fd);
  if (result) return result;
  struct vg_wire_answer answer;
  do {
    vg_wire_wait(fd, deadline_ns);
    result = vg_wire_receive(fd, &answer);
  } while (result == -EAGAIN && vg_prim_now_ns() < deadline_ns);
  if (result == 0) result = vg_link_refusal(&answer.reply);
  if (result) {
    vg_prim_close(fd);
    return result == -EAGAIN ? -ETIMEDOUT : result;
  }
  result = adopt_first(&answer, fd);
  if (result) vg_link_drop(&answer, fd);
  return result ? result : vg_link_helper_start();
}

/* Would the next try fail as well? */
static bool is_permanent(int error) {
  return error == -EACCES || error == -EPROTONOSUPPORT || error == -ENOSPC || error == -ENOMEM || error == -EAGAIN;
}

/* No daemon runs, or one that has just ended. */
static bool is_away(int error) {
  return error == -ENOENT || error == -ECONNREFUSED || error == -ECONNRESET || error == -EPIPE;
}

/* A restart of the daemon is waited for: nothing else would keep the program within its slice. A socket that is missing
 * outside of containers is of a daemon that does not run on this machine at all. */
static uint64_t patience_ns(int error) {
  if (error == -ENOENT) return vg_link.contained ? REBIND_NS : 0;
  return is_away(error) ? RESTART_NS : 0;
}

/* A process waits once: one that asks again and again, or in many threads, does not wait each time. */
static int attach_patiently(void) {
  for (;;) {
    int result = attach_first();
    uint64_t now_ns = vg_prim_now_ns();
    if (result == 0 || patience_ns(result) == 0) return result;
    if (!vg_link.refused_ns) vg_link.refused_ns = now_ns;
    if (now_ns >= vg_link.refused_ns + patience_ns(result)) return result;
    vg_prim_sleep_until_ns(now_ns + CONNECT_RETRY_NS);
  }
}

int vg_link_attach(void) {
  if (vg_session.ledger) { /* the helper could not be started the last time */
    int error = vg_session.attached ? vg_link_helper_start() : 0;
    if (error) explain(error);
    return error;
  }
  configure();
  if (!vg_link.configured) return 0;
  int result = attach_patiently();
  if (result == -ENOENT && vg_link.contained) { /* a stopped daemon leaves its sockets where they are */
    strcpy(vg_link.refusal_text, "the slice of this container was removed: start the container again");
    result = -EACCES;
  }
  if (result && !is_away(result) && result != -EPROTO && result != -EPROTONOSUPPORT && !*vg_link.refusal_text)
    explain(result);
  if (result == 0 || is_permanent(result)) return result;
  if (vg_session.mode == VG_MODE_CLOSED) {
    VG_LOG_ONCE("no daemon at %s (%s) and the mode is closed", vg_link.path, strerror(-result));
    return -ECONNREFUSED;
  }
  VG_LOG_ONCE("no daemon at %s (%s): running without limits until one is there", vg_link.path, strerror(-result));
  return 0;
}

void vg_link_enter(void) {
  pid_t self = getpid(), pid = __atomic_load_n(&vg_link.pid, __ATOMIC_RELAXED);
  /* A child created without fork()'s handlers, while another thread may have had the lock. It has one thread. */
  if (pid && pid != self) forked_child();
  __atomic_store_n(&vg_link.pid, self, __ATOMIC_RELAXED);
  register_fork_handler();
  pthread_mutex_lock(&vg_link.lock);
}

void vg_link_leave(void) {
  pthread_mutex_unlock(&vg_link.lock);
}
