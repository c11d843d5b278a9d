/* handle.c - handles of the simulated cuSOLVER, objects without a meaning here, and how all functions start work. */
#include "simcuda/common/cost.h"
#include "simcuda/common/work.h"
#include "simcuda/cusolver/cusolver.h"
#include <limits.h>
#include <stdlib.h>

#define VERSION 11702 /* 11.7.2: the older of the two libraries that this is */
#define MARK 0x63736f6cu

static bool is_handle(const struct sc_solver *handle) {
  return handle != NULL && handle->mark == MARK;
}

enum sc_solver_status sc_solver_run(struct sc_solver *handle, int type, struct sc_solver_work work, void *info,
                                    int64_t batch) {
  const struct sc_number *number = sc_find_number(type);
  if (!is_handle(handle)) return SC_SOLVER_NOT_INITIALIZED;
  if (number == NULL) return SC_SOLVER_NOT_SUPPORTED;
  if (batch < 0 || work.elements < 0) return SC_SOLVER_INVALID_VALUE;
  if (batch == 0) return SC_SOLVER_SUCCESS;
  if (work.elements > 0) {
    double count = (double)batch;
    struct sc_cost cost = {work.flops * count * number->flops, work.elements * count * number->bytes, number->math};
    uint64_t duration_ns = sc_estimate_ns(&cost) + (uint64_t)work.wait_ns;
    CUresult result = sc_launch_work(SC_WORK_SOLVER, handle->stream, duration_ns, cost.flops);
    if (result != CUDA_SUCCESS) return SC_SOLVER_EXECUTION_FAILED;
  }
  if (info == NULL) return SC_SOLVER_SUCCESS;
  size_t bytes = (size_t)batch * sizeof(int);
  CUresult result = sc_driver()->cuMemsetD8Async((CUdeviceptr)info, 0, bytes, handle->stream);
  return result == CUDA_SUCCESS ? SC_SOLVER_SUCCESS : SC_SOLVER_EXECUTION_FAILED;
}

enum sc_solver_status sc_solver_answer(const struct sc_solver *handle, double elements, int *ret_elements) {
  if (!is_handle(handle)) return SC_SOLVER_NOT_INITIALIZED;
  if (ret_elements == NULL || elements < 0 || elements > INT_MAX) return SC_SOLVER_INVALID_VALUE;
  *ret_elements = (int)elements;
  return SC_SOLVER_SUCCESS;
}

enum sc_solver_status sc_solver_answer_bytes(const struct sc_solver *handle, int type, double elements,
                                             size_t *ret_device_bytes, size_t *ret_host_bytes) {
  const struct sc_number *number = sc_find_number(type);
  if (!is_handle(handle)) return SC_SOLVER_NOT_INITIALIZED;
  if (number == NULL) return SC_SOLVER_NOT_SUPPORTED;
  if (ret_device_bytes == NULL || ret_host_bytes == NULL || elements < 0 || elements > 1e15)
    return SC_SOLVER_INVALID_VALUE;
  *ret_device_bytes = (size_t)(elements * number->bytes);
  *ret_host_bytes = 0;
  return SC_SOLVER_SUCCESS;
}

SC_PUBLIC enum sc_solver_status cusolverGetVersion(int *ret_version) {
  if (ret_version == NULL) return SC_SOLVER_INVALID_VALUE;
  *ret_version = VERSION;
  return SC_SOLVER_SUCCESS;
}

SC_PUBLIC enum sc_solver_status cusolverDnCreate(struct sc_solver **ret_handle) {
  if (ret_handle == NULL) return SC_SOLVER_INVALID_VALUE;
  if (sc_driver() == NULL) return SC_SOLVER_NOT_INITIALIZED;
  *ret_handle = calloc(1, sizeof **ret_handle);
  if (*ret_handle == NULL) return SC_SOLVER_ALLOC_FAILED;
  (*ret_handle)->mark = MARK;
  return SC_SOLVER_SUCCESS;
}

SC_PUBLIC enum sc_solver_status cusolverDnDestroy(struct sc_solver *handle) {
  if (!is_handle(handle)) return SC_SOLVER_NOT_INITIALIZED;
  handle->mark = 0;
  free(handle);
  return SC_SOLVER_SUCCESS;
}

SC_PUBLIC enum sc_solver_status cusolverDnSetStream(struct sc_solver *handle, CUstream stream) {
  if (!is_handle(handle)) return SC_SOLVER_NOT_INITIALIZED;
  handle->stream = stream;
  return SC_SOLVER_SUCCESS;
}

/* Parameters of algorithms, which are all the same here: an object that can be made and destroyed. */
#define SC_DEFINE_CREATE(name)                                                                                         \
  SC_PUBLIC enum sc_solver_status name(void **ret_object) {                                                            \
    if (ret_object == NULL) return SC_SOLVER_INVALID_VALUE;                                                            \
    *ret_object = calloc(1, 1);                                                                                        \
    return *ret_object != NULL ? SC_SOLVER_SUCCESS : SC_SOLVER_ALLOC_FAILED;                                           \
  }
SC_DEFINE_CREATE(cusolverDnCreateParams)
SC_DEFINE_CREATE(cusolverDnCreateGesvdjInfo)
SC_DEFINE_CREATE(cusolverDnCreateSyevjInfo)

#define SC_DEFINE_DESTROY(name)                                                                                        \
  SC_PUBLIC enum sc_solver_status name(void *object) {                                                                 \
    free(object);                                                                                                      \
    return SC_SOLVER_SUCCESS;                                                                                          \
  }
SC_DEFINE_DESTROY(cusolverDnDestroyParams)
SC_DEFINE_DESTROY(cusolverDnDestroyGesvdjInfo)
SC_DEFINE_DESTROY(cusolverDnDestroySyevjInfo)

#define SC_DEFINE_SET(name, value_type)                                                                                \
  SC_PUBLIC enum sc_solver_status name(void *object, value_type value) {                                               \
    return object != NULL ? SC_SOLVER_SUCCESS : SC_SOLVER_INVALID_VALUE;                                               \
  }
SC_DEFINE_SET(cusolverDnXgesvdjSetMaxSweeps, int)
SC_DEFINE_SET(cusolverDnXgesvdjSetSortEig, int)
SC_DEFINE_SET(cusolverDnXgesvdjSetTolerance, double)
