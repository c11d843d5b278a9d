/* handle.h - cudnnHandle_t: the stream that calls put their work into. */
#ifndef SC_CUDNN_HANDLE_H
#define SC_CUDNN_HANDLE_H
#include "simcuda/common/cost.h"
#include "simcuda/common/work.h"
#include "simcuda/cudnn/status.h"
#include <stdbool.h>

struct sc_dnn_handle {
  uint32_t mark; /* SC_DNN_HANDLE_MARK: it is one, and not destroyed */
  CUstream stream;
};

#define SC_DNN_HANDLE_MARK 0x64686e64u

bool sc_dnn_is_handle(const struct sc_dnn_handle *handle);

/* What computes with inputs of that type (enum cudnn_data_type). are_tensor_cores_allowed: FP32 may be rounded to
 * TF32. */
enum sc_math sc_dnn_find_math(int type, bool are_tensor_cores_allowed);

/* Puts a kernel of that kind and cost into the handle's stream. Returns a status. */
int sc_dnn_launch(const struct sc_dnn_handle *handle, enum sc_work kind, struct sc_cost cost);

/* The same for so many of them that wait for each other, as one kernel. */
int sc_dnn_launch_steps(const struct sc_dnn_handle *handle, enum sc_work kind, struct sc_cost step, double step_count);

#endif
