/* pool.c - memory in the order of a stream, and the pools that it comes from. */
#include "simcuda/cudart/runtime.h"

SC_PUBLIC cudaError_t cudaMallocAsync(void **ret_pointer, size_t bytes, CUstream stream) {
  return SC_CALL(cuMemAllocAsync, (CUdeviceptr *)ret_pointer, bytes, stream);
}

SC_PUBLIC cudaError_t cudaMallocFromPoolAsync(void **ret_pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return SC_CALL(cuMemAllocFromPoolAsync, (CUdeviceptr *)ret_pointer, bytes, pool, stream);
}

SC_PUBLIC cudaError_t cudaFreeAsync(void *pointer, CUstream stream) {
  return SC_CALL(cuMemFreeAsync, (CUdeviceptr)pointer, stream);
}

SC_PUBLIC cudaError_t cudaDeviceGetDefaultMemPool(CUmemoryPool *ret_pool, int device) {
  return SC_CALL(cuDeviceGetDefaultMemPool, ret_pool, device);
}

SC_PUBLIC cudaError_t cudaDeviceGetMemPool(CUmemoryPool *ret_pool, int device) {
  return SC_CALL(cuDeviceGetMemPool, ret_pool, device);
}

SC_PUBLIC cudaError_t cudaDeviceSetMemPool(int device, CUmemoryPool pool) {
  return SC_CALL(cuDeviceSetMemPool, device, pool);
}

SC_PUBLIC cudaError_t cudaMemPoolCreate(CUmemoryPool *ret_pool, const CUmemPoolProps *properties) {
  return SC_CALL(cuMemPoolCreate, ret_pool, properties);
}

SC_PUBLIC cudaError_t cudaMemPoolDestroy(CUmemoryPool pool) {
  return SC_CALL(cuMemPoolDestroy, pool);
}

SC_PUBLIC cudaError_t cudaMemPoolTrimTo(CUmemoryPool pool, size_t kept_bytes) {
  return SC_CALL(cuMemPoolTrimTo, pool, kept_bytes);
}

/* The numbers of attributes are the driver's. */
SC_PUBLIC cudaError_t cudaMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *ret_value) {
  return SC_CALL(cuMemPoolGetAttribute, pool, attribute, ret_value);
}

SC_PUBLIC cudaError_t cudaMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  return SC_CALL(cuMemPoolSetAttribute, pool, attribute, value);
}

SC_PUBLIC cudaError_t cudaMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count) {
  return SC_CALL(cuMemPoolSetAccess, pool, list, count);
}

SC_PUBLIC cudaError_t cudaMemPoolGetAccess(CUmemAccess_flags *ret_flags, CUmemoryPool pool, CUmemLocation *location) {
  return SC_CALL(cuMemPoolGetAccess, ret_flags, pool, location);
}

/* ---- pools of other processes ---- */

SC_PUBLIC cudaError_t cudaMemPoolExportToShareableHandle(void *ret_handle, CUmemoryPool pool,
                                                         CUmemAllocationHandleType type, unsigned flags) {
  return SC_CALL(cuMemPoolExportToShareableHandle, ret_handle, pool, type, flags);
}

SC_PUBLIC cudaError_t cudaMemPoolImportFromShareableHandle(CUmemoryPool *ret_pool, void *handle,
                                                           CUmemAllocationHandleType type, unsigned flags) {
  return SC_CALL(cuMemPoolImportFromShareableHandle, ret_pool, handle, type, flags);
}

SC_PUBLIC cudaError_t cudaMemPoolExportPointer(CUmemPoolPtrExportData *ret_data, void *pointer) {
  return SC_CALL(cuMemPoolExportPointer, ret_data, (CUdeviceptr)pointer);
}

SC_PUBLIC cudaError_t cudaMemPoolImportPointer(void **ret_pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
  return SC_CALL(cuMemPoolImportPointer, (CUdeviceptr *)ret_pointer, pool, data);
}
