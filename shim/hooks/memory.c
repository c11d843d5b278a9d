/*
 * memory.c - device memory by address: cuMemAlloc, AllocPitch, AllocManaged, Free. Called by programs, any thread.
 */
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"
#include "hooks/charge.h"
#include "hooks/pool.h"
#include "ledger/granule.h"

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

/* The record is taken before the call: once the driver has freed the address another thread may be given it. */
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
