/* slice.c - see slice.h. One connection per question; nothing is kept open in the program. */
#define _GNU_SOURCE
#include "ml/slice.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "link_wire.h"
#include "log.h"
#include "ml/resolve_ml.h"
#include "prim.h"
#include "visible.h"

#define DEFAULT_SOCKET "/run/vgpu/attach.sock"
#define ANSWER_DEADLINE_NS (2 * VG_NS_PER_S)
#define USAGE_AGE_NS (100 * VG_NS_PER_MS)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vg_ml_device devices[VG_DEVICES_MAX];
static uint32_t device_count;
static bool in_slice;
static struct vg_attach_usage last_usage;
static uint64_t usage_ns;

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *ret_device);

static const char *socket_path(void) {
  const char *path = secure_getenv("VGPU_SOCKET");
  if (path != NULL && *path != '\0') return path;
  return access(DEFAULT_SOCKET, F_OK) == 0 ? DEFAULT_SOCKET : NULL;
}

static int receive(int fd, uint64_t deadline_ns, void *ret_message, size_t bytes) {
  vg_wire_wait(fd, deadline_ns);
  ssize_t got = recv(fd, ret_message, bytes, MSG_DONTWAIT | MSG_TRUNC);
  if (got < 0) return errno == EAGAIN ? -ETIMEDOUT : -errno;
  return got == (ssize_t)bytes ? 0 : -EPROTO;
}

/* 0 with both messages, or -errno. */
static int ask(struct vg_attach_reply *ret_reply, struct vg_attach_usage *ret_usage) {
  struct vg_attach_request request = {.magic = VG_ABI_MAGIC, .abi_version = VG_ABI_VERSION};
  request.bytes = sizeof request;
  request.resume = VG_ATTACH_QUERY;
  strncpy(request.program, program_invocation_short_name, VG_NAME_BYTES - 1);
  uint64_t deadline_ns = vg_prim_now_ns() + ANSWER_DEADLINE_NS;
  int fd;
  int result = vg_wire_connect(socket_path(), &fd);
  if (result != 0) return result;
  result = vg_wire_ask(fd, &request);
  if (result == 0) result = receive(fd, deadline_ns, ret_reply, sizeof *ret_reply);
  if (result == 0 && (ret_reply->magic != VG_ABI_MAGIC || ret_reply->abi_version != VG_ABI_VERSION)) result = -EPROTO;
  if (result == 0 && ret_reply->status == VG_ATTACH_OK) {
    result = receive(fd, deadline_ns, ret_usage, sizeof *ret_usage);
    if (result == 0 && (ret_usage->magic != VG_ABI_MAGIC || ret_usage->device_count > VG_DEVICES_MAX ||
                        ret_usage->process_count > VG_USAGE_PIDS_MAX || ret_reply->device_count > VG_DEVICES_MAX))
      result = -EPROTO;
  }
  vg_prim_close(fd);
  return result;
}

/* Handles of the slice's devices; one that the real NVML does not know is left out. */
static void take_devices(const struct vg_attach_reply *reply) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < reply->device_count; i++) {
    char text[VG_VISIBLE_UUID_TEXT];
    vg_visible_uuid_text(reply->devices[i].uuid, text);
    devices[count].numbers = reply->devices[i];
    devices[count].order = i;
    if (VG_ML_REAL(nvmlDeviceGetHandleByUUID, text, &devices[count].handle) == NVML_SUCCESS)
      count++;
    else
      vg_log("NVML does not know the slice's device %s", text);
  }
  device_count = count;
}

nvmlReturn_t vg_ml_slice_open(void) {
  struct vg_attach_reply reply;
  struct vg_attach_usage usage;
  nvmlReturn_t result = NVML_SUCCESS;
  if (socket_path() == NULL) return NVML_SUCCESS;
  pthread_mutex_lock(&lock);
  int error = ask(&reply, &usage);
  if (error != 0) {
    VG_LOG_ONCE("no daemon at %s (%s): NVML shows the whole device", socket_path(), strerror(-error));
  } else if (reply.status != VG_ATTACH_OK) {
    reply.text[VG_TEXT_BYTES - 1] = '\0';
    vg_log("NVML refused: %s", reply.text);
    result = NVML_ERROR_NO_PERMISSION;
  } else {
    take_devices(&reply);
    last_usage = usage;
    usage_ns = vg_prim_now_ns();
    VG_STORE(&in_slice, true);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

bool vg_ml_in_slice(void) {
  return VG_LOAD(&in_slice);
}

uint32_t vg_ml_count(void) {
  return device_count;
}

nvmlDevice_t vg_ml_handle(uint32_t index) {
  return index < device_count ? devices[index].handle : NULL;
}

const struct vg_ml_device *vg_ml_find(nvmlDevice_t handle) {
  for (uint32_t i = 0; i < device_count; i++)
    if (devices[i].handle == handle) return &devices[i];
  return NULL;
}

bool vg_ml_usage(struct vg_attach_usage *ret_usage) {
  struct vg_attach_reply reply;
  struct vg_attach_usage usage;
  bool fresh = true;
  pthread_mutex_lock(&lock);
  if (vg_prim_now_ns() - usage_ns > USAGE_AGE_NS) {
    fresh = ask(&reply, &usage) == 0 && reply.status == VG_ATTACH_OK;
    if (fresh) {
      take_devices(&reply); /* limits may have been changed */
      last_usage = usage;
      usage_ns = vg_prim_now_ns();
    }
  }
  *ret_usage = last_usage;
  pthread_mutex_unlock(&lock);
  return fresh;
}
