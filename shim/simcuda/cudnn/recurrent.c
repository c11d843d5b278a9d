/*
 * recurrent.c - recurrent networks: their descriptors, what they need to work in, and the computations. The steps of a
 * sequence follow each other: a network takes as long as its steps one after the other, layers side by side.
 */
#include "simcuda/cudnn/recurrent.h"
#include "simcuda/common/public.h"
#include "simcuda/cudnn/handle.h"

/* the signatures are cuDNN's; what lies in memory is not looked at */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* so that products of a few stay integers */
#define LAYERS_MAX (1 << 20)
#define NETWORK_SIZE_MAX (1 << 28)

SC_PUBLIC int cudnnSetRNNDescriptor_v8(struct sc_dnn_rnn *rnn, int algorithm, int cell, int bias, int direction,
                                       int input_mode, int type, int compute_type, int math_type, int32_t input_size,
                                       int32_t hidden_size, int32_t projection_size, int32_t layers,
                                       const struct sc_dnn_dropout *dropout, uint32_t flags) {
  if (!sc_dnn_is(rnn, SC_DNN_RNN)) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is not a network's");
  if (cell < CUDNN_RNN_RELU || cell > CUDNN_GRU || bias < CUDNN_RNN_NO_BIAS || bias > CUDNN_RNN_SINGLE_REC_BIAS ||
      direction < CUDNN_UNIDIRECTIONAL || direction > CUDNN_BIDIRECTIONAL || input_mode < CUDNN_LINEAR_INPUT ||
      input_mode > CUDNN_SKIP_INPUT || sc_dnn_find_element_bytes(type) == 0)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "there is no such cell, bias, direction or type");
  if (input_size < 1 || hidden_size < 1 || projection_size < 0 || projection_size > hidden_size || layers < 1)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "sizes and layers of a network are at least 1");
  if (layers > LAYERS_MAX || input_size > NETWORK_SIZE_MAX || hidden_size > NETWORK_SIZE_MAX)
    return sc_dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "the network is too large");
  rnn->cell = cell;
  rnn->bias = bias;
  rnn->directions = direction == CUDNN_BIDIRECTIONAL ? 2 : 1;
  rnn->input_mode = input_mode;
  rnn->type = type;
  rnn->math_type = math_type;
  rnn->input_size = input_size;
  rnn->hidden_size = hidden_size;
  rnn->projection_size = projection_size > 0 ? projection_size : hidden_size;
  rnn->layers = layers;
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnSetRNNDataDescriptor(struct sc_dnn_rnn_data *data, int type, int layout, int step_count, int batch,
                                        int vector, const int *lengths, const void *padding) {
  if (!sc_dnn_is(data, SC_DNN_RNN_DATA) || lengths == NULL || sc_dnn_find_element_bytes(type) == 0)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "sequences are set with a type and their lengths");
  if (layout < CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED || layout > CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED ||
      step_count < 1 || batch < 1 || vector < 1)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "sequences have a layout, steps, a batch and vectors");
  double vector_count = 0;
  for (int i = 0; i < batch; i++) {
    if (lengths[i] < 0 || lengths[i] > step_count)
      return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a sequence is longer than the longest");
    vector_count += lengths[i];
  }
  data->type = type;
  data->layout = layout;
  data->step_count = step_count;
  data->batch = batch;
  data->vector = vector;
  data->vector_count = vector_count;
  return CUDNN_STATUS_SUCCESS;
}

static int check(const struct sc_dnn_handle *handle, const struct sc_dnn_rnn *rnn, const struct sc_dnn_rnn_data *x) {
  if (!sc_dnn_is_handle(handle) || !sc_dnn_is_rnn(rnn) || !sc_dnn_is(x, SC_DNN_RNN_DATA) || x->step_count == 0)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a network needs a handle, its descriptor and sequences");
  if (x->vector != rnn->input_size)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the input is not of the network's size");
  return CUDNN_STATUS_SUCCESS;
}

/*
 * How much memory a network works in is known to cuDNN alone. These are what it cannot do without: the gates of a layer
 * for all steps; and for the backward pass the gates of all, the state of LSTM cells, and what layers give each other.
 */
SC_PUBLIC int cudnnGetRNNTempSpaceSizes(const struct sc_dnn_handle *handle, const struct sc_dnn_rnn *rnn, int mode,
                                        const struct sc_dnn_rnn_data *x, size_t *ret_workspace_bytes,
                                        size_t *ret_reserve_bytes) {
  int status = check(handle, rnn, x);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  double element = sc_dnn_find_element_bytes(rnn->type);
  double states = (double)x->step_count * x->batch * rnn->directions * rnn->hidden_size;
  double outputs = (double)x->step_count * x->batch * rnn->directions * rnn->projection_size;
  double workspace = states * sc_dnn_count_gates(rnn) * element;
  double kept = states * (sc_dnn_count_gates(rnn) + (rnn->cell == CUDNN_LSTM)) * rnn->layers;
  double reserve = mode == CUDNN_FWD_MODE_TRAINING ? (kept + outputs * (rnn->layers - 1)) * element : 0;
  if (workspace > 0x1p53 || reserve > 0x1p53)
    return sc_dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "the sequences are too large");
  if (ret_workspace_bytes != NULL) *ret_workspace_bytes = (size_t)workspace;
  if (ret_reserve_bytes != NULL) *ret_reserve_bytes = (size_t)reserve;
  return CUDNN_STATUS_SUCCESS;
}

struct work {
  double flops;
  double weight_bytes;
  double value_bytes; /* what goes from layer to layer and from step to step */
  enum sc_math math;
};

/* Of one pass over the sequences: each matrix times each vector. */
static struct work measure_work(const struct sc_dnn_rnn *rnn, const struct sc_dnn_rnn_data *x) {
  double element = sc_dnn_find_element_bytes(rnn->type), elements = sc_dnn_count_matrix_elements(rnn, 0);
  if (rnn->layers > 1) elements += (rnn->layers - 1) * sc_dnn_count_matrix_elements(rnn, 1);
  double values = x->vector + (double)rnn->layers * rnn->directions * rnn->hidden_size;
  return (struct work){
      .flops = 2 * elements * rnn->directions * x->vector_count,
      .weight_bytes = elements * rnn->directions * element,
      .value_bytes = values * x->vector_count * element,
      .math = sc_dnn_find_math(rnn->type, rnn->math_type != CUDNN_FMA_MATH),
  };
}

/* Layer n makes step t beside layer n-1's step t+1: as many waves, and each reads the weights again. */
static int run_steps(const struct sc_dnn_handle *handle, const struct sc_dnn_rnn *rnn,
                     const struct sc_dnn_rnn_data *x) {
  int status = check(handle, rnn, x);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  struct work work = measure_work(rnn, x);
  double waves = x->step_count + rnn->layers - 1.0;
  double bytes = work.weight_bytes + work.value_bytes / waves;
  struct sc_cost step = {work.flops / waves, bytes, work.math};
  return sc_dnn_launch_steps(handle, SC_WORK_RECURRENT, step, waves);
}

SC_PUBLIC int cudnnRNNForward(const struct sc_dnn_handle *handle, const struct sc_dnn_rnn *rnn, int mode,
                              const int32_t *lengths, const struct sc_dnn_rnn_data *x, const void *x_data,
                              const struct sc_dnn_rnn_data *y, void *y_data, const struct sc_dnn_tensor *h,
                              const void *hx, void *hy, const struct sc_dnn_tensor *c, const void *cx, void *cy,
                              size_t weight_bytes, const void *weights, size_t workspace_bytes, void *workspace,
                              size_t reserve_bytes, void *reserve) {
  return run_steps(handle, rnn, x);
}

SC_PUBLIC int cudnnRNNBackwardData_v8(const struct sc_dnn_handle *handle, const struct sc_dnn_rnn *rnn,
                                      const int32_t *lengths, const struct sc_dnn_rnn_data *y, const void *y_data,
                                      const void *dy, const struct sc_dnn_rnn_data *x, void *dx,
                                      const struct sc_dnn_tensor *h, const void *hx, const void *dhy, void *dhx,
                                      const struct sc_dnn_tensor *c, const void *cx, const void *dcy, void *dcx,
                                      size_t weight_bytes, const void *weights, size_t workspace_bytes, void *workspace,
                                      size_t reserve_bytes, void *reserve) {
  return run_steps(handle, rnn, x);
}

/* Waits for no step: products of matrices over the whole sequences. */
SC_PUBLIC int cudnnRNNBackwardWeights_v8(const struct sc_dnn_handle *handle, const struct sc_dnn_rnn *rnn, int mode,
                                         const int32_t *lengths, const struct sc_dnn_rnn_data *x, const void *x_data,
                                         const struct sc_dnn_tensor *h, const void *hx, const struct sc_dnn_rnn_data *y,
                                         const void *y_data, size_t weight_bytes, void *gradients,
                                         size_t workspace_bytes, void *workspace, size_t reserve_bytes, void *reserve) {
  int status = check(handle, rnn, x);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  struct work work = measure_work(rnn, x);
  struct sc_cost cost = {work.flops, work.weight_bytes + work.value_bytes, work.math};
  return sc_dnn_launch(handle, SC_WORK_RECURRENT, cost);
}
