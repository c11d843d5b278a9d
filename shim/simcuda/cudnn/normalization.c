/*
 * normalization.c - batch normalization of cuDNN's older interface, with the activations that may follow. It works in
 * no memory beside the tensors here; what the backward pass needs of a fused activation is a bit an element.
 */
#include "simcuda/common/public.h"
#include "simcuda/cudnn/descriptors.h"
#include "simcuda/cudnn/handle.h"

/* the signatures are cuDNN's; what lies in memory is not looked at */
#pragma GCC diagnostic ignored "-Wunused-parameter"

enum operations { OPERATIONS_BN = 0, OPERATIONS_BN_ACTIVATION = 1, OPERATIONS_BN_ADD_ACTIVATION = 2 };

/* operations an element: mean, variance, scaling; and the two sums of the backward pass */
#define FORWARD_FLOPS 8
#define BACKWARD_FLOPS 12
#define INFERENCE_FLOPS 2

SC_PUBLIC int cudnnSetActivationDescriptor(struct sc_dnn_activation *activation, int mode, int nan_propagation,
                                           double coefficient) {
  if (!sc_dnn_is(activation, SC_DNN_ACTIVATION) || mode < 0 || mode > 6)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "there is no such activation");
  activation->mode = mode;
  activation->coefficient = coefficient;
  return CUDNN_STATUS_SUCCESS;
}

static int check(int operations, const struct sc_dnn_tensor *x) {
  if (!sc_dnn_is_tensor(x) || x->rank < 2)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "batch normalization needs a tensor of a batch and channels");
  if (operations < OPERATIONS_BN || operations > OPERATIONS_BN_ADD_ACTIVATION)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "batch normalization has no such operation after it");
  return CUDNN_STATUS_SUCCESS;
}

static int answer_no_bytes(int operations, const struct sc_dnn_tensor *x, size_t *ret_bytes) {
  if (ret_bytes == NULL) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "there is no place for a size");
  int status = check(operations, x);
  if (status == CUDNN_STATUS_SUCCESS) *ret_bytes = 0;
  return status;
}

SC_PUBLIC int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    const struct sc_dnn_handle *handle, int mode, int operations, const struct sc_dnn_tensor *x,
    const struct sc_dnn_tensor *z, const struct sc_dnn_tensor *y, const struct sc_dnn_tensor *parameters,
    const struct sc_dnn_activation *activation, size_t *ret_bytes) {
  return answer_no_bytes(operations, x, ret_bytes);
}

SC_PUBLIC int cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    const struct sc_dnn_handle *handle, int mode, int operations, const struct sc_dnn_tensor *x,
    const struct sc_dnn_tensor *y, const struct sc_dnn_tensor *dy, const struct sc_dnn_tensor *dz,
    const struct sc_dnn_tensor *dx, const struct sc_dnn_tensor *parameters, const struct sc_dnn_activation *activation,
    size_t *ret_bytes) {
  return answer_no_bytes(operations, x, ret_bytes);
}

SC_PUBLIC int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(const struct sc_dnn_handle *handle, int mode,
                                                                   int operations,
                                                                   const struct sc_dnn_activation *activation,
                                                                   const struct sc_dnn_tensor *x, size_t *ret_bytes) {
  int status = answer_no_bytes(operations, x, ret_bytes);
  if (status == CUDNN_STATUS_SUCCESS && operations != OPERATIONS_BN)
    *ret_bytes = (size_t)(sc_dnn_count(x->dims, x->rank) / 8) + 1;
  return status;
}

static int run(const struct sc_dnn_handle *handle, const struct sc_dnn_tensor *x, double flops_per_element,
               double bytes) {
  double flops = flops_per_element * sc_dnn_count(x->dims, x->rank);
  /* the sums are of FP32, on the ordinary units */
  return sc_dnn_launch(handle, SC_WORK_NORMALIZATION, (struct sc_cost){flops, bytes, SC_MATH_FP32});
}

SC_PUBLIC int cudnnBatchNormalizationForwardTrainingEx(
    const struct sc_dnn_handle *handle, int mode, int operations, const void *alpha, const void *beta,
    const struct sc_dnn_tensor *x, const void *x_data, const struct sc_dnn_tensor *z, const void *z_data,
    const struct sc_dnn_tensor *y, void *y_data, const struct sc_dnn_tensor *parameters, const void *scale,
    const void *bias, double average_factor, void *running_mean, void *running_variance, double epsilon,
    void *saved_mean, void *saved_variance, const struct sc_dnn_activation *activation, void *workspace,
    size_t workspace_bytes, void *reserve, size_t reserve_bytes) {
  int status = check(operations, x);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  bool is_added = operations == OPERATIONS_BN_ADD_ACTIVATION;
  if (alpha == NULL || beta == NULL || !sc_dnn_is_tensor(y) || (is_added && !sc_dnn_is_tensor(z)))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "batch normalization misses alpha, beta, y or z");
  /* x is read for the statistics and again for the result */
  double bytes = 2 * sc_dnn_measure_bytes(x) + sc_dnn_measure_bytes(y) + (is_added ? sc_dnn_measure_bytes(z) : 0);
  return run(handle, x, FORWARD_FLOPS, bytes);
}

SC_PUBLIC int cudnnBatchNormalizationForwardInference(const struct sc_dnn_handle *handle, int mode, const void *alpha,
                                                      const void *beta, const struct sc_dnn_tensor *x,
                                                      const void *x_data, const struct sc_dnn_tensor *y, void *y_data,
                                                      const struct sc_dnn_tensor *parameters, const void *scale,
                                                      const void *bias, const void *mean, const void *variance,
                                                      double epsilon) {
  int status = check(OPERATIONS_BN, x);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (alpha == NULL || beta == NULL || !sc_dnn_is_tensor(y))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "batch normalization misses alpha, beta or y");
  return run(handle, x, INFERENCE_FLOPS, sc_dnn_measure_bytes(x) + sc_dnn_measure_bytes(y));
}

SC_PUBLIC int cudnnBatchNormalizationBackwardEx(
    const struct sc_dnn_handle *handle, int mode, int operations, const void *alpha_data, const void *beta_data,
    const void *alpha_parameters, const void *beta_parameters, const struct sc_dnn_tensor *x, const void *x_data,
    const struct sc_dnn_tensor *y, const void *y_data, const struct sc_dnn_tensor *dy, const void *dy_data,
    const struct sc_dnn_tensor *dz, void *dz_data, const struct sc_dnn_tensor *dx, void *dx_data,
    const struct sc_dnn_tensor *parameters, const void *scale, const void *bias, void *scale_gradient,
    void *bias_gradient, double epsilon, const void *saved_mean, const void *saved_variance,
    const struct sc_dnn_activation *activation, void *workspace, size_t workspace_bytes, void *reserve,
    size_t reserve_bytes) {
  int status = check(operations, x);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  bool is_added = operations == OPERATIONS_BN_ADD_ACTIVATION;
  if (alpha_data == NULL || beta_data == NULL || alpha_parameters == NULL || beta_parameters == NULL ||
      !sc_dnn_is_tensor(dy) || !sc_dnn_is_tensor(dx) || (is_added && !sc_dnn_is_tensor(dz)))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "batch normalization misses factors, dy, dx or dz");
  /* x and dy are read for the sums and again for the result */
  double bytes = 2 * sc_dnn_measure_bytes(x) + 2 * sc_dnn_measure_bytes(dy) + sc_dnn_measure_bytes(dx);
  return run(handle, x, BACKWARD_FLOPS, bytes + (is_added ? sc_dnn_measure_bytes(dz) : 0));
}
