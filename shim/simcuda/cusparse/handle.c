/* handle.c - handles of the simulated cuSPARSE, its objects without a meaning here, and how all functions work. */
#include "simcuda/common/work.h"
#include "simcuda/cusparse/cusparse.h"
#include <stdlib.h>

#define MARK 0x63737061u
#define VERSION_MAJOR 12 /* 12.6.2: that of CUDA 13.0 */
#define VERSION_MINOR 6
#define VERSION_PATCH 2

bool sc_sparse_is_handle(const struct sc_sparse *handle) {
  return handle != NULL && handle->mark == MARK;
}

/* Elements are gathered one by one: matrix units are of no use, so numbers of 16 and 8 bits compute as FP32 does. */
static enum sc_math math_of(const struct sc_number *number) {
  return number->math == SC_MATH_FP64 ? SC_MATH_FP64 : SC_MATH_FP32;
}

enum sc_sparse_status sc_sparse_run(struct sc_sparse *handle, const struct sc_number *number, double flops,
                                    double bytes) {
  if (!sc_sparse_is_handle(handle)) return SC_SPARSE_NOT_INITIALIZED;
  if (number == NULL) return SC_SPARSE_NOT_SUPPORTED;
  if (flops < 0 || bytes < 0) return SC_SPARSE_INVALID_VALUE;
  if (bytes == 0) return SC_SPARSE_SUCCESS;
  struct sc_cost cost = {flops * number->flops, bytes, math_of(number)};
  CUresult result = sc_launch_work(SC_WORK_SPARSE, handle->stream, sc_estimate_ns(&cost), cost.flops);
  return result == CUDA_SUCCESS ? SC_SPARSE_SUCCESS : SC_SPARSE_EXECUTION_FAILED;
}

enum sc_sparse_status sc_sparse_fill(struct sc_sparse *handle, CUdeviceptr memory, int byte, size_t bytes) {
  if (memory == 0 || bytes == 0) return SC_SPARSE_SUCCESS;
  CUresult result = sc_driver()->cuMemsetD8Async(memory, (unsigned char)byte, bytes, handle->stream);
  return result == CUDA_SUCCESS ? SC_SPARSE_SUCCESS : SC_SPARSE_EXECUTION_FAILED;
}

/* On the device the bytes of a value must all be the same, as those of 0 and -1 are. */
enum sc_sparse_status sc_sparse_return(struct sc_sparse *handle, int *result, int value) {
  if (!sc_sparse_is_handle(handle)) return SC_SPARSE_NOT_INITIALIZED;
  if (result == NULL) return SC_SPARSE_INVALID_VALUE;
  if (handle->has_device_pointers) return sc_sparse_fill(handle, (CUdeviceptr)result, value, sizeof *result);
  *result = value;
  return SC_SPARSE_SUCCESS;
}

SC_PUBLIC enum sc_sparse_status cusparseCreate(struct sc_sparse **ret_handle) {
  if (ret_handle == NULL) return SC_SPARSE_INVALID_VALUE;
  if (sc_driver() == NULL) return SC_SPARSE_NOT_INITIALIZED;
  *ret_handle = calloc(1, sizeof **ret_handle);
  if (*ret_handle == NULL) return SC_SPARSE_ALLOC_FAILED;
  (*ret_handle)->mark = MARK;
  return SC_SPARSE_SUCCESS;
}

/* type: libraryPropertyType of the public header, 0 to 2: major, minor, patch. JAX looks at it first. */
SC_PUBLIC enum sc_sparse_status cusparseGetProperty(int type, int *ret_value) {
  static const int values[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};
  if (type < 0 || type > 2 || ret_value == NULL) return SC_SPARSE_INVALID_VALUE;
  *ret_value = values[type];
  return SC_SPARSE_SUCCESS;
}

SC_PUBLIC enum sc_sparse_status cusparseDestroy(struct sc_sparse *handle) {
  if (!sc_sparse_is_handle(handle)) return SC_SPARSE_NOT_INITIALIZED;
  handle->mark = 0;
  free(handle);
  return SC_SPARSE_SUCCESS;
}

SC_PUBLIC enum sc_sparse_status cusparseSetStream(struct sc_sparse *handle, CUstream stream) {
  if (!sc_sparse_is_handle(handle)) return SC_SPARSE_NOT_INITIALIZED;
  handle->stream = stream;
  return SC_SPARSE_SUCCESS;
}

SC_PUBLIC enum sc_sparse_status cusparseSetPointerMode(struct sc_sparse *handle, int mode) {
  if (!sc_sparse_is_handle(handle)) return SC_SPARSE_NOT_INITIALIZED;
  if (mode != 0 && mode != 1) return SC_SPARSE_INVALID_VALUE;
  handle->has_device_pointers = mode == 1;
  return SC_SPARSE_SUCCESS;
}

SC_PUBLIC const char *cusparseGetErrorString(enum sc_sparse_status status) {
  switch (status) {
  case SC_SPARSE_SUCCESS:
    return "success";
  case SC_SPARSE_NOT_INITIALIZED:
    return "not initialized: no handle";
  case SC_SPARSE_ALLOC_FAILED:
    return "out of memory";
  case SC_SPARSE_INVALID_VALUE:
    return "invalid value";
  case SC_SPARSE_EXECUTION_FAILED:
    return "the device failed";
  case SC_SPARSE_NOT_SUPPORTED:
    return "not supported by the SIMULATED cuSPARSE";
  default:
    return "unknown status";
  }
}

/* What algorithms keep between their steps, and how old functions describe matrices: objects that can be made, set
 * and destroyed. */
#define SC_DEFINE_CREATE(name)                                                                                         \
  SC_PUBLIC enum sc_sparse_status name(void **ret_object) {                                                            \
    if (ret_object == NULL) return SC_SPARSE_INVALID_VALUE;                                                            \
    *ret_object = calloc(1, 1);                                                                                        \
    return *ret_object != NULL ? SC_SPARSE_SUCCESS : SC_SPARSE_ALLOC_FAILED;                                           \
  }
SC_DEFINE_CREATE(cusparseCreateMatDescr)
SC_DEFINE_CREATE(cusparseCreateBsrsm2Info)
SC_DEFINE_CREATE(cusparseCreateBsrsv2Info)
SC_DEFINE_CREATE(cusparseSpGEMM_createDescr)
SC_DEFINE_CREATE(cusparseSpSM_createDescr)
SC_DEFINE_CREATE(cusparseSpSV_createDescr)

#define SC_DEFINE_DESTROY(name)                                                                                        \
  SC_PUBLIC enum sc_sparse_status name(void *object) {                                                                 \
    free(object);                                                                                                      \
    return SC_SPARSE_SUCCESS;                                                                                          \
  }
SC_DEFINE_DESTROY(cusparseDestroyMatDescr)
SC_DEFINE_DESTROY(cusparseDestroyBsrsm2Info)
SC_DEFINE_DESTROY(cusparseDestroyBsrsv2Info)
SC_DEFINE_DESTROY(cusparseSpGEMM_destroyDescr)
SC_DEFINE_DESTROY(cusparseSpSM_destroyDescr)
SC_DEFINE_DESTROY(cusparseSpSV_destroyDescr)

#define SC_DEFINE_SET(name)                                                                                            \
  SC_PUBLIC enum sc_sparse_status name(void *object, int value) {                                                      \
    return object != NULL ? SC_SPARSE_SUCCESS : SC_SPARSE_INVALID_VALUE;                                               \
  }
SC_DEFINE_SET(cusparseSetMatType)
SC_DEFINE_SET(cusparseSetMatFillMode)
SC_DEFINE_SET(cusparseSetMatDiagType)
SC_DEFINE_SET(cusparseSetMatIndexBase)
