/* handle.h - cudnnHandle_t: the stream that calls put their work into. */
#ifndef SC_CUDNN_HANDLE_H
#define SC_CUDNN_HANDLE_H
#include "simcuda/common/work.h"
#include "simcuda/cudnn/status.h"
#include <stdbool.h>

struct sc_dnn_handle {
  uint32_t mark; /* SC_DNN_HANDLE_MARK: it is one, and not destroyed */
  CUstream stream;
};

#define SC_DNN_HANDLE_MARK 0x64686e64u

bool sc_dnn_is_handle(const struct sc_dnn_handle *handle);

/* What a kernel computes with: which figures of the device's data sheet its operations take. */
enum sc_dnn_math {
  SC_DNN_MATH_FP64,
  SC_DNN_MATH_FP32,
  SC_DNN_MATH_TF32,
  SC_DNN_MATH_FP16,
  SC_DNN_MATH_FP8,
};

/* type: of the inputs (enum cudnn_data_type). are_tensor_cores_allowed: whether FP32 may be rounded to TF32. */
enum sc_dnn_math sc_dnn_find_math(int type, bool are_tensor_cores_allowed);

/* How long a kernel of so many floating-point operations and bytes of memory takes. */
uint64_t sc_dnn_estimate_ns(double flops, double bytes, enum sc_dnn_math math);

/* Puts that kernel into the handle's stream. Returns a status. */
int sc_dnn_launch(const struct sc_dnn_handle *handle, enum sc_work kind, double flops, double bytes,
                  enum sc_dnn_math math);

#endif
