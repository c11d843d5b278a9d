/*
 * memory.c - memory of NCCL's, and memory that programs announce to it: device memory as any other, and nothing to do.
 * Windows, one-sided operations and kernels of programs that communicate are refused (generated).
 */
#include "simcuda/common/driver.h"
#include "simcuda/common/public.h"
#include "simcuda/nccl/communicator.h"
#include "simcuda/nccl/failure.h"

ncclResult_t ncclMemAlloc(void **ret_pointer, size_t bytes);
SC_PUBLIC ncclResult_t ncclMemAlloc(void **ret_pointer, size_t bytes) {
  const struct sc_driver *driver = sc_driver();
  CUdeviceptr address = 0;
  if (ret_pointer == NULL || bytes == 0)
    return sc_nccl_fail(ncclInvalidArgument, "ncclMemAlloc: the pointer is NULL, or no bytes");
  if (driver == NULL) return sc_nccl_fail(ncclUnhandledCudaError, "ncclMemAlloc: there is no CUDA driver");
  CUresult result = driver->cuMemAlloc_v2(&address, bytes);
  *ret_pointer = (void *)address;
  return sc_nccl_check(result, "cuMemAlloc");
}

ncclResult_t ncclMemFree(void *pointer);
SC_PUBLIC ncclResult_t ncclMemFree(void *pointer) {
  const struct sc_driver *driver = sc_driver();
  if (pointer == NULL) return ncclSuccess;
  if (driver == NULL) return sc_nccl_fail(ncclUnhandledCudaError, "ncclMemFree: there is no CUDA driver");
  return sc_nccl_check(driver->cuMemFree_v2((CUdeviceptr)pointer), "cuMemFree");
}

/* The handle only says that there is one. */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes, void **ret_handle);
SC_PUBLIC ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes, void **ret_handle) {
  ncclResult_t result = sc_comm_check(comm, "ncclCommRegister");
  if (result != ncclSuccess) return result;
  if (buffer == NULL || bytes == 0 || ret_handle == NULL)
    return sc_nccl_fail(ncclInvalidArgument, "ncclCommRegister: a pointer is NULL, or no bytes");
  *ret_handle = buffer;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);
SC_PUBLIC ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
  (void)handle;
  return sc_comm_check(comm, "ncclCommDeregister");
}
