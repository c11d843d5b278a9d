/*
 * movable.c - see movable.h. The lock guards the list and is never held across a driver call.
 */
#include "moves/movable.h"

#include <pthread.h>
#include <stdlib.h>

#include "context/context.h"
#include "gate/gate.h"
#include "gen/abi/real.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vg_movable *all;
static uint64_t all_bytes;
static bool are_shared;

/* ---- the list ---- */

/* Under the lock, so that the page has the last sum. */
static void show(struct vg_device *device) {
  struct vg_report_device *report = VG_LOAD(&device->report);
  if (!report) return;
  VG_STORE(&report->movable_bytes, all_bytes);
  vg_report_changes(device);
}

void vg_movable_show(struct vg_device *device) {
  pthread_mutex_lock(&lock);
  show(device);
  pthread_mutex_unlock(&lock);
}

static void enter(struct vg_movable *movable) {
  pthread_mutex_lock(&lock);
  movable->next = all;
  movable->link = &all;
  if (all) all->link = &movable->next;
  all = movable;
  VG_STORE(&vg_residence_has_movable, true);
  all_bytes += movable->bytes;
  show(movable->device);
  pthread_mutex_unlock(&lock);
}

static void leave(struct vg_movable *movable) {
  pthread_mutex_lock(&lock);
  *movable->link = movable->next;
  if (movable->next) movable->next->link = movable->link;
  if (!all) VG_STORE(&vg_residence_has_movable, false);
  all_bytes -= movable->bytes;
  show(movable->device);
  pthread_mutex_unlock(&lock);
}

struct vg_movable *vg_movable_first(void) {
  return all;
}

bool vg_movable_exist(void) {
  return VG_LOAD_RELAXED(&all) != NULL;
}

bool vg_movable_are_shared(void) {
  return VG_LOAD(&are_shared) || VG_LOAD(&vg_residence_shared);
}

bool vg_movable_has(CUdeviceptr address) {
  bool has = false;
  if (VG_LIKELY(!VG_LOAD(&all))) return false;
  pthread_mutex_lock(&lock);
  for (const struct vg_movable *one = all; one && !has; one = one->next)
    has = address >= one->address && address - one->address < one->bytes;
  pthread_mutex_unlock(&lock);
  return has;
}

void vg_movable_share(CUdeviceptr address) {
  if (vg_movable_has(address)) VG_STORE(&are_shared, true);
}

/* ---- physical memory ---- */

/* Without a handle of ours, which the map does not need: unmapped, the memory is free. */
CUresult vg_movable_map(struct vg_movable *movable) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = movable->ordinal}};
  CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUresult result = REAL(cuMemCreate)(&handle, movable->bytes, &prop, 0);
  if (result != CUDA_SUCCESS) return result;
  result = REAL(cuMemMap)(movable->address, movable->bytes, 0, handle, 0);
  movable->is_mapped = result == CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) {
    result = REAL(cuMemSetAccess)(movable->address, movable->bytes, &access, 1);
    if (result != CUDA_SUCCESS) vg_movable_unmap(movable);
  }
  REAL(cuMemRelease)(handle);
  return result;
}

CUresult vg_movable_unmap(struct vg_movable *movable) {
  CUresult result = movable->is_mapped ? REAL(cuMemUnmap)(movable->address, movable->bytes) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) movable->is_mapped = false;
  return result;
}

/* ---- life ---- */

static bool is_possible(void) {
  return !vg_movable_are_shared() && HAVE(cuMemAddressReserve) && HAVE(cuMemAddressFree) && HAVE(cuMemCreate) &&
         HAVE(cuMemRelease) && HAVE(cuMemMap) && HAVE(cuMemUnmap) && HAVE(cuMemSetAccess);
}

CUresult vg_movable_make(struct vg_device *device, CUcontext context, uint64_t bytes, struct vg_movable **ret_movable) {
  struct vg_movable *movable = is_possible() ? malloc(sizeof *movable) : NULL;
  if (!movable) return CUDA_ERROR_NOT_SUPPORTED;
  *movable =
      (struct vg_movable){.bytes = bytes, .device = device, .context = context, .ordinal = vg_context_handle(device)};
  CUresult result = REAL(cuMemAddressReserve)(&movable->address, bytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) {
    result = vg_movable_map(movable);
    if (result != CUDA_SUCCESS) REAL(cuMemAddressFree)(movable->address, bytes);
  }
  if (result != CUDA_SUCCESS) {
    free(movable);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_ERROR_NOT_SUPPORTED;
  }
  enter(movable);
  *ret_movable = movable;
  return CUDA_SUCCESS;
}

static void end(struct vg_movable *movable) {
  leave(movable);
  REAL(cuMemAddressFree)(movable->address, movable->bytes);
  free(movable);
}

/* Records an event behind all work of the context, which is current. NOT_READY: a stream captures. */
static CUresult record_event(CUcontext context, CUevent *ret_event) {
  CUresult result = REAL(cuEventCreate)(ret_event, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) return result;
  result = vg_gate_record_context(context, *ret_event);
  if (result == CUDA_SUCCESS) return result;
  REAL(cuEventDestroy_v2)(*ret_event);
  *ret_event = NULL;
  return result;
}

static CUresult end_event(struct vg_movable *movable, bool waits) {
  CUresult result = waits ? REAL(cuEventSynchronize)(movable->freeing) : REAL(cuEventQuery)(movable->freeing);
  if (result == CUDA_ERROR_NOT_READY) return result;
  REAL(cuEventDestroy_v2)(movable->freeing);
  movable->freeing = NULL;
  return result;
}

/* Without cuCtxSynchronize() where the driver can: it would end a capture that another thread begins meanwhile. */
static CUresult pass_work(struct vg_movable *movable, bool waits) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUresult result = CUDA_SUCCESS;
  if (!movable->freeing && vg_gate_is_capturing()) return CUDA_ERROR_NOT_READY;
  if (!HAVE(cuCtxRecordEvent)) return waits ? REAL(cuCtxSynchronize)() : CUDA_ERROR_NOT_READY;
  bool is_relaxed = REAL(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS;
  if (!movable->freeing) result = record_event(movable->context, &movable->freeing);
  if (result == CUDA_SUCCESS) result = end_event(movable, waits);
  if (is_relaxed) REAL(cuThreadExchangeStreamCaptureMode)(&mode);
  return result;
}

static CUresult free_behind_work(struct vg_movable *movable, bool waits) {
  CUcontext unused;
  CUresult result = REAL(cuCtxPushCurrent_v2)(movable->context);
  if (result != CUDA_SUCCESS) return result;
  result = pass_work(movable, waits);
  REAL(cuCtxPopCurrent_v2)(&unused);
  if (result == CUDA_SUCCESS) result = vg_movable_unmap(movable);
  if (result == CUDA_SUCCESS) end(movable);
  return result;
}

CUresult vg_movable_free(struct vg_movable *movable) {
  return free_behind_work(movable, true);
}

CUresult vg_movable_try_free(struct vg_movable *movable) {
  return free_behind_work(movable, false);
}

void vg_movable_drop(struct vg_movable *movable) {
  vg_movable_unmap(movable);
  end(movable);
}

void vg_movable_forked_child(void) {
  pthread_mutex_init(&lock, NULL);
  all = NULL; /* the parent's: the driver does not work in this process before an exec */
  all_bytes = 0;
  are_shared = false;
}
