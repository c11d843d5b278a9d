/*
 * memory.c - device memory by address: cuMemAlloc, AllocPitch, AllocManaged, Free. Called by programs, any thread.
 *
 * The device hands out granules (2 MiB). A large allocation is charged by whole granules; small ones share chunks of a
 * granule, so the ledger counts the chunks that live small allocations touch: address / granule. Where the credit for a
 * chunk lacks a small allocation may still fit into an open one (free_room.c): then the driver is asked, and it
 * is undone if it did not.
 */
#include "hooks/memory.h"

#include <pthread.h>

#include "base/prim.h"
#include "gate/gate.h"
#include "gen/abi/real.h"
#include "ledger/credit.h"

#define GRANULE_DEFAULT_BYTES (2ull << 20)
#define PITCH_ALIGN_BYTES 512 /* what pitches are rounded to at least; the real pitch is looked at afterwards */

uint64_t vg_charge_granule(const struct vg_device *device) {
  return device->resolved.granule_bytes ? device->resolved.granule_bytes : GRANULE_DEFAULT_BYTES;
}

uint64_t vg_charge_round(uint64_t bytes, uint64_t granule) {
  uint64_t more = bytes % granule ? granule - bytes % granule : 0;
  return bytes > UINT64_MAX - more ? UINT64_MAX : bytes + more;
}

static bool is_small(const struct vg_device *device, uint64_t bytes) {
  return bytes < vg_charge_granule(device);
}

/* ---- small allocations: chunks ---- */

static uint64_t chunk_key(const struct vg_device *device, uint64_t chunk) {
  return chunk | (uint64_t)(device - vg_session.devices) << 56;
}

static bool enter_chunk(struct vg_charge *charge, uint64_t chunk) {
  if (vg_table_add_or_put(charge->chunk, chunk_key(charge->device, chunk)) > 1) return false;
  charge->chunk = NULL;
  return true;
}

static void leave_chunk(struct vg_device *device, uint64_t chunk) {
  struct vg_record *closed;
  vg_table_add(VG_RECORD_CHUNK, chunk_key(device, chunk), -1, &closed);
  if (!closed) return;
  vg_record_free(closed);
  vg_memory_release(device, vg_charge_granule(device));
}

/* A small allocation lies in one chunk; should a driver ever let one straddle two, the first is what it is charged by.
 */
static bool commit_small(struct vg_charge *charge, CUdeviceptr address) {
  struct vg_device *device = charge->device;
  uint64_t granule = vg_charge_granule(device);
  bool opened = enter_chunk(charge, address / granule);
  charge->record->other = address / granule;
  if (opened && charge->blind && vg_memory_reserve(device, granule)) {
    struct vg_record *closed;
    uint32_t others = vg_table_add(VG_RECORD_CHUNK, chunk_key(device, address / granule), -1, &closed);
    vg_record_free(closed);
    if (others) vg_memory_force(device, granule); /* another thread came into the chunk meanwhile: it stays open */
    return false;
  }
  if (!opened) vg_memory_release(device, charge->reserved_bytes);
  return true;
}

/* ---- reserve, commit, roll back ---- */

static pthread_mutex_t blind_lock = PTHREAD_MUTEX_INITIALIZER; /* of one that has no credit, across its call */

static bool finds_room(struct vg_charge *charge, CUcontext context, uint64_t bytes) {
  pthread_mutex_lock(&blind_lock);
  charge->blind = vg_room_by_address(charge->device, context, bytes);
  if (!charge->blind) pthread_mutex_unlock(&blind_lock);
  return charge->blind;
}

static void leave_blind(struct vg_charge *charge) {
  if (charge->blind) pthread_mutex_unlock(&blind_lock);
  charge->blind = false;
}

static bool prepare(struct vg_charge *charge, CUcontext context, bool small) {
  charge->record = vg_record_new(VG_RECORD_POINTER, charge->device, context);
  charge->chunk = small ? vg_record_new(VG_RECORD_CHUNK, charge->device, NULL) : NULL;
  if (charge->record && (charge->chunk || !small)) return true;
  vg_record_free(charge->record);
  vg_record_free(charge->chunk);
  return false;
}

bool vg_charge_begin(struct vg_charge *charge, uint64_t bytes) {
  CUcontext context;
  *charge = (struct vg_charge){.device = vg_context_current(&context)};
  if (!charge->device || !bytes) {
    charge->device = NULL;
    return true;
  }
  bool small = is_small(charge->device, bytes);
  if (!prepare(charge, context, small)) return false;
  charge->reserved_bytes = vg_charge_round(bytes, vg_charge_granule(charge->device));
  if (vg_memory_reserve(charge->device, charge->reserved_bytes) == 0) return true;
  charge->reserved_bytes = 0;
  if (small && finds_room(charge, context, bytes)) return true;
  vg_charge_cancel(charge);
  return false;
}

void vg_charge_cancel(struct vg_charge *charge) {
  if (charge->reserved_bytes) vg_memory_release(charge->device, charge->reserved_bytes);
  vg_record_free(charge->record);
  vg_record_free(charge->chunk);
  leave_blind(charge);
}

bool vg_charge_commit(struct vg_charge *charge, CUdeviceptr address, uint64_t bytes) {
  bool done = true;
  if (charge->chunk) {
    done = commit_small(charge, address);
    vg_record_free(charge->chunk);
  } else {
    charge->record->bytes = charge->reserved_bytes;
  }
  charge->record->size = bytes;
  if (done)
    vg_table_put(charge->record, address);
  else
    vg_record_free(charge->record);
  leave_blind(charge);
  return done;
}

void vg_charge_return(struct vg_record *record) {
  if (record->bytes)
    vg_memory_release(record->device, record->bytes);
  else if (record->kind == VG_RECORD_POINTER)
    leave_chunk(record->device, record->other);
  else if (record->kind == VG_RECORD_ARRAY)
    vg_array_gone(record);
  else if (record->kind == VG_RECORD_GRAPH)
    vg_graph_record_gone(record);
  else if (record->kind == VG_RECORD_CAPTURE)
    vg_gate_capture_end();
  vg_record_free(record);
}

bool vg_exchange_mode(CUstreamCaptureMode *mode) {
  return HAVE(cuThreadExchangeStreamCaptureMode) && REAL(cuThreadExchangeStreamCaptureMode)(mode) == CUDA_SUCCESS;
}

void vg_charge_refresh(struct vg_device *device) {
  vg_pool_refresh(device);
  vg_graph_refresh(device);
}

void vg_charge_forked_child(void) {
  pthread_mutex_init(&blind_lock, NULL);
  vg_table_forked_child();
  vg_pool_forked_child();
  vg_graph_forked_child();
  vg_array_forked_child();
  vg_handle_forked_child();
  vg_multicast_forked_child();
  vg_limit_forked_child();
}

void vg_charge_context_gone(struct vg_device *device, CUcontext context) {
  struct vg_record *record = vg_table_take_context(context);
  while (record) {
    struct vg_record *next = record->next;
    vg_charge_return(record);
    record = next;
  }
  vg_charge_refresh(device);
}

/* ---- the hooks ---- */

/* There is no room: but arguments that the driver would not take at all are refused as such. */
static CUresult refused(bool valid) {
  return valid ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

static bool is_element(unsigned int bytes) { /* of a pitched allocation */
  return bytes == 4 || bytes == 8 || bytes == 16;
}

/* After the driver's call: commits, or undoes. *out is written on success only. */
static CUresult settle(struct vg_charge *charge, CUresult result, CUdeviceptr address, uint64_t bytes,
                       CUdeviceptr *out) {
  if (result != CUDA_SUCCESS) {
    vg_charge_cancel(charge);
  } else if (!vg_charge_commit(charge, address, bytes)) {
    REAL(cuMemFree_v2)(address);
    return CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    *out = address;
  }
  return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
  struct vg_charge charge;
  if (!dptr) return REAL(cuMemAlloc_v2)(dptr, bytesize);
  if (!vg_charge_begin(&charge, bytesize)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!charge.device) return REAL(cuMemAlloc_v2)(dptr, bytesize);
  CUdeviceptr address = 0;
  CUresult result = REAL(cuMemAlloc_v2)(&address, bytesize);
  return settle(&charge, result, address, bytesize, dptr);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
  struct vg_charge charge;
  if (!dptr) return REAL(cuMemAllocManaged)(dptr, bytesize, flags);
  if (!vg_charge_begin(&charge, bytesize)) return refused(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
  if (!charge.device) return REAL(cuMemAllocManaged)(dptr, bytesize, flags);
  CUdeviceptr address = 0;
  CUresult result = REAL(cuMemAllocManaged)(&address, bytesize, flags);
  return settle(&charge, result, address, bytesize, dptr);
}

static uint64_t pitched_bytes(uint64_t width, uint64_t height) {
  uint64_t bytes;
  return __builtin_mul_overflow(vg_charge_round(width, PITCH_ALIGN_BYTES), height, &bytes) ? UINT64_MAX : bytes;
}

/* The pitch is the driver's choice: brings the reservation to what it turned out to take. */
static bool adjust(struct vg_charge *charge, uint64_t bytes) {
  uint64_t needed = vg_charge_round(bytes, vg_charge_granule(charge->device));
  if (charge->chunk && !is_small(charge->device, bytes)) {
    vg_record_free(charge->chunk);
    charge->chunk = NULL;
  }
  if (charge->chunk || needed <= charge->reserved_bytes) return true;
  if (vg_memory_reserve(charge->device, needed - charge->reserved_bytes)) return false;
  charge->reserved_bytes = needed;
  return true;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  struct vg_charge charge;
  if (!dptr || !pPitch) return REAL(cuMemAllocPitch_v2)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  if (!vg_charge_begin(&charge, pitched_bytes(WidthInBytes, Height))) return refused(is_element(ElementSizeBytes));
  if (!charge.device) return REAL(cuMemAllocPitch_v2)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  CUdeviceptr address = 0;
  size_t pitch = 0;
  CUresult result = REAL(cuMemAllocPitch_v2)(&address, &pitch, WidthInBytes, Height, ElementSizeBytes);
  if (result == CUDA_SUCCESS && !adjust(&charge, pitch * Height)) {
    REAL(cuMemFree_v2)(address);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  result = settle(&charge, result, address, pitch * Height, dptr);
  if (result == CUDA_SUCCESS) *pPitch = pitch;
  return result;
}

static CUresult freed(struct vg_record *record, CUresult result) {
  bool pooled = record && record->kind == VG_RECORD_POOLED;
  if (record && result == CUDA_SUCCESS) vg_charge_return(record);
  if (record && result != CUDA_SUCCESS) vg_table_put(record, record->key);
  if (pooled) __atomic_add_fetch(&vg_pool_frees_done, 1, __ATOMIC_SEQ_CST);
  return result;
}

/* Memory of pools is freed by the same calls. */
static struct vg_record *take(CUdeviceptr address) {
  struct vg_record *record = vg_table_take(VG_RECORD_POINTER, address);
  if (!record && (record = vg_table_take(VG_RECORD_POOLED, address)))
    __atomic_add_fetch(&vg_pool_frees_begun, 1, __ATOMIC_SEQ_CST);
  return record;
}

/* The record goes first: once the driver has freed the address another thread may be given it. */
CUresult cuMemFree_v2(CUdeviceptr dptr) {
  struct vg_record *record = take(dptr);
  return freed(record, REAL(cuMemFree_v2)(dptr));
}

/* Memory of cuMemAlloc freed in stream order goes back to the device a little later than to the ledger. */
CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  struct vg_record *record = take(dptr);
  return freed(record, REAL(cuMemFreeAsync)(dptr, hStream));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  struct vg_record *record = take(dptr);
  return freed(record, REAL(cuMemFreeAsync_ptsz)(dptr, hStream));
}

/* ---- the first interface, of 32-bit addresses: drivers for 64-bit programs refuse or serve it, which is theirs ----
 */

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize) {
  struct vg_charge charge;
  if (!dptr) return REAL(cuMemAlloc)(dptr, bytesize);
  if (!vg_charge_begin(&charge, bytesize)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!charge.device) return REAL(cuMemAlloc)(dptr, bytesize);
  CUdeviceptr_v1 address = 0;
  CUresult result = REAL(cuMemAlloc)(&address, bytesize);
  CUdeviceptr out = 0;
  result = settle(&charge, result, address, bytesize, &out);
  if (result == CUDA_SUCCESS) *dptr = (CUdeviceptr_v1)out;
  return result;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes, unsigned int Height,
                         unsigned int ElementSizeBytes) {
  struct vg_charge charge;
  if (!dptr || !pPitch) return REAL(cuMemAllocPitch)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  if (!vg_charge_begin(&charge, pitched_bytes(WidthInBytes, Height))) return refused(is_element(ElementSizeBytes));
  if (!charge.device) return REAL(cuMemAllocPitch)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  CUdeviceptr_v1 address = 0;
  unsigned int pitch = 0;
  CUresult result = REAL(cuMemAllocPitch)(&address, &pitch, WidthInBytes, Height, ElementSizeBytes);
  uint64_t bytes = (uint64_t)pitch * Height;
  if (result == CUDA_SUCCESS && !adjust(&charge, bytes)) {
    REAL(cuMemFree)(address);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUdeviceptr out = 0;
  result = settle(&charge, result, address, bytes, &out);
  if (result != CUDA_SUCCESS) return result;
  *dptr = (CUdeviceptr_v1)out;
  *pPitch = pitch;
  return result;
}

CUresult cuMemFree(CUdeviceptr_v1 dptr) {
  struct vg_record *record = take(dptr);
  return freed(record, REAL(cuMemFree)(dptr));
}
