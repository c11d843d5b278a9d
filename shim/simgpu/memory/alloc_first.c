/*
 * alloc_first.c - the first interface of memory, of 32-bit addresses. Its allocations lie below 4 GiB, where nothing
 * else is put, so that it is whole for a program that uses nothing newer; an address that does not fit is not reported.
 * All else is what the second interface does with the same arguments, as with copies (copies/copy_first.c).
 */
#include "simgpu/memory/alloc_first.h"
#include "simgpu/memory/alloc.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"

CUresult sim_first_address(CUresult result, const CUdeviceptr *address, CUdeviceptr_v1 *ret_address) {
  if (result != CUDA_SUCCESS) return result;
  if (*address > UINT32_MAX) return CUDA_ERROR_NOT_SUPPORTED;
  if (ret_address) *ret_address = (CUdeviceptr_v1)*address;
  return CUDA_SUCCESS;
}

unsigned sim_first_bytes(size_t bytes) {
  return bytes < UINT32_MAX ? (unsigned)bytes : UINT32_MAX;
}

static CUresult low(bool valid, size_t bytes, CUdeviceptr_v1 *ret_pointer) {
  struct sim_context *context;
  CUdeviceptr pointer = 0;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_capture_unsafe();
  if (result != CUDA_SUCCESS) return result;
  if (!valid || !ret_pointer) return CUDA_ERROR_INVALID_VALUE;
  return sim_first_address(sim_memory_alloc_low(context, bytes, &pointer), &pointer, ret_pointer);
}

SIM_PUBLIC CUresult cuMemAlloc(CUdeviceptr_v1 *ret_pointer, unsigned bytes) {
  return low(true, bytes, ret_pointer);
}

SIM_PUBLIC CUresult cuMemAllocPitch(CUdeviceptr_v1 *ret_pointer, unsigned *ret_pitch, unsigned width_bytes,
                                    unsigned height, unsigned element_bytes) {
  size_t pitch = sim_pitch(width_bytes, height, element_bytes);
  CUresult result = low(ret_pitch && pitch, pitch * height, ret_pointer);
  if (result == CUDA_SUCCESS) *ret_pitch = (unsigned)pitch;
  return result;
}

SIM_PUBLIC CUresult cuMemFree(CUdeviceptr_v1 pointer) {
  return cuMemFree_v2(pointer);
}

SIM_PUBLIC CUresult cuMemGetInfo(unsigned *ret_free, unsigned *ret_total) {
  size_t available, total;
  CUresult result = cuMemGetInfo_v2(&available, &total);
  if (result != CUDA_SUCCESS) return result;
  if (ret_free) *ret_free = sim_first_bytes(available);
  if (ret_total) *ret_total = sim_first_bytes(total);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemGetAddressRange(CUdeviceptr_v1 *ret_base, unsigned *ret_bytes, CUdeviceptr_v1 address) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CUresult result = sim_first_address(cuMemGetAddressRange_v2(&base, &bytes, address), &base, ret_base);
  if (result == CUDA_SUCCESS && ret_bytes) *ret_bytes = sim_first_bytes(bytes);
  return result;
}

SIM_PUBLIC CUresult cuMemAllocHost(void **ret_pointer, unsigned bytes) {
  return cuMemAllocHost_v2(ret_pointer, bytes);
}

SIM_PUBLIC CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned flags) {
  return cuMemHostRegister_v2(pointer, bytes, flags);
}

SIM_PUBLIC CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *ret_pointer, void *pointer, unsigned flags) {
  CUdeviceptr found = 0;
  return sim_first_address(cuMemHostGetDevicePointer_v2(&found, pointer, flags), &found, ret_pointer);
}
