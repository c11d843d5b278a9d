/*
 * device.c - cuInit, and the size of the device as the program sees it. Called by programs, any thread.
 *
 * cuInit attaches before the driver starts, and then shows the driver the slice's devices only, by pointing `environ`
 * at a copy with CUDA_VISIBLE_DEVICES set, for the time of the call. The driver itself then counts 0..n-1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/log.h"
#include "base/prim.h"
#include "context/context.h"
#include "driver/resolve.h"
#include "gate/residence.h"
#include "gen/abi/real.h"
#include "hooks/lifecycle.h"
#include "ledger/credit.h"
#include "session/visible_devices.h"

#define VARIABLE "CUDA_VISIBLE_DEVICES="
#define NO_DEVICES "-1" /* an index that no device has: an empty slice shows none */

/* ---- what the driver sees ---- */

static void visible_list(char *ret_text) {
  char *out = ret_text + sprintf(ret_text, VARIABLE "%s", vg_session.device_count ? "" : NO_DEVICES);
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    char uuid[VG_VISIBLE_UUID_TEXT];
    vg_visible_uuid_text(&vg_session.devices[i].resolved, uuid);
    out += sprintf(out, "%s%s", i ? "," : "", uuid);
  }
}

/* A copy of the environment in which only the slice's devices are visible. Never freed: a thread that called getenv
 * meanwhile may keep a pointer into it, and it is made once per process. */
static char **slice_environment(void) {
  static char variable[sizeof VARIABLE + VG_VISIBLE_LIST_TEXT];
  visible_list(variable);
  size_t count = 0;
  while (environ && environ[count]) count++;
  char **copy = malloc((count + 2) * sizeof *copy);
  if (!copy) return NULL;
  size_t kept = 0;
  for (size_t i = 0; i < count; i++)
    if (strncmp(environ[i], VARIABLE, strlen(VARIABLE))) copy[kept++] = environ[i];
  copy[kept++] = variable;
  copy[kept] = NULL;
  return copy;
}

/* A program that is refused cannot run and shows its user a bare CUDA code at best: so the reason goes to standard
 * error, once. The shim prints nothing else unless it is asked to. */
static void print_reason(const char *reason, const char *detail) {
  static int said;
  if (__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) return;
  char line[VG_REFUSAL_BYTES + VG_TEXT_BYTES];
  int length = snprintf(line, sizeof line, "vgpu: CUDA cannot start: %s%s%s\n", reason, *detail ? ": " : "", detail);
  ssize_t written = write(STDERR_FILENO, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
  (void)written;
}

/* A value from outside the slice, where devices have other numbers. "" and -1 hide all devices on purpose. */
static void print_hidden(const char *visible_devices) {
  if (!visible_devices || !*visible_devices || !strcmp(visible_devices, "-1")) return;
  print_reason("CUDA_VISIBLE_DEVICES names none of the slice's devices, which count from 0, or one twice",
               visible_devices);
}

static CUresult init_in_slice(unsigned int flags) {
  char **before = environ;
  char **copy = slice_environment();
  if (!copy) {
    print_reason("no memory for a copy of the environment", "");
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  environ = copy;
  CUresult result = REAL(cuInit)(flags);
  if (environ == copy) environ = before; /* else the program has set a variable meanwhile: its environment is newer */
  if (!vg_session.device_count) print_hidden(getenv("CUDA_VISIBLE_DEVICES"));
  return result;
}

/* ---- which device is which ---- */

static CUresult uuid_of(CUdevice device, uint8_t *ret_uuid) {
  CUuuid uuid;
  CUresult result = HAVE(cuDeviceGetUuid_v2) ? REAL(cuDeviceGetUuid_v2)(&uuid, device) /* a MIG device has its own */
                                             : REAL(cuDeviceGetUuid)(&uuid, device);
  if (result == CUDA_SUCCESS) memcpy(ret_uuid, uuid.bytes, VG_UUID_BYTES);
  return result;
}

static CUresult driver_uuids(uint8_t (*ret_uuids)[VG_UUID_BYTES], CUdevice *ret_handles, int *ret_count) {
  int count = 0;
  CUresult result = REAL(cuDeviceGetCount)(&count);
  if (count > VG_DEVICES_MAX) count = VG_DEVICES_MAX;
  for (int i = 0; i < count && result == CUDA_SUCCESS; i++) {
    result = REAL(cuDeviceGet)(&ret_handles[i], i);
    if (result == CUDA_SUCCESS) result = uuid_of(ret_handles[i], ret_uuids[i]);
  }
  *ret_count = count;
  return result;
}

/* A device that is not mapped would not be accounted: where the driver fails, its error is cuInit's. */
static CUresult map_devices(void) {
  uint8_t uuids[VG_DEVICES_MAX][VG_UUID_BYTES];
  CUdevice handles[VG_DEVICES_MAX];
  int count;
  CUresult result = driver_uuids(uuids, handles, &count);
  if (result != CUDA_SUCCESS) return result;
  if (!vg_session.ledger && vg_link_devices(uuids[0], (uint32_t)count))
    vg_log("no thread or memory for the accounts of devices: device memory is not accounted");
  uint32_t met = 0;
  for (int i = 0; i < count; i++) {
    for (uint32_t j = 0; j < vg_session.device_count; j++) {
      if (memcmp(uuids[i], vg_session.devices[j].resolved.uuid, VG_UUID_BYTES)) continue;
      vg_context_map(handles[i], &vg_session.devices[j]);
      met++;
    }
  }
  if (met < vg_session.device_count)
    vg_log("slice %s has %u devices, but the driver shows only %u of them", vg_session.slice, vg_session.device_count,
           met);
  return CUDA_SUCCESS;
}

/* ---- cuInit ---- */

static CUresult refused(int error) {
  CUresult result = CUDA_ERROR_SYSTEM_NOT_READY;
  const char *reason = "the daemon's answer is invalid: is another program listening on the socket?";
  if (error == -EACCES) result = CUDA_ERROR_NOT_PERMITTED, reason = "the daemon refused this process";
  if (error == -ECONNREFUSED) result = CUDA_ERROR_NOT_PERMITTED, reason = "no daemon is running and the mode is closed";
  if (error == -ECONNREFUSED && *vg_link_refusal_text()) reason = "the mode is closed and the daemon was not reached";
  if (error == -EAGAIN) result = CUDA_ERROR_OPERATING_SYSTEM, reason = "the process cannot join its slice";
  if (error == -EPROTONOSUPPORT)
    result = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, reason = "daemon and library have different versions: install the same";
  if (error == -ENOSPC)
    result = CUDA_ERROR_OUT_OF_MEMORY, reason = "the daemon's limit on attached processes is reached";
  if (error == -ENOMEM) result = CUDA_ERROR_OUT_OF_MEMORY, reason = "the process cannot join its slice";
  print_reason(reason, vg_link_refusal_text());
  return result;
}

static CUresult init_locked(unsigned int flags) {
  static pid_t done; /* the process whose devices are mapped */
  vg_link_forked = vg_lifecycle_forked_child;
  vg_memory_refresh = vg_lifecycle_refresh;
  if (vg_resolve_driver() == NULL) {
    if (*vg_resolve_refusal()) print_reason(vg_resolve_refusal(), "");
    return REAL(cuInit)(flags);
  }
  int error = vg_link_attach();
  if (error) return refused(error);
  if (done == getpid() || !vg_link_wanted()) return REAL(cuInit)(flags);
  CUresult result = vg_session.attached ? init_in_slice(flags) : REAL(cuInit)(flags);
  if (result == CUDA_SUCCESS) result = map_devices();
  if (result == CUDA_SUCCESS) done = getpid();
  return result;
}

CUresult cuInit(unsigned int flags) {
  int saved = errno;
  vg_link_enter();
  CUresult result = init_locked(flags);
  vg_link_leave();
  errno = saved;
  return result;
}

/* ---- the size of the device ---- */

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
  CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, dev);
  struct vg_device *device = result == CUDA_SUCCESS ? vg_context_ordinal(dev) : NULL;
  if (!device) return result;
  uint64_t total = vg_memory_limit_bytes(device);
  if (total < *bytes) *bytes = total;
  return result;
}

/* False: the slice's memory is away, so the ledger has answered; the driver would not. Programs ask in loops. */
static bool enter_to_ask(struct vg_gate_line **ret_line, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes) {
  if (vg_residence_try(ret_line)) return true;
  if (vg_session.device_count == 1) {
    vg_memory_info(&vg_session.devices[0], ret_free_bytes, ret_total_bytes);
    return false;
  }
  *ret_line = vg_residence_enter();
  return true;
}

static CUresult memory_info(size_t *free, size_t *total) {
  CUresult result = REAL(cuMemGetInfo_v2)(free, total);
  CUcontext context;
  struct vg_device *device = result == CUDA_SUCCESS ? vg_context_current(&context) : NULL;
  if (!device) return result;
  uint64_t free_bytes, total_bytes;
  vg_memory_info(device, &free_bytes, &total_bytes);
  if (total && total_bytes < *total) *total = total_bytes;
  if (free && free_bytes < *free) *free = free_bytes;
  return result;
}

static __attribute__((noinline)) CUresult memory_info_watched(size_t *free, size_t *total) {
  struct vg_gate_line *here;
  uint64_t free_bytes, total_bytes;
  if (VG_LIKELY(enter_to_ask(&here, &free_bytes, &total_bytes))) {
    CUresult result = memory_info(free, total);
    vg_residence_leave(here);
    return result;
  }
  if (free) *free = free_bytes;
  if (total) *total = total_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  return VG_UNLIKELY(vg_residence_is_watched()) ? memory_info_watched(free, total) : memory_info(free, total);
}

static unsigned int clamped(uint64_t bytes) {
  return bytes < UINT32_MAX ? (unsigned int)bytes : UINT32_MAX;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
  CUresult result = REAL(cuDeviceTotalMem)(bytes, dev);
  struct vg_device *device = result == CUDA_SUCCESS ? vg_context_ordinal(dev) : NULL;
  if (device && vg_memory_limit_bytes(device) < *bytes) *bytes = clamped(vg_memory_limit_bytes(device));
  return result;
}

static CUresult memory_info_first(unsigned int *free, unsigned int *total) {
  CUresult result = REAL(cuMemGetInfo)(free, total);
  CUcontext context;
  struct vg_device *device = result == CUDA_SUCCESS ? vg_context_current(&context) : NULL;
  if (!device) return result;
  uint64_t free_bytes, total_bytes;
  vg_memory_info(device, &free_bytes, &total_bytes);
  if (total && total_bytes < *total) *total = clamped(total_bytes);
  if (free && free_bytes < *free) *free = clamped(free_bytes);
  return result;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
  struct vg_gate_line *here;
  uint64_t free_bytes, total_bytes;
  if (VG_LIKELY(enter_to_ask(&here, &free_bytes, &total_bytes))) {
    CUresult result = memory_info_first(free, total);
    vg_residence_leave(here);
    return result;
  }
  if (free) *free = clamped(free_bytes);
  if (total) *total = clamped(total_bytes);
  return CUDA_SUCCESS;
}
