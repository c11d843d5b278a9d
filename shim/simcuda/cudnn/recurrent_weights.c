/*
 * recurrent_weights.c - recurrent.h's layout of the weights: for each layer and direction the matrices for the input,
 * those for the state and the projection, then the biases of all in the same order. A "pseudo layer" counts directions
 * and layers in one.
 */
#include "simcuda/common/public.h"
#include "simcuda/cudnn/handle.h"
#include "simcuda/cudnn/recurrent.h"

/* the signatures are cuDNN's; what lies in memory is not looked at */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define WEIGHT_BYTES_MAX 0x1p53 /* below, a double counts without rounding */

bool sc_dnn_is_rnn(const struct sc_dnn_rnn *rnn) {
  return sc_dnn_is(rnn, SC_DNN_RNN) && rnn->directions;
}

int sc_dnn_count_gates(const struct sc_dnn_rnn *rnn) {
  switch (rnn->cell) {
  case CUDNN_LSTM:
    return 4;
  case CUDNN_GRU:
    return 3;
  default:
    return 1;
  }
}

static bool is_projected(const struct sc_dnn_rnn *rnn) {
  return rnn->projection_size != rnn->hidden_size;
}

int sc_dnn_find_input_size(const struct sc_dnn_rnn *rnn, int layer) {
  if (layer == 0) return rnn->input_mode == CUDNN_SKIP_INPUT ? 0 : rnn->input_size;
  return rnn->projection_size * rnn->directions;
}

double sc_dnn_count_matrix_elements(const struct sc_dnn_rnn *rnn, int layer) {
  double inputs = sc_dnn_find_input_size(rnn, layer), hidden = rnn->hidden_size, outputs = rnn->projection_size;
  return sc_dnn_count_gates(rnn) * hidden * (inputs + outputs) + (is_projected(rnn) ? hidden * outputs : 0);
}

/* Biases of a direction of a layer: as many vectors of the hidden size. */
static int count_biases(const struct sc_dnn_rnn *rnn) {
  if (rnn->bias == CUDNN_RNN_NO_BIAS) return 0;
  return sc_dnn_count_gates(rnn) * (rnn->bias == CUDNN_RNN_DOUBLE_BIAS ? 2 : 1);
}

/* Elements of the matrices of all pseudo layers before that one. */
static double count_before(const struct sc_dnn_rnn *rnn, int pseudo_layer) {
  int layer = pseudo_layer / rnn->directions, rest = pseudo_layer % rnn->directions;
  double count = rest * sc_dnn_count_matrix_elements(rnn, layer);
  if (layer > 0) count += rnn->directions * sc_dnn_count_matrix_elements(rnn, 0);
  if (layer > 1) count += (layer - 1.0) * rnn->directions * sc_dnn_count_matrix_elements(rnn, 1);
  return count;
}

static double count_weight_bytes(const struct sc_dnn_rnn *rnn) {
  double pseudo_layers = (double)rnn->layers * rnn->directions;
  double count =
      count_before(rnn, rnn->layers * rnn->directions) + pseudo_layers * count_biases(rnn) * rnn->hidden_size;
  return count * sc_dnn_find_element_bytes(rnn->type);
}

SC_PUBLIC int cudnnGetRNNWeightSpaceSize(const struct sc_dnn_handle *handle, const struct sc_dnn_rnn *rnn,
                                         size_t *ret_bytes) {
  if (!sc_dnn_is_handle(handle) || !sc_dnn_is_rnn(rnn) || ret_bytes == NULL)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a weight space is asked for with a handle and a network that is set");
  double bytes = count_weight_bytes(rnn);
  if (bytes > WEIGHT_BYTES_MAX) return sc_dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "the network's weights are too large");
  *ret_bytes = (size_t)bytes;
  return CUDNN_STATUS_SUCCESS;
}

struct part {
  double first; /* elements before it; below 0: there is none */
  int rows;
  int columns;
};

static struct part find_matrix(const struct sc_dnn_rnn *rnn, int pseudo_layer, int number) {
  int gates = sc_dnn_count_gates(rnn), inputs = sc_dnn_find_input_size(rnn, pseudo_layer / rnn->directions);
  double hidden = rnn->hidden_size, first = count_before(rnn, pseudo_layer);
  if (number < gates && inputs > 0) return (struct part){first + number * hidden * inputs, rnn->hidden_size, inputs};
  first += gates * hidden * inputs;
  if (number >= gates && number < 2 * gates)
    return (struct part){first + (number - gates) * hidden * rnn->projection_size, rnn->hidden_size,
                         rnn->projection_size};
  first += gates * hidden * rnn->projection_size;
  if (number == 2 * gates && is_projected(rnn)) return (struct part){first, rnn->projection_size, rnn->hidden_size};
  return (struct part){.first = -1};
}

static struct part find_bias(const struct sc_dnn_rnn *rnn, int pseudo_layer, int number) {
  int gates = sc_dnn_count_gates(rnn), count = count_biases(rnn), index = number;
  if (rnn->bias == CUDNN_RNN_SINGLE_REC_BIAS) index -= gates;
  if (number >= 2 * gates || index < 0 || index >= count) return (struct part){.first = -1};
  double first = count_before(rnn, rnn->layers * rnn->directions);
  return (struct part){first + ((double)pseudo_layer * count + index) * rnn->hidden_size, rnn->hidden_size, 1};
}

/* Each of the places may be NULL. What is not there has no address, and no dimensions. */
static void give_part(const struct sc_dnn_rnn *rnn, struct part part, const void *weights, struct sc_dnn_tensor *tensor,
                      void **ret_address) {
  bool is_there = part.first >= 0;
  if (tensor != NULL && is_there) sc_dnn_set_packed(tensor, rnn->type, 3, (int[]){1, part.rows, part.columns});
  if (tensor != NULL && !is_there) tensor->rank = 0;
  if (ret_address == NULL) return;
  uintptr_t offset = is_there ? (uintptr_t)(part.first * sc_dnn_find_element_bytes(rnn->type)) : 0;
  *ret_address = is_there ? (void *)((uintptr_t)weights + offset) : NULL;
}

SC_PUBLIC int cudnnGetRNNWeightParams(const struct sc_dnn_handle *handle, const struct sc_dnn_rnn *rnn,
                                      int32_t pseudo_layer, size_t weight_bytes, const void *weights, int32_t number,
                                      struct sc_dnn_tensor *matrix, void **ret_matrix, struct sc_dnn_tensor *bias,
                                      void **ret_bias) {
  if (!sc_dnn_is_handle(handle) || !sc_dnn_is_rnn(rnn))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "weights are asked for with a handle and a network that is set");
  if ((matrix != NULL && !sc_dnn_is(matrix, SC_DNN_TENSOR)) || (bias != NULL && !sc_dnn_is(bias, SC_DNN_TENSOR)))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "weights are described by tensors");
  if (pseudo_layer < 0 || pseudo_layer >= rnn->layers * rnn->directions || number < 0 ||
      number > 2 * sc_dnn_count_gates(rnn))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the network has no such layer or matrix");
  if ((double)weight_bytes < count_weight_bytes(rnn))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "the weight space is too small for the network");
  give_part(rnn, find_matrix(rnn, pseudo_layer, number), weights, matrix, ret_matrix);
  give_part(rnn, find_bias(rnn, pseudo_layer, number), weights, bias, ret_bias);
  return CUDNN_STATUS_SUCCESS;
}
