/* memory.c - memory of devices and of the host, and what a pointer points to. */
#include "simcuda/cudart/runtime.h"

SC_PUBLIC cudaError_t cudaMalloc(void **ret_pointer, size_t bytes) {
  if (ret_pointer == NULL) return sc_end(cudaErrorInvalidValue);
  if (bytes == 0) {
    *ret_pointer = NULL;
    return SC_CALL(cuCtxGetCurrent, &(CUcontext){NULL});
  }
  return SC_CALL(cuMemAlloc_v2, (CUdeviceptr *)ret_pointer, bytes);
}

SC_PUBLIC cudaError_t cudaMallocManaged(void **ret_pointer, size_t bytes, unsigned flags) {
  return SC_CALL(cuMemAllocManaged, (CUdeviceptr *)ret_pointer, bytes, flags);
}

/* Programs free NULL to have the context made. */
SC_PUBLIC cudaError_t cudaFree(void *pointer) {
  if (pointer == NULL) return SC_CALL(cuCtxGetCurrent, &(CUcontext){NULL});
  return SC_CALL(cuMemFree_v2, (CUdeviceptr)pointer);
}

SC_PUBLIC cudaError_t cudaMallocPitch(void **ret_pointer, size_t *ret_pitch, size_t width_bytes, size_t height) {
  return SC_CALL(cuMemAllocPitch_v2, (CUdeviceptr *)ret_pointer, ret_pitch, width_bytes, height, 4);
}

SC_PUBLIC cudaError_t cudaMalloc3D(struct cudaPitchedPtr *ret_pointer, struct cudaExtent extent) {
  struct cudaPitchedPtr pointer = {.xsize = extent.width, .ysize = extent.height};
  size_t rows;
  if (ret_pointer == NULL || __builtin_mul_overflow(extent.height, extent.depth, &rows))
    return sc_end(cudaErrorInvalidValue);
  cudaError_t error = cudaMallocPitch(&pointer.ptr, &pointer.pitch, extent.width, rows);
  if (error == cudaSuccess) *ret_pointer = pointer;
  return error;
}

SC_PUBLIC cudaError_t cudaHostAlloc(void **ret_pointer, size_t bytes, unsigned flags) {
  if (ret_pointer == NULL) return sc_end(cudaErrorInvalidValue);
  if (bytes == 0) {
    *ret_pointer = NULL;
    return SC_CALL(cuCtxGetCurrent, &(CUcontext){NULL});
  }
  return SC_CALL(cuMemHostAlloc, ret_pointer, bytes, flags);
}

SC_PUBLIC cudaError_t cudaMallocHost(void **ret_pointer, size_t bytes) {
  return cudaHostAlloc(ret_pointer, bytes, 0);
}

SC_PUBLIC cudaError_t cudaFreeHost(void *pointer) {
  if (pointer == NULL) return cudaSuccess;
  return SC_CALL(cuMemFreeHost, pointer);
}

SC_PUBLIC cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
  return SC_CALL(cuMemHostRegister_v2, pointer, bytes, flags);
}

SC_PUBLIC cudaError_t cudaHostUnregister(void *pointer) {
  return SC_CALL(cuMemHostUnregister, pointer);
}

SC_PUBLIC cudaError_t cudaHostGetDevicePointer(void **ret_pointer, void *pointer, unsigned flags) {
  return SC_CALL(cuMemHostGetDevicePointer_v2, (CUdeviceptr *)ret_pointer, pointer, flags);
}

SC_PUBLIC cudaError_t cudaHostGetFlags(unsigned *ret_flags, void *pointer) {
  return SC_CALL(cuMemHostGetFlags, ret_flags, pointer);
}

SC_PUBLIC cudaError_t cudaMemGetInfo(size_t *ret_free_bytes, size_t *ret_total_bytes) {
  return SC_CALL(cuMemGetInfo_v2, ret_free_bytes, ret_total_bytes);
}

static enum cudaMemoryType type_of(CUmemorytype memory, unsigned is_managed) {
  if (is_managed) return cudaMemoryTypeManaged;
  if (memory == CU_MEMORYTYPE_HOST) return cudaMemoryTypeHost;
  return memory == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
}

SC_PUBLIC cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *ret_attributes, const void *pointer) {
  CUmemorytype memory = 0;
  unsigned is_managed = 0;
  int device = cudaInvalidDeviceId;
  void *device_pointer = NULL, *host_pointer = NULL;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                  CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void *values[] = {&memory, &is_managed, &device, &device_pointer, &host_pointer};
  if (ret_attributes == NULL) return sc_end(cudaErrorInvalidValue);
  cudaError_t error =
      SC_CALL(cuPointerGetAttributes, sizeof wanted / sizeof *wanted, wanted, values, (CUdeviceptr)pointer);
  if (error != cudaSuccess) return error;
  *ret_attributes = (struct cudaPointerAttributes){type_of(memory, is_managed), device, device_pointer, host_pointer};
  if (ret_attributes->type == cudaMemoryTypeUnregistered)
    *ret_attributes = (struct cudaPointerAttributes){.device = cudaInvalidDeviceId, .hostPointer = (void *)pointer};
  return cudaSuccess;
}

/* ---- hints about managed memory ---- */

SC_PUBLIC cudaError_t cudaMemRangeGetAttribute(void *ret_data, size_t data_bytes, CUmem_range_attribute attribute,
                                               const void *pointer, size_t bytes) {
  return SC_CALL(cuMemRangeGetAttribute, ret_data, data_bytes, attribute, (CUdeviceptr)pointer, bytes);
}
