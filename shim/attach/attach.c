/*
 * attach.c - see attach.h: configuration, the first attach, taking over pages, fork. The helper thread and what it does
 * when the daemon is gone is helper_thread.c. What must hold: vg_session.attached is stored after everything it
 * promises; pages are never unmapped, since a launching thread may be reading the old one.
 */
#define _GNU_SOURCE
#include "attach/attach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/state.h"
#include "base/log.h"
#include "base/prim.h"
#include "context/context.h"
#include "gate/gate.h"
#include "ledger/credit.h"
#include "session/visible_devices.h"

#define ATTACH_DEADLINE_NS (5 * VG_NS_PER_S)
#define RESTART_NS (3 * VG_NS_PER_S)   /* a daemon that is restarted is back by then */
#define REBIND_NS (500 * VG_NS_PER_MS) /* how long its socket may be missing meanwhile */
#define CONNECT_RETRY_NS (10 * VG_NS_PER_MS)

void (*vg_link_forked)(void);
struct vg_link vg_link = {.lock = PTHREAD_MUTEX_INITIALIZER, .socket_fd = -1};

bool vg_link_wanted(void) {
  return vg_link.configured;
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
  /* Nothing of the parent's is used here any more. Its socket stays open on purpose: the child keeps the driver's files
   * open as well, so the parent's memory is not free before this process is gone or has called exec. */
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

/* ---- messages ---- */

static void fill_program(char *ret_name) {
  extern char *program_invocation_short_name;
  strncpy(ret_name, program_invocation_short_name, VG_NAME_BYTES - 1);
}

int vg_link_ask(bool resume, int *ret_socket_fd) {
  struct vg_attach_request request = {.magic = VG_ABI_MAGIC, .abi_version = VG_ABI_VERSION};
  request.bytes = sizeof request;
  request.library_copy = (uint32_t)((uintptr_t)&vg_session >> 4);
  fill_program(request.program);
  if (resume) {
    request.resume = VG_ATTACH_RESUME;
    request.device_count = vg_session.device_count;
    for (uint32_t i = 0; i < vg_session.device_count; i++) {
      memcpy(request.devices[i].uuid, vg_session.devices[i].resolved.uuid, VG_UUID_BYTES);
      request.devices[i].held_bytes = vg_memory_held_bytes(&vg_session.devices[i]);
    }
  }
  int fd;
  int result = vg_wire_connect(vg_link.path, &fd);
  if (result) return result;
  result = vg_wire_ask(fd, &request);
  if (result)
    vg_prim_close(fd);
  else
    *ret_socket_fd = fd;
  return result;
}

static char refusal_text[VG_TEXT_BYTES];

const char *vg_link_refusal_text(void) {
  return refusal_text;
}

int vg_link_refusal(const struct vg_attach_reply *reply) {
  static const int errors[] = {[VG_ATTACH_BAD_MESSAGE] = EPROTO,
                               [VG_ATTACH_BAD_VERSION] = EPROTONOSUPPORT,
                               [VG_ATTACH_DENIED] = EACCES,
                               [VG_ATTACH_FULL] = ENOSPC,
                               [VG_ATTACH_NO_SLICE] = EACCES};
  if (reply->status == VG_ATTACH_OK) return 0;
  memcpy(refusal_text, reply->text, sizeof refusal_text);
  VG_LOG_ONCE("refused by the daemon at %s: %s", vg_link.path, reply->text);
  return reply->status < sizeof errors / sizeof errors[0] ? -errors[reply->status] : -EPROTO;
}

void vg_link_drop(struct vg_wire_answer *answer, int socket_fd) {
  if (answer->control)
    for (uint32_t i = 0; i < answer->reply.device_count; i++) vg_prim_close(answer->doorbell_fds[i]);
  vg_prim_close(socket_fd);
}

/* ---- taking over the pages ---- */

static void bind_device(struct vg_device *device, const struct vg_wire_answer *answer, uint32_t index) {
  const struct vg_control_device *control = vg_wire_control(answer->control, index);
  bool fresh = device->control == NULL;
  device->resolved = answer->reply.devices[index];
  device->doorbell_fd = vg_wire_replace(device->doorbell_fd, answer->doorbell_fds[index]);
  vg_memory_rebind(device, control, vg_wire_report(answer->report, index));
  vg_context_charge_late(device);
  if (fresh) {
    if (vg_gate_attach(device)) vg_log("out of memory: launches on %s are not gated", vg_session.slice);
  } else {
    vg_gate_daemon_back(device);
  }
}

static void bind_session(const struct vg_wire_answer *answer, int socket_fd) {
  vg_link.socket_fd = socket_fd;
  vg_link.socket_identity = vg_wire_identity(socket_fd);
  vg_link.attached_ns = vg_prim_now_ns();
  vg_link.unplugged = false;
  vg_session.process_id = answer->reply.process_id;
  vg_session.mode = answer->reply.mode;
  memcpy(vg_session.slice, answer->reply.slice, VG_NAME_BYTES);
  memcpy(vg_session.node, answer->reply.node, VG_NAME_BYTES);
  VG_STORE(&vg_session.header, answer->control);
}

static void publish_session(void) {
  vg_session.daemon_gone = false;
  VG_STORE_RELAXED(&vg_session.link_lost, false);
  __atomic_store_n(&vg_session.ledger, true, __ATOMIC_RELEASE);
  __atomic_store_n(&vg_session.attached, true, __ATOMIC_RELEASE);
}

static int device_by_uuid(const uint8_t *uuid) {
  for (uint32_t i = 0; i < vg_session.device_count; i++)
    if (!memcmp(vg_session.devices[i].resolved.uuid, uuid, VG_UUID_BYTES)) return (int)i;
  return -1;
}

void vg_link_adopt(const struct vg_wire_answer *answer, int socket_fd) {
  bind_session(answer, socket_fd);
  for (uint32_t i = 0; i < answer->reply.device_count; i++) {
    int index = device_by_uuid(answer->reply.devices[i].uuid);
    if (index < 0) {
      vg_prim_close(answer->doorbell_fds[i]); /* a device that this program does not see */
      continue;
    }
    bind_device(&vg_session.devices[index], answer, i);
    vg_link.gone[index] = false;
  }
  for (uint32_t i = 0; i < vg_session.device_count; i++)
    if (!vg_session.devices[i].control) vg_log("device %u is not in slice %s: not limited", i, vg_session.slice);
  publish_session();
}

/* The first attach: makes the devices, in the order in which the program will see them. */
static int adopt_first(struct vg_wire_answer *answer, int socket_fd) {
  uint8_t uuids[VG_DEVICES_MAX][VG_UUID_BYTES];
  int order[VG_DEVICES_MAX], count = (int)answer->reply.device_count;
  for (int i = 0; i < count; i++) memcpy(uuids[i], answer->reply.devices[i].uuid, VG_UUID_BYTES);
  int visible = vg_visible_select(uuids, count, getenv("CUDA_VISIBLE_DEVICES"), order);
  for (int i = 0; i < visible; i++) {
    vg_session.devices[i].doorbell_fd = -1;
    if (vg_memory_attach(&vg_session.devices[i])) return -ENOMEM;
  }
  vg_session.device_count = (uint32_t)visible; /* the gate looks at it */
  bind_session(answer, socket_fd);
  bool used[VG_DEVICES_MAX] = {false};
  for (int i = 0; i < visible; i++) {
    bind_device(&vg_session.devices[i], answer, (uint32_t)order[i]);
    used[order[i]] = true;
  }
  for (int i = 0; i < count; i++)
    if (!used[i]) vg_prim_close(answer->doorbell_fds[i]);
  publish_session();
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
    if (result != -EAGAIN || now_ns >= deadline_ns) return result; /* EAGAIN: the daemon's backlog is full */
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

static bool final(int error) {
  return error == -EACCES || error == -EPROTONOSUPPORT || error == -ENOSPC || error == -ENOMEM;
}

/* In a container a restart of the daemon is waited for: nothing else would hold the program to its slice. */
static uint64_t patience_ns(int error) {
  if (!vg_link.contained) return 0;
  if (error == -ENOENT) return REBIND_NS;
  return error == -ECONNREFUSED || error == -ECONNRESET || error == -EPIPE ? RESTART_NS : 0;
}

static int attach_patiently(void) {
  uint64_t begin_ns = vg_prim_now_ns();
  for (;;) {
    int result = attach_first();
    uint64_t now_ns = vg_prim_now_ns();
    if (result == 0 || now_ns >= begin_ns + patience_ns(result)) return result;
    vg_prim_sleep_until_ns(now_ns + CONNECT_RETRY_NS);
  }
}

int vg_link_attach(void) {
  if (vg_link.pid && vg_link.pid != getpid()) forked_child(); /* a child made without fork()'s handlers */
  if (vg_session.ledger) return 0;
  vg_link.pid = getpid();
  configure();
  if (!vg_link.configured) return 0;
  int result = attach_patiently();
  if (result == -ENOENT && vg_link.contained) { /* a daemon that is away leaves its sockets where they are */
    strcpy(refusal_text, "the slice of this container was removed: start the container again");
    result = -EACCES;
  }
  if (result == 0 || final(result)) return result;
  if (vg_session.mode == VG_MODE_CLOSED) {
    VG_LOG_ONCE("no daemon at %s (%s) and the mode is closed", vg_link.path, strerror(-result));
    return -ECONNREFUSED;
  }
  VG_LOG_ONCE("no daemon at %s (%s): running without limits until one is there", vg_link.path, strerror(-result));
  return 0;
}

void vg_link_enter(void) {
  register_fork_handler();
  pthread_mutex_lock(&vg_link.lock);
}

void vg_link_leave(void) {
  pthread_mutex_unlock(&vg_link.lock);
}
