/*
 * pinned.c - host memory that the program pins: cuMemAllocHost, HostAlloc, HostRegister and their counterparts. It is
 * counted for the device of the context that it was pinned in, and ends with that context. Called by programs, any
 * thread. A record that cannot be made leaves memory uncounted, and changes nothing for the program. Where the site has
 * a limit (pinned_limit of the control page), more is refused as the driver refuses what the host does not have.
 */
#include "hooks/pinned.h"

#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "context/context.h"
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"

static struct vg_lock lock;
static uint64_t pinned_bytes[VG_DEVICES_MAX];

/* Under the lock, so that the page has the last sum. */
static void show(struct vg_device *device) {
  struct vg_report_device *report = VG_LOAD(&device->report);
  if (!report) return;
  VG_STORE_RELAXED(&report->pinned_bytes, pinned_bytes[device - vg_session.devices]);
  vg_report_changes(device);
}

/* Under the lock. */
static bool fits(struct vg_device *device, uint64_t bytes) {
  const struct vg_control_device *control = VG_LOAD(&device->control);
  uint64_t limit = control ? VG_LOAD_RELAXED(&control->pinned_limit) : 0,
           has = pinned_bytes[device - vg_session.devices];
  return !limit || (has < limit && bytes < limit - has);
}

static bool add(struct vg_device *device, uint64_t bytes) {
  struct vg_report_device *report = VG_LOAD(&device->report);
  vg_lock(&lock);
  bool is_granted = fits(device, bytes);
  if (is_granted) {
    pinned_bytes[device - vg_session.devices] += bytes;
    show(device);
  } else if (report) {
    VG_STORE_RELAXED(&report->pinned_denied, VG_LOAD_RELAXED(&report->pinned_denied) + 1);
  }
  vg_unlock(&lock);
  return is_granted;
}

static void subtract(struct vg_device *device, uint64_t bytes) {
  vg_lock(&lock);
  pinned_bytes[device - vg_session.devices] -= bytes;
  show(device);
  vg_unlock(&lock);
}

/* What is pinned of these bytes at that address, NULL for memory that is to be made: whole pages. */
static uint64_t pages_of(const void *address, uint64_t bytes) {
  uint64_t page = (uint64_t)getpagesize(), first = (uint64_t)(uintptr_t)address & (page - 1), whole;
  return __builtin_add_overflow(bytes, first + page - 1, &whole) ? UINT64_MAX : whole & ~(page - 1);
}

/* Before the driver's call. False: the slice may pin no more. *ret_record NULL: nothing is counted. */
static bool begin(const void *address, uint64_t requested_bytes, struct vg_record **ret_record) {
  uint64_t bytes = pages_of(address, requested_bytes);
  CUcontext context;
  struct vg_device *device = vg_context_current(&context);
  struct vg_record *record = device ? vg_record_new(VG_RECORD_PINNED, device, context) : NULL;
  *ret_record = record;
  if (!record) return true;
  record->size = bytes;
  if (add(device, bytes)) return true;
  vg_record_free(record);
  return false;
}

static CUresult end(struct vg_record *record, CUresult result, const void *address) {
  if (!record) return result;
  if (result == CUDA_SUCCESS)
    vg_table_put(record, (uint64_t)(uintptr_t)address);
  else
    vg_pinned_return(record);
  return result;
}

/* Another thread may pin memory at that address as soon as the driver has freed it. */
static struct vg_record *take(const void *address) {
  return VG_LOAD(&vg_session.ledger) ? vg_table_take(VG_RECORD_PINNED, (uint64_t)(uintptr_t)address) : NULL;
}

static CUresult settle(struct vg_record *record, CUresult result) {
  if (record && result == CUDA_SUCCESS) vg_pinned_return(record);
  if (record && result != CUDA_SUCCESS) vg_table_put(record, record->key);
  return result;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize) {
  struct vg_record *record;
  if (!begin(NULL, bytesize, &record)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = REAL(cuMemAllocHost_v2)(pp, bytesize);
  return end(record, result, result == CUDA_SUCCESS && record ? *pp : NULL);
}

CUresult cuMemAllocHost(void **pp, unsigned int bytesize) {
  struct vg_record *record;
  if (!begin(NULL, bytesize, &record)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = REAL(cuMemAllocHost)(pp, bytesize);
  return end(record, result, result == CUDA_SUCCESS && record ? *pp : NULL);
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags) {
  struct vg_record *record;
  if (!begin(NULL, bytesize, &record)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = REAL(cuMemHostAlloc)(pp, bytesize, Flags);
  return end(record, result, result == CUDA_SUCCESS && record ? *pp : NULL);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
  struct vg_record *record;
  if (!begin(p, bytesize, &record)) return CUDA_ERROR_OUT_OF_MEMORY;
  return end(record, REAL(cuMemHostRegister_v2)(p, bytesize, Flags), p);
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags) {
  struct vg_record *record;
  if (!begin(p, bytesize, &record)) return CUDA_ERROR_OUT_OF_MEMORY;
  return end(record, REAL(cuMemHostRegister)(p, bytesize, Flags), p);
}

CUresult cuMemFreeHost(void *p) {
  struct vg_record *record = take(p);
  return settle(record, REAL(cuMemFreeHost)(p));
}

CUresult cuMemHostUnregister(void *p) {
  struct vg_record *record = take(p);
  return settle(record, REAL(cuMemHostUnregister)(p));
}

void vg_pinned_return(struct vg_record *record) {
  subtract(record->device, record->size);
  vg_record_free(record);
}

void vg_pinned_refresh(struct vg_device *device) {
  vg_lock(&lock);
  show(device);
  vg_unlock(&lock);
}

/* What the parent has pinned is not the child's. */
void vg_pinned_forked_child(void) {
  lock = (struct vg_lock){0};
  memset(pinned_bytes, 0, sizeof pinned_bytes);
}
