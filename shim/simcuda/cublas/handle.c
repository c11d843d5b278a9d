/*
 * handle.c - handles of the simulated cuBLAS, what they keep for programs, and the one way in which its functions
 * work (cublas.h).
 */
#include "simcuda/cublas/cublas.h"
#include <stdlib.h>
#include <string.h>

#define MARK 0x63626c73u
#define VERSION 131000               /* of the header that programs were made with: 13.10.0 */
#define WORKSPACE_HOPPER (32u << 20) /* documented at cublasSetWorkspace: what a new handle has of its own */
#define WORKSPACE_OTHER (4u << 20)
#define WORKSPACE_ALIGN 256 /* documented at cublasSetWorkspace */

bool sc_cublas_is_handle(const struct sc_cublas *handle) {
  return handle != NULL && handle->mark == MARK;
}

enum sc_cublas_status sc_cublas_status_of(CUresult result) {
  switch (result) {
  case CUDA_SUCCESS:
    return SC_CUBLAS_SUCCESS;
  case CUDA_ERROR_OUT_OF_MEMORY:
    return SC_CUBLAS_ALLOC_FAILED;
  case CUDA_ERROR_NOT_INITIALIZED:
  case CUDA_ERROR_NO_DEVICE:
    return SC_CUBLAS_NOT_INITIALIZED;
  default:
    return SC_CUBLAS_EXECUTION_FAILED;
  }
}

enum sc_cublas_status sc_cublas_run(struct sc_cublas *handle, enum sc_work kind, struct sc_cost cost) {
  return sc_cublas_status_of(sc_launch_work(kind, handle->stream, sc_estimate_ns(&cost), cost.flops));
}

enum sc_cublas_status sc_cublas_return_zeros(struct sc_cublas *handle, void *result, size_t bytes) {
  const struct sc_driver *driver = sc_driver();
  if (handle->pointer_mode == SC_CUBLAS_DEVICE)
    return sc_cublas_status_of(driver->cuMemsetD8Async((CUdeviceptr)result, 0, bytes, handle->stream));
  CUresult status = driver->cuStreamSynchronize(handle->stream);
  memset(result, 0, bytes);
  return sc_cublas_status_of(status);
}

enum sc_cublas_status sc_cublas_clear_info(struct sc_cublas *handle, void *info, int batch) {
  if (info == NULL || batch == 0) return SC_CUBLAS_SUCCESS;
  size_t bytes = (size_t)batch * sizeof(int);
  return sc_cublas_status_of(sc_driver()->cuMemsetD8Async((CUdeviceptr)info, 0, bytes, handle->stream));
}

static size_t own_workspace_bytes(const struct sc_driver *driver) {
  CUdevice device;
  int major;
  if (driver->cuCtxGetDevice(&device) != CUDA_SUCCESS) return WORKSPACE_OTHER;
  if (driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) != CUDA_SUCCESS)
    return WORKSPACE_OTHER;
  return major >= 9 ? WORKSPACE_HOPPER : WORKSPACE_OTHER;
}

SC_PUBLIC enum sc_cublas_status cublasCreate_v2(struct sc_cublas **ret_handle) {
  const struct sc_driver *driver = sc_driver();
  if (ret_handle == NULL) return SC_CUBLAS_INVALID_VALUE;
  *ret_handle = NULL;
  CUcontext context;
  if (driver == NULL || driver->cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL)
    return SC_CUBLAS_NOT_INITIALIZED;
  struct sc_cublas *handle = calloc(1, sizeof *handle);
  if (handle == NULL) return SC_CUBLAS_ALLOC_FAILED;
  CUresult result = driver->cuMemAlloc_v2(&handle->workspace, own_workspace_bytes(driver));
  if (result != CUDA_SUCCESS) {
    free(handle);
    return sc_cublas_status_of(result);
  }
  handle->mark = MARK;
  handle->context = context;
  *ret_handle = handle;
  return SC_CUBLAS_SUCCESS;
}

SC_PUBLIC enum sc_cublas_status cublasDestroy_v2(struct sc_cublas *handle) {
  const struct sc_driver *driver = sc_driver();
  CUcontext before;
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  if (driver->cuCtxGetCurrent(&before) == CUDA_SUCCESS && driver->cuCtxSetCurrent(handle->context) == CUDA_SUCCESS) {
    driver->cuMemFree_v2(handle->workspace); /* fails where its context has ended, which freed it */
    driver->cuCtxSetCurrent(before);
  }
  handle->mark = 0;
  free(handle);
  return SC_CUBLAS_SUCCESS;
}

SC_PUBLIC enum sc_cublas_status cublasGetVersion_v2(struct sc_cublas *handle, int *ret_version) {
  if (ret_version == NULL) return SC_CUBLAS_INVALID_VALUE;
  *ret_version = VERSION;
  return SC_CUBLAS_SUCCESS;
}

SC_PUBLIC const char *cublasGetStatusName(enum sc_cublas_status status) {
  switch (status) {
  case SC_CUBLAS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case SC_CUBLAS_NOT_INITIALIZED:
    return "CUBLAS_STATUS_NOT_INITIALIZED";
  case SC_CUBLAS_ALLOC_FAILED:
    return "CUBLAS_STATUS_ALLOC_FAILED";
  case SC_CUBLAS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case SC_CUBLAS_MAPPING_ERROR:
    return "CUBLAS_STATUS_MAPPING_ERROR";
  case SC_CUBLAS_EXECUTION_FAILED:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  case SC_CUBLAS_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "an unknown status of cuBLAS";
}

SC_PUBLIC const char *cublasGetStatusString(enum sc_cublas_status status) {
  return cublasGetStatusName(status);
}

SC_PUBLIC enum sc_cublas_status cublasSetStream_v2(struct sc_cublas *handle, CUstream stream) {
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  handle->stream = stream;
  return SC_CUBLAS_SUCCESS;
}

SC_PUBLIC enum sc_cublas_status cublasGetStream_v2(struct sc_cublas *handle, CUstream *ret_stream) {
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  if (ret_stream == NULL) return SC_CUBLAS_INVALID_VALUE;
  *ret_stream = handle->stream;
  return SC_CUBLAS_SUCCESS;
}

/* Products take the same time in every workspace, so a program's own is only looked at. */
SC_PUBLIC enum sc_cublas_status cublasSetWorkspace_v2(struct sc_cublas *handle, void *workspace, size_t bytes) {
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  if ((uintptr_t)workspace % WORKSPACE_ALIGN != 0) return SC_CUBLAS_INVALID_VALUE;
  return SC_CUBLAS_SUCCESS;
}

/* A setting that is kept: the field, and the largest of its values. */
#define SC_DEFINE_SETTER(name, field, largest)                                                                         \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int value) {                                          \
    if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;                                                \
    if (value < 0 || value > largest) return SC_CUBLAS_INVALID_VALUE;                                                  \
    handle->field = value;                                                                                             \
    return SC_CUBLAS_SUCCESS;                                                                                          \
  }
SC_DEFINE_SETTER(cublasSetPointerMode_v2, pointer_mode, SC_CUBLAS_DEVICE)
SC_DEFINE_SETTER(cublasSetMathMode, math_mode, 31) /* bits */
SC_DEFINE_SETTER(cublasSetAtomicsMode, atomics_mode, 1)
SC_DEFINE_SETTER(cublasSetSmCountTarget, sm_count_target, 1 << 20)

#define SC_DEFINE_GETTER(name, field)                                                                                  \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int *ret_value) {                                     \
    if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;                                                \
    if (ret_value == NULL) return SC_CUBLAS_INVALID_VALUE;                                                             \
    *ret_value = handle->field;                                                                                        \
    return SC_CUBLAS_SUCCESS;                                                                                          \
  }
SC_DEFINE_GETTER(cublasGetPointerMode_v2, pointer_mode)
SC_DEFINE_GETTER(cublasGetMathMode, math_mode)
SC_DEFINE_GETTER(cublasGetAtomicsMode, atomics_mode)
SC_DEFINE_GETTER(cublasGetSmCountTarget, sm_count_target)
