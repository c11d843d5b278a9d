/* handle.c - see handle.h. */
#include "simcuda/cudnn/handle.h"
#include "simcuda/common/public.h"
#include <stdlib.h>

bool sc_dnn_is_handle(const struct sc_dnn_handle *handle) {
  return handle != NULL && handle->mark == SC_DNN_HANDLE_MARK;
}

SC_PUBLIC int cudnnCreate(struct sc_dnn_handle **ret_handle) {
  if (ret_handle == NULL) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnCreate has no place for it");
  struct sc_dnn_handle *handle = calloc(1, sizeof *handle);
  if (handle == NULL) return sc_dnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory for a handle");
  handle->mark = SC_DNN_HANDLE_MARK;
  *ret_handle = handle;
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnDestroy(struct sc_dnn_handle *handle) {
  if (!sc_dnn_is_handle(handle)) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnDestroy needs a handle");
  handle->mark = 0;
  free(handle);
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnSetStream(struct sc_dnn_handle *handle, CUstream stream) {
  if (!sc_dnn_is_handle(handle)) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnSetStream needs a handle");
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnGetStream(const struct sc_dnn_handle *handle, CUstream *ret_stream) {
  if (!sc_dnn_is_handle(handle) || ret_stream == NULL)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnGetStream needs a handle and a place for the stream");
  *ret_stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

enum sc_math sc_dnn_find_math(int type, bool are_tensor_cores_allowed) {
  switch (type) {
  case CUDNN_DATA_DOUBLE:
    return SC_MATH_FP64;
  case CUDNN_DATA_HALF:
  case CUDNN_DATA_BFLOAT16:
    return SC_MATH_HALF;
  case CUDNN_DATA_FP8_E4M3:
  case CUDNN_DATA_FP8_E5M2:
    return SC_MATH_FP8;
  case CUDNN_DATA_INT8:
  case CUDNN_DATA_UINT8:
  case CUDNN_DATA_INT8x4:
  case CUDNN_DATA_INT8x32:
    return SC_MATH_INT8;
  default:
    return are_tensor_cores_allowed ? SC_MATH_TF32 : SC_MATH_FP32;
  }
}

int sc_dnn_launch(const struct sc_dnn_handle *handle, enum sc_work kind, struct sc_cost cost) {
  return sc_dnn_launch_steps(handle, kind, cost, 1);
}

int sc_dnn_launch_steps(const struct sc_dnn_handle *handle, enum sc_work kind, struct sc_cost step, double step_count) {
  if (!sc_dnn_is_handle(handle)) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a computation needs a handle");
  double duration_ns = (double)sc_estimate_ns(&step) * step_count;
  return sc_dnn_driver_status(
      (int)sc_launch_work(kind, handle->stream, (uint64_t)duration_ns, step.flops * step_count));
}
