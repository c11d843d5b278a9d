/*
 * convolution.c - convolutions of cuDNN's older interface: their descriptors, the algorithms that are offered, and the
 * computations. One algorithm a direction answers, which is deterministic. How much memory it works in is known to
 * cuDNN alone: 0 is answered, so what a program allocates for it is at least what the simulation shows.
 */
#include "simcuda/common/public.h"
#include "simcuda/cudnn/descriptors.h"
#include "simcuda/cudnn/handle.h"
#include <string.h>

/* the signatures are cuDNN's; what lies in memory is not looked at */
#pragma GCC diagnostic ignored "-Wunused-parameter"

SC_PUBLIC int cudnnSetConvolutionNdDescriptor(struct sc_dnn_convolution *convolution, int rank, const int *paddings,
                                              const int *strides, const int *dilations, int mode, int compute_type) {
  if (!sc_dnn_is(convolution, SC_DNN_CONVOLUTION) || paddings == NULL || strides == NULL || dilations == NULL)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a convolution is set by paddings, strides and dilations");
  if (rank < 1 || sc_dnn_find_element_bytes(compute_type) == 0)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a convolution has extents and a type to compute in");
  if (rank > CUDNN_DIM_MAX - 2)
    return sc_dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "a convolution goes over at most 6 dimensions");
  for (int i = 0; i < rank; i++)
    if (paddings[i] < 0 || strides[i] < 1 || dilations[i] < 1)
      return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "paddings are at least 0, strides and dilations at least 1");
  convolution->rank = rank;
  memcpy(convolution->paddings, paddings, (size_t)rank * sizeof *paddings);
  memcpy(convolution->strides, strides, (size_t)rank * sizeof *strides);
  memcpy(convolution->dilations, dilations, (size_t)rank * sizeof *dilations);
  convolution->mode = mode;
  convolution->compute_type = compute_type;
  convolution->groups = 1;
  convolution->math_type = CUDNN_DEFAULT_MATH;
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnSetConvolutionGroupCount(struct sc_dnn_convolution *convolution, int groups) {
  if (!sc_dnn_is(convolution, SC_DNN_CONVOLUTION) || groups < 1)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a convolution has at least one group");
  convolution->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnSetConvolutionMathType(struct sc_dnn_convolution *convolution, int math_type) {
  if (!sc_dnn_is(convolution, SC_DNN_CONVOLUTION) || math_type < CUDNN_DEFAULT_MATH || math_type > CUDNN_FMA_MATH)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "there is no such type of mathematics");
  convolution->math_type = math_type;
  return CUDNN_STATUS_SUCCESS;
}

/* Whether y is what the convolution makes of x. */
static int check_shapes(const struct sc_dnn_tensor *x, const struct sc_dnn_filter *w,
                        const struct sc_dnn_convolution *convolution, const struct sc_dnn_tensor *y) {
  if (!sc_dnn_is_tensor(x) || !sc_dnn_is(w, SC_DNN_FILTER) || !sc_dnn_is(convolution, SC_DNN_CONVOLUTION) ||
      !sc_dnn_is_tensor(y))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a convolution needs two tensors, a filter and its descriptor");
  int rank = convolution->rank + 2;
  if (convolution->rank == 0 || x->rank != rank || w->rank != rank || y->rank != rank)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "tensors and filter have two dimensions more than the convolution");
  if (x->dims[0] != y->dims[0] || (int64_t)w->dims[1] * convolution->groups != x->dims[1] || w->dims[0] != y->dims[1] ||
      w->dims[0] % convolution->groups != 0)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "batch or channels of a convolution do not fit");
  for (int i = 0; i < convolution->rank; i++) {
    int64_t window = (int64_t)convolution->dilations[i] * (w->dims[i + 2] - 1) + 1;
    int64_t space = x->dims[i + 2] + 2 * (int64_t)convolution->paddings[i] - window;
    if (space < 0 || space / convolution->strides[i] + 1 != y->dims[i + 2])
      return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "extents of a convolution do not fit");
  }
  return CUDNN_STATUS_SUCCESS;
}

static struct sc_cost measure_work(const struct sc_dnn_tensor *x, const struct sc_dnn_filter *w,
                                   const struct sc_dnn_convolution *convolution, const struct sc_dnn_tensor *y) {
  double per_output = sc_dnn_count(w->dims + 1, w->rank - 1);
  double filter_bytes = sc_dnn_count(w->dims, w->rank) * sc_dnn_find_element_bytes(w->type);
  return (struct sc_cost){
      .flops = 2 * per_output * sc_dnn_count(y->dims, y->rank),
      .bytes = filter_bytes + sc_dnn_measure_bytes(x) + sc_dnn_measure_bytes(y),
      .math = sc_dnn_find_math(w->type, convolution->math_type != CUDNN_FMA_MATH),
  };
}

static int run(const struct sc_dnn_handle *handle, const struct sc_dnn_tensor *x, const struct sc_dnn_filter *w,
               const struct sc_dnn_convolution *convolution, const struct sc_dnn_tensor *y) {
  int status = check_shapes(x, w, convolution, y);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  struct sc_cost cost = measure_work(x, w, convolution, y);
  return sc_dnn_launch(handle, SC_WORK_CONVOLUTION, cost);
}

/* ---- algorithms ---- */

static int answer_algorithm(const struct sc_dnn_handle *handle, const struct sc_dnn_tensor *x,
                            const struct sc_dnn_filter *w, const struct sc_dnn_convolution *convolution,
                            const struct sc_dnn_tensor *y, int algorithm, int requested, int *ret_count,
                            struct cudnn_algorithm_answer *ret_answers) {
  if (!sc_dnn_is_handle(handle) || ret_count == NULL || ret_answers == NULL || requested < 1)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "algorithms are asked for with a handle and a place for at least one");
  int status = check_shapes(x, w, convolution, y);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  struct sc_cost cost = measure_work(x, w, convolution, y);
  *ret_count = 1;
  ret_answers[0] = (struct cudnn_algorithm_answer){
      .algorithm = algorithm,
      .status = CUDNN_STATUS_SUCCESS,
      .time_ms = (float)((double)sc_estimate_ns(&cost) / 1e6),
      .determinism = CUDNN_DETERMINISTIC,
      .math_type = convolution->math_type,
  };
  return CUDNN_STATUS_SUCCESS;
}

static int answer_workspace(const struct sc_dnn_tensor *x, const struct sc_dnn_filter *w,
                            const struct sc_dnn_convolution *convolution, const struct sc_dnn_tensor *y, int algorithm,
                            int algorithm_count, size_t *ret_bytes) {
  if (ret_bytes == NULL || algorithm < 0 || algorithm >= algorithm_count)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a workspace is asked for with an algorithm and a place for its size");
  int status = check_shapes(x, w, convolution, y);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  *ret_bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnGetConvolutionForwardAlgorithm_v7(const struct sc_dnn_handle *handle, const struct sc_dnn_tensor *x,
                                                     const struct sc_dnn_filter *w,
                                                     const struct sc_dnn_convolution *convolution,
                                                     const struct sc_dnn_tensor *y, int requested, int *ret_count,
                                                     struct cudnn_algorithm_answer *ret_answers) {
  return answer_algorithm(handle, x, w, convolution, y, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, requested,
                          ret_count, ret_answers);
}

SC_PUBLIC int cudnnGetConvolutionBackwardDataAlgorithm_v7(const struct sc_dnn_handle *handle,
                                                          const struct sc_dnn_filter *w, const struct sc_dnn_tensor *dy,
                                                          const struct sc_dnn_convolution *convolution,
                                                          const struct sc_dnn_tensor *dx, int requested, int *ret_count,
                                                          struct cudnn_algorithm_answer *ret_answers) {
  return answer_algorithm(handle, dx, w, convolution, dy, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, requested, ret_count,
                          ret_answers);
}

SC_PUBLIC int cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    const struct sc_dnn_handle *handle, const struct sc_dnn_tensor *x, const struct sc_dnn_tensor *dy,
    const struct sc_dnn_convolution *convolution, const struct sc_dnn_filter *dw, int requested, int *ret_count,
    struct cudnn_algorithm_answer *ret_answers) {
  return answer_algorithm(handle, x, dw, convolution, dy, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, requested, ret_count,
                          ret_answers);
}

SC_PUBLIC int cudnnGetConvolutionForwardWorkspaceSize(const struct sc_dnn_handle *handle, const struct sc_dnn_tensor *x,
                                                      const struct sc_dnn_filter *w,
                                                      const struct sc_dnn_convolution *convolution,
                                                      const struct sc_dnn_tensor *y, int algorithm, size_t *ret_bytes) {
  return answer_workspace(x, w, convolution, y, algorithm, CUDNN_CONVOLUTION_FWD_ALGO_COUNT, ret_bytes);
}

SC_PUBLIC int cudnnGetConvolutionBackwardDataWorkspaceSize(
    const struct sc_dnn_handle *handle, const struct sc_dnn_filter *w, const struct sc_dnn_tensor *dy,
    const struct sc_dnn_convolution *convolution, const struct sc_dnn_tensor *dx, int algorithm, size_t *ret_bytes) {
  return answer_workspace(dx, w, convolution, dy, algorithm, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, ret_bytes);
}

SC_PUBLIC int cudnnGetConvolutionBackwardFilterWorkspaceSize(
    const struct sc_dnn_handle *handle, const struct sc_dnn_tensor *x, const struct sc_dnn_tensor *dy,
    const struct sc_dnn_convolution *convolution, const struct sc_dnn_filter *dw, int algorithm, size_t *ret_bytes) {
  return answer_workspace(x, dw, convolution, dy, algorithm, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, ret_bytes);
}

/* Finding an algorithm runs each that there is: one launch. */
SC_PUBLIC int cudnnFindConvolutionForwardAlgorithmEx(const struct sc_dnn_handle *handle, const struct sc_dnn_tensor *x,
                                                     const void *x_data, const struct sc_dnn_filter *w,
                                                     const void *w_data, const struct sc_dnn_convolution *convolution,
                                                     const struct sc_dnn_tensor *y, void *y_data, int requested,
                                                     int *ret_count, struct cudnn_algorithm_answer *ret_answers,
                                                     void *workspace, size_t workspace_bytes) {
  int status = cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, convolution, y, requested, ret_count, ret_answers);
  return status == CUDNN_STATUS_SUCCESS ? run(handle, x, w, convolution, y) : status;
}

SC_PUBLIC int cudnnFindConvolutionBackwardDataAlgorithmEx(const struct sc_dnn_handle *handle,
                                                          const struct sc_dnn_filter *w, const void *w_data,
                                                          const struct sc_dnn_tensor *dy, const void *dy_data,
                                                          const struct sc_dnn_convolution *convolution,
                                                          const struct sc_dnn_tensor *dx, void *dx_data, int requested,
                                                          int *ret_count, struct cudnn_algorithm_answer *ret_answers,
                                                          void *workspace, size_t workspace_bytes) {
  int status =
      cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w, dy, convolution, dx, requested, ret_count, ret_answers);
  return status == CUDNN_STATUS_SUCCESS ? run(handle, dx, w, convolution, dy) : status;
}

SC_PUBLIC int cudnnFindConvolutionBackwardFilterAlgorithmEx(
    const struct sc_dnn_handle *handle, const struct sc_dnn_tensor *x, const void *x_data,
    const struct sc_dnn_tensor *dy, const void *dy_data, const struct sc_dnn_convolution *convolution,
    const struct sc_dnn_filter *dw, void *dw_data, int requested, int *ret_count,
    struct cudnn_algorithm_answer *ret_answers, void *workspace, size_t workspace_bytes) {
  int status =
      cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x, dy, convolution, dw, requested, ret_count, ret_answers);
  return status == CUDNN_STATUS_SUCCESS ? run(handle, x, dw, convolution, dy) : status;
}

/* ---- computations ---- */

SC_PUBLIC int cudnnConvolutionForward(const struct sc_dnn_handle *handle, const void *alpha,
                                      const struct sc_dnn_tensor *x, const void *x_data, const struct sc_dnn_filter *w,
                                      const void *w_data, const struct sc_dnn_convolution *convolution, int algorithm,
                                      void *workspace, size_t workspace_bytes, const void *beta,
                                      const struct sc_dnn_tensor *y, void *y_data) {
  if (alpha == NULL || beta == NULL) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a convolution has alpha and beta");
  return run(handle, x, w, convolution, y);
}

SC_PUBLIC int cudnnConvolutionBackwardData(const struct sc_dnn_handle *handle, const void *alpha,
                                           const struct sc_dnn_filter *w, const void *w_data,
                                           const struct sc_dnn_tensor *dy, const void *dy_data,
                                           const struct sc_dnn_convolution *convolution, int algorithm, void *workspace,
                                           size_t workspace_bytes, const void *beta, const struct sc_dnn_tensor *dx,
                                           void *dx_data) {
  if (alpha == NULL || beta == NULL) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a convolution has alpha and beta");
  return run(handle, dx, w, convolution, dy);
}

SC_PUBLIC int cudnnConvolutionBackwardFilter(const struct sc_dnn_handle *handle, const void *alpha,
                                             const struct sc_dnn_tensor *x, const void *x_data,
                                             const struct sc_dnn_tensor *dy, const void *dy_data,
                                             const struct sc_dnn_convolution *convolution, int algorithm,
                                             void *workspace, size_t workspace_bytes, const void *beta,
                                             const struct sc_dnn_filter *dw, void *dw_data) {
  if (alpha == NULL || beta == NULL) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a convolution has alpha and beta");
  return run(handle, x, dw, convolution, dy);
}

/* y = activation(alpha1 * conv(x) + alpha2 * z + bias): one kernel, which reads z and the bias as well. */
SC_PUBLIC int cudnnConvolutionBiasActivationForward(
    const struct sc_dnn_handle *handle, const void *alpha1, const struct sc_dnn_tensor *x, const void *x_data,
    const struct sc_dnn_filter *w, const void *w_data, const struct sc_dnn_convolution *convolution, int algorithm,
    void *workspace, size_t workspace_bytes, const void *alpha2, const struct sc_dnn_tensor *z, const void *z_data,
    const struct sc_dnn_tensor *bias, const void *bias_data, const struct sc_dnn_activation *activation,
    const struct sc_dnn_tensor *y, void *y_data) {
  if (alpha1 == NULL || alpha2 == NULL || !sc_dnn_is_tensor(z) || !sc_dnn_is_tensor(bias) ||
      !sc_dnn_is(activation, SC_DNN_ACTIVATION))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a convolution with a bias needs z, the bias and an activation");
  int status = check_shapes(x, w, convolution, y);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  struct sc_cost cost = measure_work(x, w, convolution, y);
  cost.bytes += sc_dnn_measure_bytes(z) + sc_dnn_measure_bytes(bias);
  return sc_dnn_launch(handle, SC_WORK_CONVOLUTION, cost);
}
