/*
 * slice.c - see slice.h. One connection per query; nothing is kept open in the program. `ask_lock` is held while the
 * daemon is queried, `lock` only while the tables are read or replaced: a thread that needs a handle never waits for
 * the daemon.
 */
#define _GNU_SOURCE
#include "nvml/slice.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "attach/socket.h"
#include "base/log.h"
#include "base/prim.h"
#include "nvml/resolve_ml.h"
#include "session/visible_devices.h"

#define ANSWER_DEADLINE_NS (2 * VG_NS_PER_S)
#define USAGE_AGE_NS (100 * VG_NS_PER_MS)

static pthread_mutex_t ask_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vg_ml_device devices[VG_DEVICES_MAX];
static uint32_t device_count;
static bool in_slice;
static struct vg_attach_usage last_usage;
static uint64_t usage_ns;

bool vg_shim_memory(const uint8_t *uuid, struct vg_own_memory *ret_memory) __attribute__((weak));
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *ret_device);

static const char *socket_path(void) {
  bool is_contained;
  return vg_wire_path(&is_contained);
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
  vg_visible_name(getenv("CUDA_VISIBLE_DEVICES"), &request);
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
                        ret_usage->process_count > VG_USAGE_PROCESSES_MAX || ret_reply->device_count > VG_DEVICES_MAX))
      result = -EPROTO;
  }
  vg_prim_close(fd);
  return result;
}

/* Takes over the daemon's answers as what programs are shown. Under ask_lock. A device that the real NVML does not know
 * is left out. */
static void take(const struct vg_attach_reply *reply, const struct vg_attach_usage *usage) {
  struct vg_ml_device found[VG_DEVICES_MAX];
  uint32_t count = 0;
  for (uint32_t i = 0; i < reply->device_count; i++) {
    char text[VG_VISIBLE_UUID_TEXT];
    vg_visible_uuid_text(&reply->devices[i], text);
    found[count].numbers = reply->devices[i];
    found[count].order = i;
    if (VG_ML_REAL(nvmlDeviceGetHandleByUUID, text, &found[count].handle) == NVML_SUCCESS)
      count++;
    else
      vg_log("NVML does not know the slice's device %s", text);
  }
  pthread_mutex_lock(&lock);
  memcpy(devices, found, count * sizeof found[0]);
  device_count = count;
  last_usage = *usage;
  usage_ns = vg_prim_now_ns();
  pthread_mutex_unlock(&lock);
}

nvmlReturn_t vg_ml_slice_open(void) {
  struct vg_attach_reply reply;
  struct vg_attach_usage usage;
  nvmlReturn_t result = NVML_SUCCESS;
  if (socket_path() == NULL) return NVML_SUCCESS;
  pthread_mutex_lock(&ask_lock);
  int error = ask(&reply, &usage);
  if (error != 0) {
    VG_LOG_ONCE("no daemon at %s (%s): NVML shows the whole device", socket_path(), strerror(-error));
  } else if (reply.status != VG_ATTACH_OK) {
    reply.text[VG_TEXT_BYTES - 1] = '\0';
    vg_log("NVML refused: %s", reply.text);
    result = NVML_ERROR_NO_PERMISSION;
  } else {
    take(&reply, &usage);
    VG_STORE(&in_slice, true);
  }
  pthread_mutex_unlock(&ask_lock);
  return result;
}

bool vg_ml_in_slice(void) {
  return VG_LOAD(&in_slice);
}

uint32_t vg_ml_count(void) {
  pthread_mutex_lock(&lock);
  uint32_t count = device_count;
  pthread_mutex_unlock(&lock);
  return count;
}

nvmlDevice_t vg_ml_handle(uint32_t index) {
  pthread_mutex_lock(&lock);
  nvmlDevice_t handle = index < device_count ? devices[index].handle : NULL;
  pthread_mutex_unlock(&lock);
  return handle;
}

bool vg_ml_find(nvmlDevice_t handle, struct vg_ml_device *ret_device) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < device_count && !found; i++) {
    found = devices[i].handle == handle;
    if (found) *ret_device = devices[i];
  }
  pthread_mutex_unlock(&lock);
  return found;
}

/* The last usage known. True: it is recent. */
static bool known_usage(struct vg_attach_usage *ret_usage) {
  pthread_mutex_lock(&lock);
  *ret_usage = last_usage;
  bool recent = vg_prim_now_ns() - usage_ns <= USAGE_AGE_NS;
  pthread_mutex_unlock(&lock);
  return recent;
}

bool vg_ml_usage(struct vg_attach_usage *ret_usage) {
  struct vg_attach_reply reply;
  struct vg_attach_usage usage;
  if (known_usage(ret_usage)) return true;
  pthread_mutex_lock(&ask_lock);
  bool fresh = known_usage(ret_usage); /* another thread may have queried the daemon meanwhile */
  if (!fresh && ask(&reply, &usage) == 0 && reply.status == VG_ATTACH_OK) {
    take(&reply, &usage); /* limits may have been changed as well */
    *ret_usage = usage;
    fresh = true;
  }
  pthread_mutex_unlock(&ask_lock);
  return fresh;
}

bool vg_ml_own_memory(const struct vg_ml_device *own, struct vg_own_memory *ret_memory) {
  return vg_shim_memory != NULL && vg_shim_memory(own->numbers.uuid, ret_memory);
}

unsigned vg_ml_percent(double of_device, const struct vg_ml_device *own) {
  if (of_device > 100) return (unsigned)of_device;
  double share = own->numbers.max_milli == 0 ? 0 : of_device * 1000 / own->numbers.max_milli + 0.5;
  return share > 100 ? 100 : (unsigned)share;
}
