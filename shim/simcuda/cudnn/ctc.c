/*
 * ctc.c - the CTC loss: forward and backward sums over a sequence's steps, for the labels and the blanks between them.
 * With labels in host memory (cudnnCTCLoss) their lengths are known; in the device's (_v8) the longest is.
 */
#include "simcuda/common/public.h"
#include "simcuda/cudnn/descriptors.h"
#include "simcuda/cudnn/handle.h"

/* the signatures are cuDNN's; what lies in memory is not looked at */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define LABEL_LENGTH_MAX 255 /* also what a descriptor without one means */
#define FLOPS_PER_CELL 8     /* of the two sums together: each adds three exponentials */

SC_PUBLIC int cudnnSetCTCLossDescriptor_v9(struct sc_dnn_ctc *ctc, int compute_type, int normalization,
                                           int gradient_mode, int label_length_max) {
  if (!sc_dnn_is(ctc, SC_DNN_CTC)) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is not a CTC loss's");
  if (compute_type != CUDNN_DATA_FLOAT || normalization < 0 || normalization > 1)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the CTC loss is computed in FP32, with softmax or without");
  if (label_length_max < 0 || label_length_max > LABEL_LENGTH_MAX)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "a label of the CTC loss has at most 255 words");
  ctc->compute_type = compute_type;
  ctc->label_length_max = label_length_max;
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnSetCTCLossDescriptorEx(struct sc_dnn_ctc *ctc, int compute_type, int normalization,
                                          int nan_propagation) {
  return cudnnSetCTCLossDescriptor_v9(ctc, compute_type, normalization, 0, LABEL_LENGTH_MAX);
}

/* probabilities: of steps, batch and words. */
static int check(const struct sc_dnn_ctc *ctc, const struct sc_dnn_tensor *probabilities) {
  if (!sc_dnn_is(ctc, SC_DNN_CTC) || !sc_dnn_is_tensor(probabilities) || probabilities->rank != 3)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the CTC loss needs its descriptor and steps x batch x words");
  return CUDNN_STATUS_SUCCESS;
}

static int find_length_max(const int *lengths, int batch) {
  int longest = 0;
  for (int i = 0; i < batch; i++)
    if (lengths[i] > longest) longest = lengths[i];
  return longest < LABEL_LENGTH_MAX ? longest : LABEL_LENGTH_MAX;
}

/* Each step of each sequence has a cell for each label, and one before, between and after them. */
static double count_cells(const struct sc_dnn_tensor *probabilities, int label_length) {
  return (double)probabilities->dims[0] * probabilities->dims[1] * (2.0 * label_length + 1);
}

/* At least: the cells of one of the two sums. */
static int answer_workspace(const struct sc_dnn_tensor *probabilities, int label_length, size_t *ret_bytes) {
  if (ret_bytes == NULL) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "there is no place for a size");
  *ret_bytes = (size_t)(count_cells(probabilities, label_length) * sizeof(float));
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnGetCTCLossWorkspaceSize(const struct sc_dnn_handle *handle,
                                           const struct sc_dnn_tensor *probabilities,
                                           const struct sc_dnn_tensor *gradients, const int *labels,
                                           const int *label_lengths, const int *input_lengths, int algorithm,
                                           const struct sc_dnn_ctc *ctc, size_t *ret_bytes) {
  int status = check(ctc, probabilities);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (label_lengths == NULL) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "there are no lengths of labels");
  return answer_workspace(probabilities, find_length_max(label_lengths, probabilities->dims[1]), ret_bytes);
}

SC_PUBLIC int cudnnGetCTCLossWorkspaceSize_v8(const struct sc_dnn_handle *handle, int algorithm,
                                              const struct sc_dnn_ctc *ctc, const struct sc_dnn_tensor *probabilities,
                                              const struct sc_dnn_tensor *gradients, size_t *ret_bytes) {
  int status = check(ctc, probabilities);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return answer_workspace(probabilities, ctc->label_length_max, ret_bytes);
}

static int run(const struct sc_dnn_handle *handle, const struct sc_dnn_tensor *probabilities, int label_length,
               const struct sc_dnn_tensor *gradients) {
  double cells = count_cells(probabilities, label_length);
  double bytes = sc_dnn_measure_bytes(probabilities) + sc_dnn_measure_bytes(gradients) + 3 * cells * sizeof(float);
  /* a step follows the one before */
  double steps = probabilities->dims[0];
  struct sc_cost step = {FLOPS_PER_CELL * cells / steps, bytes / steps, SC_MATH_FP32};
  return sc_dnn_launch_steps(handle, SC_WORK_RECURRENT, step, steps);
}

SC_PUBLIC int cudnnCTCLoss(const struct sc_dnn_handle *handle, const struct sc_dnn_tensor *probabilities,
                           const void *probability_data, const int *labels, const int *label_lengths,
                           const int *input_lengths, void *costs, const struct sc_dnn_tensor *gradients,
                           void *gradient_data, int algorithm, const struct sc_dnn_ctc *ctc, void *workspace,
                           size_t workspace_bytes) {
  int status = check(ctc, probabilities);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (!sc_dnn_is_handle(handle) || label_lengths == NULL || input_lengths == NULL ||
      (gradients != NULL && !sc_dnn_is_tensor(gradients)))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the CTC loss needs a handle and lengths");
  return run(handle, probabilities, find_length_max(label_lengths, probabilities->dims[1]), gradients);
}

SC_PUBLIC int cudnnCTCLoss_v8(const struct sc_dnn_handle *handle, int algorithm, const struct sc_dnn_ctc *ctc,
                              const struct sc_dnn_tensor *probabilities, const void *probability_data,
                              const int *labels, const int *label_lengths, const int *input_lengths, void *costs,
                              const struct sc_dnn_tensor *gradients, void *gradient_data, size_t workspace_bytes,
                              void *workspace) {
  int status = check(ctc, probabilities);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (!sc_dnn_is_handle(handle) || (gradients != NULL && !sc_dnn_is_tensor(gradients)))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the CTC loss needs a handle and gradients that are set");
  return run(handle, probabilities, ctc->label_length_max, gradients);
}
