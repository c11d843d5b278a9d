/*
 * memory.c - device memory by address: cuMemAlloc, AllocPitch, AllocManaged, Free. Called by programs, any thread.
 */
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"
#include "hooks/charge.h"
#include "hooks/late_free.h"
#include "hooks/pool.h"
#include "ledger/granule.h"
#include "moves/movable.h"

#define PITCH_ALIGN_BYTES 512 /* pitches are rounded to at least this; the driver's choice is checked afterwards */

/* The error where a reservation fails: OUT_OF_MEMORY, unless the driver would refuse the arguments anyway. */
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

/* Large memory of a slice whose memory this process is to move itself. */
static CUresult allocate_movable(const struct vg_charge *charge, CUdeviceptr *ret_address) {
  struct vg_record *record = charge->record;
  struct vg_movable *movable;
  CUresult result = vg_movable_make(charge->device, record->context, charge->reserved_bytes, &movable);
  if (result != CUDA_SUCCESS) return result;
  record->other = (uintptr_t)movable;
  *ret_address = movable->address;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
  struct vg_charge charge;
  if (!dptr) return REAL(cuMemAlloc_v2)(dptr, bytesize);
  if (!vg_charge_begin(&charge, bytesize)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!charge.device) return REAL(cuMemAlloc_v2)(dptr, bytesize);
  CUdeviceptr address = 0;
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (VG_UNLIKELY(vg_movable_is_wanted()) && !charge.chunk) result = allocate_movable(&charge, &address);
  if (VG_LIKELY(result == CUDA_ERROR_NOT_SUPPORTED)) result = REAL(cuMemAlloc_v2)(&address, bytesize);
  return settle(&charge, result, address, bytesize, dptr);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
  struct vg_charge charge;
  if (!dptr) return REAL(cuMemAllocManaged)(dptr, bytesize, flags);
  if (!vg_charge_begin(&charge, bytesize)) return refused(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
  if (!charge.device) return REAL(cuMemAllocManaged)(dptr, bytesize, flags);
  charge.record->count = VG_POINTER_MANAGED;
  CUdeviceptr address = 0;
  CUresult result = REAL(cuMemAllocManaged)(&address, bytesize, flags);
  return settle(&charge, result, address, bytesize, dptr);
}

static uint64_t pitched_bytes(uint64_t width, uint64_t height) {
  uint64_t bytes;
  return __builtin_mul_overflow(vg_round_up(width, PITCH_ALIGN_BYTES), height, &bytes) ? UINT64_MAX : bytes;
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
  if (result == CUDA_SUCCESS && !vg_charge_grow(&charge, pitch * Height)) {
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

static bool is_movable(const struct vg_record *record) {
  return record && record->bytes && record->other && record->kind == VG_RECORD_POINTER;
}

/* The record is taken before the call: once the driver has freed the address another thread may be given it. */
CUresult cuMemFree_v2(CUdeviceptr dptr) {
  struct vg_record *record = take(dptr);
  if (VG_UNLIKELY(is_movable(record))) return vg_late_free(record);
  return freed(record, REAL(cuMemFree_v2)(dptr));
}

/* Memory of cuMemAlloc freed in stream order goes back to the device a little later than to the ledger; what is movable
 * at once, when all work of its context has completed. */
CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  struct vg_record *record = take(dptr);
  if (VG_UNLIKELY(is_movable(record))) return vg_late_free(record);
  return freed(record, REAL(cuMemFreeAsync)(dptr, hStream));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  struct vg_record *record = take(dptr);
  if (VG_UNLIKELY(is_movable(record))) return vg_late_free(record);
  return freed(record, REAL(cuMemFreeAsync_ptsz)(dptr, hStream));
}

/* The driver sees whole granules, mapped at the address. */
CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
  CUdeviceptr base = 0;
  struct vg_record known;
  CUresult result = REAL(cuMemGetAddressRange_v2)(pbase, psize, dptr);
  if (VG_LIKELY(!vg_movable_exist()) || result != CUDA_SUCCESS || !psize) return result;
  if (pbase)
    base = *pbase;
  else if (REAL(cuMemGetAddressRange_v2)(&base, NULL, dptr) != CUDA_SUCCESS)
    return result;
  if (vg_table_look(VG_RECORD_POINTER, base, &known) && is_movable(&known)) *psize = known.size;
  return result;
}

/* ---- memory that others are given, or give: the process is not moved any more ---- */

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
  VG_STORE(&vg_residence_shared, true);
  return REAL(cuIpcOpenMemHandle)(pdptr, handle, Flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
  VG_STORE(&vg_residence_shared, true);
  return REAL(cuIpcOpenMemHandle_v2)(pdptr, handle, Flags);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
  vg_movable_share(dptr);
  return REAL(cuIpcGetMemHandle)(pHandle, dptr);
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
                                       unsigned long long flags) {
  vg_movable_share(dptr);
  return REAL(cuMemGetHandleForAddressRange)(handle, dptr, size, handleType, flags);
}

/* SYNC_MEMOPS is set for RDMA. */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  vg_movable_share(ptr);
  return REAL(cuPointerSetAttribute)(value, attribute, ptr);
}

/* ---- the first interface, of 32-bit addresses, which a driver for 64-bit programs may refuse or serve ---- */

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
  if (result == CUDA_SUCCESS && !vg_charge_grow(&charge, bytes)) {
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
