/* descriptors.c - see descriptors.h: how they are made and freed, and those of tensors and filters. */
#include "simcuda/cudnn/descriptors.h"
#include "simcuda/common/public.h"
#include <stdlib.h>
#include <string.h>

bool sc_dnn_is(const void *descriptor, enum sc_dnn_kind kind) {
  return descriptor != NULL && *(const enum sc_dnn_kind *)descriptor == kind;
}

bool sc_dnn_is_tensor(const struct sc_dnn_tensor *tensor) {
  return sc_dnn_is(tensor, SC_DNN_TENSOR) && tensor->rank;
}

double sc_dnn_find_element_bytes(int type) {
  switch (type) {
  case CUDNN_DATA_FP4_E2M1:
  case CUDNN_DATA_INT4:
  case CUDNN_DATA_UINT4:
    return 0.5;
  case CUDNN_DATA_BOOLEAN:
    return 0.125;
  case CUDNN_DATA_INT8:
  case CUDNN_DATA_UINT8:
  case CUDNN_DATA_FP8_E4M3:
  case CUDNN_DATA_FP8_E5M2:
  case CUDNN_DATA_FP8_E8M0:
  case CUDNN_DATA_FP8_E5M3:
  case CUDNN_DATA_FAST_FLOAT_FOR_FP8:
  case CUDNN_DATA_BYTE_BOOLEAN:
    return 1;
  case CUDNN_DATA_HALF:
  case CUDNN_DATA_BFLOAT16:
    return 2;
  case CUDNN_DATA_FLOAT:
  case CUDNN_DATA_INT32:
  case CUDNN_DATA_UINT32:
  case CUDNN_DATA_INT8x4:
  case CUDNN_DATA_UINT8x4:
    return 4;
  case CUDNN_DATA_DOUBLE:
  case CUDNN_DATA_INT64:
  case CUDNN_DATA_COMPLEX_FP32:
    return 8;
  case CUDNN_DATA_COMPLEX_FP64:
    return 16;
  case CUDNN_DATA_INT8x32:
    return 32;
  default:
    return 0;
  }
}

double sc_dnn_count(const int *dims, int rank) {
  double count = 1;
  for (int i = 0; i < rank; i++) count *= dims[i];
  return count;
}

double sc_dnn_measure_bytes(const struct sc_dnn_tensor *tensor) {
  if (tensor == NULL) return 0;
  return sc_dnn_count(tensor->dims, tensor->rank) * sc_dnn_find_element_bytes(tensor->type);
}

void sc_dnn_set_packed(struct sc_dnn_tensor *tensor, int type, int rank, const int *dims) {
  tensor->type = type;
  tensor->rank = rank;
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; i--) {
    tensor->dims[i] = dims[i];
    tensor->strides[i] = (int)stride;
    stride = (int64_t)((uint64_t)stride * (uint64_t)dims[i]);
  }
}

/* ---- made and freed ---- */

static size_t find_size(enum sc_dnn_kind kind) {
  switch (kind) {
  case SC_DNN_TENSOR:
    return sizeof(struct sc_dnn_tensor);
  case SC_DNN_FILTER:
    return sizeof(struct sc_dnn_filter);
  case SC_DNN_CONVOLUTION:
    return sizeof(struct sc_dnn_convolution);
  case SC_DNN_ACTIVATION:
    return sizeof(struct sc_dnn_activation);
  case SC_DNN_POOLING:
    return sizeof(struct sc_dnn_pooling);
  case SC_DNN_DROPOUT:
    return sizeof(struct sc_dnn_dropout);
  case SC_DNN_SPATIAL:
    return sizeof(struct sc_dnn_spatial);
  case SC_DNN_CTC:
    return sizeof(struct sc_dnn_ctc);
  case SC_DNN_RNN:
    return sizeof(struct sc_dnn_rnn);
  case SC_DNN_RNN_DATA:
    return sizeof(struct sc_dnn_rnn_data);
  }
  return sizeof kind;
}

static int create(enum sc_dnn_kind kind, void **ret_descriptor) {
  if (ret_descriptor == NULL)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "there is no place for the descriptor");
  enum sc_dnn_kind *descriptor = calloc(1, find_size(kind));
  if (descriptor == NULL)
    return sc_dnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory for a descriptor");
  *descriptor = kind;
  *ret_descriptor = descriptor;
  return CUDNN_STATUS_SUCCESS;
}

static int destroy(enum sc_dnn_kind kind, void *descriptor) {
  if (descriptor == NULL) return CUDNN_STATUS_SUCCESS;
  if (!sc_dnn_is(descriptor, kind)) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is of another kind");
  *(enum sc_dnn_kind *)descriptor = (enum sc_dnn_kind)0;
  free(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnCreateTensorDescriptor(void **ret) {
  return create(SC_DNN_TENSOR, ret);
}
SC_PUBLIC int cudnnCreateFilterDescriptor(void **ret) {
  return create(SC_DNN_FILTER, ret);
}
SC_PUBLIC int cudnnCreateConvolutionDescriptor(void **ret) {
  return create(SC_DNN_CONVOLUTION, ret);
}
SC_PUBLIC int cudnnCreateActivationDescriptor(void **ret) {
  return create(SC_DNN_ACTIVATION, ret);
}
SC_PUBLIC int cudnnCreatePoolingDescriptor(void **ret) {
  return create(SC_DNN_POOLING, ret);
}
SC_PUBLIC int cudnnCreateDropoutDescriptor(void **ret) {
  return create(SC_DNN_DROPOUT, ret);
}
SC_PUBLIC int cudnnCreateSpatialTransformerDescriptor(void **ret) {
  return create(SC_DNN_SPATIAL, ret);
}
SC_PUBLIC int cudnnCreateCTCLossDescriptor(void **ret) {
  return create(SC_DNN_CTC, ret);
}
SC_PUBLIC int cudnnCreateRNNDescriptor(void **ret) {
  return create(SC_DNN_RNN, ret);
}
SC_PUBLIC int cudnnCreateRNNDataDescriptor(void **ret) {
  return create(SC_DNN_RNN_DATA, ret);
}

SC_PUBLIC int cudnnDestroyTensorDescriptor(void *tensor) {
  return destroy(SC_DNN_TENSOR, tensor);
}
SC_PUBLIC int cudnnDestroyFilterDescriptor(void *filter) {
  return destroy(SC_DNN_FILTER, filter);
}
SC_PUBLIC int cudnnDestroyConvolutionDescriptor(void *convolution) {
  return destroy(SC_DNN_CONVOLUTION, convolution);
}
SC_PUBLIC int cudnnDestroyActivationDescriptor(void *activation) {
  return destroy(SC_DNN_ACTIVATION, activation);
}
SC_PUBLIC int cudnnDestroyPoolingDescriptor(void *pooling) {
  return destroy(SC_DNN_POOLING, pooling);
}
SC_PUBLIC int cudnnDestroyDropoutDescriptor(void *dropout) {
  return destroy(SC_DNN_DROPOUT, dropout);
}
SC_PUBLIC int cudnnDestroySpatialTransformerDescriptor(void *spatial) {
  return destroy(SC_DNN_SPATIAL, spatial);
}
SC_PUBLIC int cudnnDestroyCTCLossDescriptor(void *ctc) {
  return destroy(SC_DNN_CTC, ctc);
}
SC_PUBLIC int cudnnDestroyRNNDescriptor(void *rnn) {
  return destroy(SC_DNN_RNN, rnn);
}
SC_PUBLIC int cudnnDestroyRNNDataDescriptor(void *data) {
  return destroy(SC_DNN_RNN_DATA, data);
}

/* ---- tensors and filters ---- */

static int check_dims(int type, int rank, const int *dims) {
  if (dims == NULL || rank < 1) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a tensor has dimensions");
  if (rank > CUDNN_DIM_MAX) return sc_dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "a tensor has at most 8 dimensions");
  if (sc_dnn_find_element_bytes(type) == 0) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "there is no such type of data");
  for (int i = 0; i < rank; i++)
    if (dims[i] < 1) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "each dimension of a tensor is at least 1");
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnSetTensorNdDescriptor(struct sc_dnn_tensor *tensor, int type, int rank, const int *dims,
                                         const int *strides) {
  if (!sc_dnn_is(tensor, SC_DNN_TENSOR) || strides == NULL)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a tensor is set by a descriptor, dimensions and strides");
  int status = check_dims(type, rank, dims);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  tensor->type = type;
  tensor->rank = rank;
  memcpy(tensor->dims, dims, (size_t)rank * sizeof *dims);
  memcpy(tensor->strides, strides, (size_t)rank * sizeof *strides);
  return CUDNN_STATUS_SUCCESS;
}

/* Any of the places may be NULL; as many dimensions are given as are there and asked for. */
SC_PUBLIC int cudnnGetTensorNdDescriptor(const struct sc_dnn_tensor *tensor, int requested, int *ret_type,
                                         int *ret_rank, int *ret_dims, int *ret_strides) {
  if (!sc_dnn_is(tensor, SC_DNN_TENSOR) || requested < 0)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnGetTensorNdDescriptor needs a tensor");
  int count = requested < tensor->rank ? requested : tensor->rank;
  if (ret_type != NULL) *ret_type = tensor->type;
  if (ret_rank != NULL) *ret_rank = tensor->rank;
  if (ret_dims != NULL) memcpy(ret_dims, tensor->dims, (size_t)count * sizeof *ret_dims);
  if (ret_strides != NULL) memcpy(ret_strides, tensor->strides, (size_t)count * sizeof *ret_strides);
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnSetFilterNdDescriptor(struct sc_dnn_filter *filter, int type, int format, int rank,
                                         const int *dims) {
  if (!sc_dnn_is(filter, SC_DNN_FILTER)) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is not a filter's");
  int status = check_dims(type, rank, dims);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  filter->type = type;
  filter->format = format;
  filter->rank = rank;
  memcpy(filter->dims, dims, (size_t)rank * sizeof *dims);
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnGetFilterNdDescriptor(const struct sc_dnn_filter *filter, int requested, int *ret_type,
                                         int *ret_format, int *ret_rank, int *ret_dims) {
  if (!sc_dnn_is(filter, SC_DNN_FILTER) || requested < 0)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnGetFilterNdDescriptor needs a filter");
  int count = requested < filter->rank ? requested : filter->rank;
  if (ret_type != NULL) *ret_type = filter->type;
  if (ret_format != NULL) *ret_format = filter->format;
  if (ret_rank != NULL) *ret_rank = filter->rank;
  if (ret_dims != NULL) memcpy(ret_dims, filter->dims, (size_t)count * sizeof *ret_dims);
  return CUDNN_STATUS_SUCCESS;
}
