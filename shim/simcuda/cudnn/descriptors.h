/*
 * descriptors.h - the descriptors of cuDNN's older interface, which programs hold as pointers: what was set, checked,
 * for the computations that take them. Each begins with its kind, so that one of another kind is refused.
 */
#ifndef SC_CUDNN_DESCRIPTORS_H
#define SC_CUDNN_DESCRIPTORS_H
#include "simcuda/cudnn/status.h"
#include <stdbool.h>

enum sc_dnn_kind {
  SC_DNN_TENSOR = 0x646e0001, /* no number that other memory often begins with */
  SC_DNN_FILTER,
  SC_DNN_CONVOLUTION,
  SC_DNN_ACTIVATION,
  SC_DNN_POOLING,
  SC_DNN_DROPOUT,
  SC_DNN_SPATIAL,
  SC_DNN_CTC,
  SC_DNN_RNN,
  SC_DNN_RNN_DATA,
};

struct sc_dnn_tensor {
  enum sc_dnn_kind kind;
  int type; /* enum cudnn_data_type */
  int rank; /* 0: never set */
  int dims[CUDNN_DIM_MAX];
  int strides[CUDNN_DIM_MAX];
};

struct sc_dnn_filter {
  enum sc_dnn_kind kind;
  int type;
  int rank;
  int dims[CUDNN_DIM_MAX]; /* outputs, inputs of a group, extents */
  int format;
};

struct sc_dnn_convolution {
  enum sc_dnn_kind kind;
  int rank; /* of the extents; 0: never set */
  int paddings[CUDNN_DIM_MAX];
  int strides[CUDNN_DIM_MAX];
  int dilations[CUDNN_DIM_MAX];
  int mode;
  int compute_type;
  int groups;
  int math_type;
};

struct sc_dnn_activation {
  enum sc_dnn_kind kind;
  int mode;
  double coefficient;
};

struct sc_dnn_pooling {
  enum sc_dnn_kind kind;
  int mode;
  int window[2]; /* 0: never set */
};

struct sc_dnn_dropout {
  enum sc_dnn_kind kind;
  float probability;
  void *states;
};

struct sc_dnn_spatial {
  enum sc_dnn_kind kind;
  int type;
  int rank;
  int dims[CUDNN_DIM_MAX];
};

struct sc_dnn_ctc {
  enum sc_dnn_kind kind;
  int compute_type;
  int label_length_max;
};

struct sc_dnn_rnn {
  enum sc_dnn_kind kind;
  int cell; /* enum cudnn_rnn_mode */
  int bias;
  int directions; /* 1 or 2; 0: never set */
  int input_mode;
  int type;
  int math_type;
  int input_size;
  int hidden_size;
  int projection_size; /* hidden_size: there is none */
  int layers;
};

struct sc_dnn_rnn_data {
  enum sc_dnn_kind kind;
  int type;
  int layout;
  int step_count; /* of the longest sequence; 0: never set */
  int batch;
  int vector;
  double vector_count; /* of all sequences together */
};

/* Whether a pointer of a program is a descriptor of that kind. */
bool sc_dnn_is(const void *descriptor, enum sc_dnn_kind kind);

/* Whether it is a tensor, and set. */
bool sc_dnn_is_tensor(const struct sc_dnn_tensor *tensor);

/* Bytes of an element of that enum cudnn_data_type, half a byte for four bits; 0: there is no such type. */
double sc_dnn_find_element_bytes(int type);

/* How many elements dimensions have, without the fear of an overflow. */
double sc_dnn_count(const int *dims, int rank);

/* Bytes of the elements of a tensor that is set; 0 of NULL. */
double sc_dnn_measure_bytes(const struct sc_dnn_tensor *tensor);

/* Sets a packed tensor of up to CUDNN_DIM_MAX dimensions. */
void sc_dnn_set_packed(struct sc_dnn_tensor *tensor, int type, int rank, const int *dims);

#endif
