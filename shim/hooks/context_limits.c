/*
 * context_limits.c - limits of a context that are device memory: the stacks of all threads that the device can hold,
 * the heap of device code and the buffer of its output. The default limits are a part of a context's cost; what a
 * program asks for beyond them is charged when it asks, since a driver may take it later in calls that cannot be
 * refused (a load, a launch). Called by programs, any thread.
 */
#include "hooks/context_limits.h"

#include <pthread.h>

#include "context/context.h"
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"
#include "ledger/credit.h"
#include "ledger/granule.h"
#include "ledger/records.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one limit is changed at a time */

/* An unknown attribute is not charged, so a failed call is repeated once. */
static uint64_t attribute(CUdevice_attribute name, CUdevice ordinal) {
  int value = 0;
  if (REAL(cuDeviceGetAttribute)(&value, name, ordinal) != CUDA_SUCCESS)
    REAL(cuDeviceGetAttribute)(&value, name, ordinal);
  return (uint64_t)value;
}

/* Bytes that a limit of this value takes; UINT64_MAX: the product overflows. */
static uint64_t bytes_of(const struct vg_device *device, CUlimit limit, uint64_t value) {
  uint64_t bytes, of_each = 1;
  CUdevice ordinal = vg_context_handle(device);
  if (limit == CU_LIMIT_STACK_SIZE)
    of_each = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal) *
              attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, ordinal);
  if (__builtin_mul_overflow(value, of_each, &bytes)) return UINT64_MAX;
  return vg_round_up(bytes, vg_granule_bytes(device));
}

/* Takes the record of a limit out of the table; the first time it is made, with the default that the driver reports. */
static CUresult take(struct vg_device *device, CUcontext context, CUlimit limit, struct vg_record **ret_record) {
  uint64_t key = (uintptr_t)context + limit;
  struct vg_record *record = *ret_record = vg_table_take(VG_RECORD_LIMIT, key);
  size_t usual;
  CUresult result = record ? CUDA_SUCCESS : REAL(cuCtxGetLimit)(&usual, limit);
  if (record || result != CUDA_SUCCESS) return result;
  record = *ret_record = vg_record_new(VG_RECORD_LIMIT, device, context);
  if (!record) return CUDA_ERROR_OUT_OF_MEMORY;
  record->key = key;
  record->size = bytes_of(device, limit, usual);
  return CUDA_SUCCESS;
}

static uint64_t beyond_usual(const struct vg_record *record, CUlimit limit, uint64_t value) {
  uint64_t bytes = bytes_of(record->device, limit, value);
  return bytes > record->size ? bytes - record->size : 0;
}

static void settle(struct vg_record *record, uint64_t bytes) {
  if (bytes > record->bytes) vg_memory_force(record->device, bytes - record->bytes);
  if (bytes < record->bytes) vg_memory_release(record->device, record->bytes - bytes);
  record->bytes = bytes;
}

static CUresult set(struct vg_record *record, CUlimit limit, size_t value) {
  uint64_t before_bytes = record->bytes, bytes = beyond_usual(record, limit, value);
  size_t now = value;
  if (bytes > before_bytes) {
    if (vg_memory_reserve(record->device, bytes - before_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    record->bytes = bytes;
  }
  CUresult result = REAL(cuCtxSetLimit)(limit, value);
  if (result == CUDA_SUCCESS) REAL(cuCtxGetLimit)(&now, limit); /* the driver may round it */
  settle(record, result == CUDA_SUCCESS ? beyond_usual(record, limit, now) : before_bytes);
  return result;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  CUcontext context;
  bool takes = (unsigned)limit <= CU_LIMIT_MALLOC_HEAP_SIZE;
  struct vg_device *device = takes ? vg_context_current(&context) : NULL;
  if (!device) return REAL(cuCtxSetLimit)(limit, value);
  pthread_mutex_lock(&lock);
  struct vg_record *record;
  CUresult result = take(device, context, limit, &record);
  if (record) {
    result = set(record, limit, value);
    vg_table_put(record, record->key);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

void vg_limit_forked_child(void) {
  pthread_mutex_init(&lock, NULL);
}
