/*
 * pages.c - see pages.h. What must hold: vg_session.attached is stored after everything it promises; pages are never
 * unmapped, since a launching thread may be reading the old one.
 */
#define _GNU_SOURCE
#include "attach/pages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attach/state.h"
#include "base/log.h"
#include "base/prim.h"
#include "context/context.h"
#include "gate/gate.h"
#include "ledger/credit.h"
#include "session/visible_devices.h"

struct vg_link vg_link = {.lock = PTHREAD_MUTEX_INITIALIZER, .socket_fd = -1};

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
  } else {
    vg_visible_name(getenv("CUDA_VISIBLE_DEVICES"), &request);
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

int vg_link_refusal(const struct vg_attach_reply *reply) {
  static const int errors[] = {[VG_ATTACH_BAD_MESSAGE] = EPROTO,
                               [VG_ATTACH_BAD_VERSION] = EPROTONOSUPPORT,
                               [VG_ATTACH_DENIED] = EACCES,
                               [VG_ATTACH_FULL] = ENOSPC,
                               [VG_ATTACH_NO_SLICE] = EACCES};
  if (reply->status == VG_ATTACH_OK) return 0;
  memcpy(vg_link.refusal_text, reply->text, sizeof vg_link.refusal_text);
  VG_LOG_ONCE("refused by the daemon at %s: %s", vg_link.path, reply->text);
  return reply->status < sizeof errors / sizeof errors[0] ? -errors[reply->status] : -EPROTO;
}

void vg_link_drop(struct vg_wire_answer *answer, int socket_fd) {
  if (answer->control)
    for (uint32_t i = 0; i < answer->reply.device_count; i++) vg_prim_close(answer->doorbell_fds[i]);
  vg_prim_close(socket_fd);
}

/* ---- taking over the pages ---- */

void vg_link_bind_device(struct vg_device *device, const struct vg_wire_answer *answer, uint32_t index) {
  const struct vg_control_device *control = vg_wire_control(answer->control, index);
  bool fresh = device->control == NULL, has_left = !fresh && vg_gate_has_left(device);
  device->resolved = answer->reply.devices[index];
  device->doorbell_fd = vg_wire_replace(device->doorbell_fd, answer->doorbell_fds[index]);
  vg_memory_rebind(device, control, vg_wire_report(answer->report, index));
  vg_context_charge_late(device);
  if (fresh) {
    if (vg_gate_attach(device)) vg_log("out of memory: launches on %s are not gated", vg_session.slice);
  } else {
    vg_gate_daemon_changed(device, has_left);
    vg_gate_daemon_back(device);
  }
}

void vg_link_bind_session(const struct vg_wire_answer *answer, int socket_fd) {
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

void vg_link_publish_session(void) {
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
  vg_link_bind_session(answer, socket_fd);
  for (uint32_t i = 0; i < answer->reply.device_count; i++) {
    int index = device_by_uuid(answer->reply.devices[i].uuid);
    if (index < 0) {
      vg_prim_close(answer->doorbell_fds[i]); /* a device that this program does not see */
      continue;
    }
    vg_link_bind_device(&vg_session.devices[index], answer, i);
    vg_link.gone[index] = false;
  }
  for (uint32_t i = 0; i < vg_session.device_count; i++)
    if (!vg_session.devices[i].control) vg_log("device %u is not in slice %s: not limited", i, vg_session.slice);
  vg_link_publish_session();
}
