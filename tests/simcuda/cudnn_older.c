/* cudnn_older: cuDNN's older interface: descriptors, convolutions and their times, weights of recurrent networks. */
#include "cudnn.h"

size_t cudnnGetVersion(void);
int cudnnGetProperty(int type, int *value);
const char *cudnnGetErrorString(int status);
int cudnnCreateTensorDescriptor(void **tensor);
int cudnnDestroyTensorDescriptor(void *tensor);
int cudnnSetTensorNdDescriptor(void *tensor, int type, int rank, const int *dims, const int *strides);
int cudnnGetTensorNdDescriptor(void *tensor, int requested, int *type, int *rank, int *dims, int *strides);
int cudnnCreateFilterDescriptor(void **filter);
int cudnnDestroyFilterDescriptor(void *filter);
int cudnnSetFilterNdDescriptor(void *filter, int type, int format, int rank, const int *dims);
int cudnnCreateConvolutionDescriptor(void **convolution);
int cudnnDestroyConvolutionDescriptor(void *convolution);
int cudnnSetConvolutionNdDescriptor(void *convolution, int rank, const int *paddings, const int *strides,
                                    const int *dilations, int mode, int type);
int cudnnSetConvolutionMathType(void *convolution, int math);
int cudnnSetConvolutionGroupCount(void *convolution, int groups);
struct answer {
  int algorithm, status;
  float time_ms;
  size_t memory;
  int determinism, math, reserved[3];
};
int cudnnGetConvolutionForwardAlgorithm_v7(void *handle, void *x, void *w, void *convolution, void *y, int requested,
                                           int *count, struct answer *answers);
int cudnnGetConvolutionForwardWorkspaceSize(void *handle, void *x, void *w, void *convolution, void *y, int algorithm,
                                            size_t *bytes);
int cudnnConvolutionForward(void *handle, const void *alpha, void *x, const void *x_data, void *w, const void *w_data,
                            void *convolution, int algorithm, void *workspace, size_t bytes, const void *beta, void *y,
                            void *y_data);
int cudnnCreateDropoutDescriptor(void **dropout);
int cudnnCreateRNNDescriptor(void **rnn);
int cudnnDestroyRNNDescriptor(void *rnn);
int cudnnSetRNNDescriptor_v8(void *rnn, int algorithm, int cell, int bias, int direction, int input, int type,
                             int compute, int math, int32_t input_size, int32_t hidden_size, int32_t projection,
                             int32_t layers, void *dropout, uint32_t flags);
int cudnnGetRNNWeightSpaceSize(void *handle, void *rnn, size_t *bytes);
int cudnnGetRNNWeightParams(void *handle, void *rnn, int32_t layer, size_t bytes, const void *weights, int32_t number,
                            void *matrix, void **matrix_address, void *bias, void **bias_address);
int cudnnCreateRNNDataDescriptor(void **data);
int cudnnSetRNNDataDescriptor(void *data, int type, int layout, int steps, int batch, int vector, const int *lengths,
                              void *padding);
int cudnnGetRNNTempSpaceSizes(void *handle, void *rnn, int mode, void *x, size_t *workspace, size_t *reserve);

static void *handle;

static void names(void) {
  char text[64] = "?";
  int major = 0;
  TRUE(cudnnGetVersion() >= 92000 && cudnnGetVersion() < 100000);
  SAYS(OK, cudnnGetProperty(0, &major));
  TRUE(major == 9);
  SAYS(BAD, cudnnGetProperty(3, &major));
  cudnnGetLastErrorString(text, sizeof text);
  TRUE(strstr(text, "SIMULATED") != NULL);
  cudnnGetLastErrorString(text, sizeof text); /* it is gone now */
  TRUE(text[0] == '\0');
  TRUE(strcmp(cudnnGetErrorString(BAD), "CUDNN_STATUS_BAD_PARAM") == 0);
  TRUE(cudnnGetErrorString(-7) != NULL);
}

static void *make_tensor(int type, int rank, const int *dims) {
  void *tensor;
  int strides[8], stride = 1;
  for (int i = rank - 1; i >= 0; stride *= dims[i], i--) strides[i] = stride;
  SAYS(OK, cudnnCreateTensorDescriptor(&tensor));
  SAYS(OK, cudnnSetTensorNdDescriptor(tensor, type, rank, dims, strides));
  return tensor;
}

static void tensors(void) {
  const int dims[] = {2, 3, 4, 5}, strides[] = {60, 1, 15, 3}, nothing[] = {2, 0, 4, 5};
  int type, rank, got[8] = {0}, got_strides[8] = {0};
  void *tensor, *filter;
  SAYS(OK, cudnnCreateTensorDescriptor(&tensor));
  SAYS(OK, cudnnSetTensorNdDescriptor(tensor, HALF, 4, dims, strides));
  SAYS(BAD, cudnnSetTensorNdDescriptor(tensor, HALF, 4, nothing, strides));
  SAYS(BAD, cudnnSetTensorNdDescriptor(tensor, 99, 4, dims, strides));
  SAYS(NOT_SUPPORTED, cudnnSetTensorNdDescriptor(tensor, HALF, 9, dims, strides));
  SAYS(OK, cudnnGetTensorNdDescriptor(tensor, 3, &type, &rank, got, got_strides));
  TRUE(type == HALF && rank == 4 && got[2] == 4 && got[3] == 0 && got_strides[2] == 15);
  SAYS(OK, cudnnCreateFilterDescriptor(&filter));
  SAYS(BAD, cudnnDestroyTensorDescriptor(filter));
  SAYS(BAD, cudnnGetTensorNdDescriptor(filter, 3, &type, &rank, got, got_strides));
  SAYS(OK, cudnnDestroyFilterDescriptor(filter));
  SAYS(OK, cudnnDestroyTensorDescriptor(tensor));
}

struct problem {
  void *x, *w, *convolution, *y;
};

/* 2 x 64 x 3 x 3 operations an output: 59.2e9 of them in all */
static struct problem make_problem(int type, int math) {
  const int one[] = {1, 1}, weights[] = {128, 64, 3, 3};
  struct problem made = {.x = make_tensor(type, 4, (int[]){128, 64, 56, 56}),
                         .y = make_tensor(type, 4, (int[]){128, 128, 56, 56})};
  SAYS(OK, cudnnCreateFilterDescriptor(&made.w));
  SAYS(OK, cudnnSetFilterNdDescriptor(made.w, type, 0, 4, weights));
  SAYS(OK, cudnnCreateConvolutionDescriptor(&made.convolution));
  SAYS(OK, cudnnSetConvolutionNdDescriptor(made.convolution, 2, one, one, one, 1, FLOAT));
  SAYS(OK, cudnnSetConvolutionMathType(made.convolution, math));
  return made;
}

static float estimate_ms(int type, int math) {
  struct problem made = make_problem(type, math);
  struct answer answers[2] = {{.algorithm = -1}, {.algorithm = -1}};
  size_t bytes = 1;
  int count = 0;
  SAYS(OK,
       cudnnGetConvolutionForwardAlgorithm_v7(handle, made.x, made.w, made.convolution, made.y, 2, &count, answers));
  TRUE(count == 1 && answers[0].status == OK && answers[0].determinism == 1 && answers[1].algorithm == -1);
  SAYS(OK, cudnnGetConvolutionForwardWorkspaceSize(handle, made.x, made.w, made.convolution, made.y,
                                                   answers[0].algorithm, &bytes));
  TRUE(bytes == 0);
  SAYS(BAD, cudnnGetConvolutionForwardWorkspaceSize(handle, made.x, made.w, made.convolution, made.y, 8, &bytes));
  SAYS(OK, cudnnSetConvolutionGroupCount(made.convolution, 2));
  SAYS(BAD, cudnnGetConvolutionForwardAlgorithm_v7(handle, made.x, made.w, made.convolution, made.y, 2, &count,
                                                   answers)); /* 32 channels in a group, and filters of 64 */
  SAYS(OK, cudnnDestroyConvolutionDescriptor(made.convolution));
  return answers[0].time_ms;
}

static void convolutions(CUstream stream) {
  const float one = 1, zero = 0;
  float fma_ms = estimate_ms(FLOAT, 3), tf32_ms = estimate_ms(FLOAT, 0), half_ms = estimate_ms(HALF, 0);
  float double_ms = estimate_ms(DOUBLE, 0);
  /* what an H200's data sheet has: 67, 494.5, 989.5 and 67 TFLOP/s, of which kernels reach most */
  TRUE(fma_ms > 59.2 / 67 && fma_ms < 2 * 59.2 / 67);
  TRUE(tf32_ms > 59.2 / 494.5 && tf32_ms < fma_ms / 3 && half_ms < tf32_ms && double_ms > 3 * tf32_ms);
  struct problem made = make_problem(FLOAT, 3);
  lap_ms(stream);
  for (int i = 0; i < 4; i++)
    SAYS(OK, cudnnConvolutionForward(handle, &one, made.x, NULL, made.w, NULL, made.convolution, 1, NULL, 0, &zero,
                                     made.y, NULL));
  TRUE(lap_ms(stream) >= 4 * fma_ms * 0.99f);
  SAYS(BAD, cudnnConvolutionForward(NULL, &one, made.x, NULL, made.w, NULL, made.convolution, 1, NULL, 0, &zero, made.y,
                                    NULL));
  SAYS(BAD, cudnnConvolutionForward(handle, &one, made.w, NULL, made.x, NULL, made.convolution, 1, NULL, 0, &zero,
                                    made.y, NULL));
}

enum { RNN_TANH = 1, LSTM, GRU };

/* Each matrix and bias of a network in the order of addresses: they fill the space, and none lies on another. */
static void check_weights(int cell, int bias, int direction, int projection, int layers, int numbers) {
  const int input = 7, hidden = 5;
  static char space[1 << 16];
  void *rnn, *matrix, *vector;
  size_t bytes = 0, covered = 0;
  SAYS(OK, cudnnCreateRNNDescriptor(&rnn));
  SAYS(OK, cudnnSetRNNDescriptor_v8(rnn, 0, cell, bias, direction, 0, FLOAT, FLOAT, 0, input, hidden, projection,
                                    layers, NULL, 0));
  SAYS(OK, cudnnGetRNNWeightSpaceSize(handle, rnn, &bytes));
  TRUE(bytes < sizeof space);
  memset(space, 0, sizeof space);
  SAYS(OK, cudnnCreateTensorDescriptor(&matrix));
  SAYS(OK, cudnnCreateTensorDescriptor(&vector));
  for (int layer = 0; layer < layers * (direction + 1); layer++) {
    for (int number = 0; number <= numbers; number++) {
      void *tensors[] = {matrix, vector}, *addresses[2];
      SAYS(OK, cudnnGetRNNWeightParams(handle, rnn, layer, bytes, space, number, matrix, &addresses[0], vector,
                                       &addresses[1]));
      for (int i = 0; i < 2; i++) {
        int type, rank, dims[3], strides[3];
        SAYS(OK, cudnnGetTensorNdDescriptor(tensors[i], 3, &type, &rank, dims, strides));
        TRUE((rank == 0) == (addresses[i] == NULL) && (rank == 0 || rank == 3));
        if (rank == 0) continue;
        size_t part = (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2] * sizeof(float);
        char *address = addresses[i];
        TRUE(address >= space && address + part <= space + bytes && memchr(address, 1, part) == NULL);
        memset(address, 1, part);
        covered += part;
      }
    }
  }
  TRUE(covered == bytes);
  SAYS(BAD, cudnnGetRNNWeightParams(handle, rnn, layers * 2, bytes, space, 0, matrix, NULL, vector, NULL));
  SAYS(TOO_SMALL, cudnnGetRNNWeightParams(handle, rnn, 0, bytes - 1, space, 0, matrix, NULL, vector, NULL));
  SAYS(OK, cudnnGetRNNWeightParams(handle, rnn, 0, bytes, space, 0, NULL, NULL, NULL, NULL));
  SAYS(OK, cudnnDestroyRNNDescriptor(rnn));
}

static void recurrent(void) {
  enum { NO_BIAS, INPUT_BIAS, BOTH, STATE_BIAS };
  for (int bias = NO_BIAS; bias <= STATE_BIAS; bias++)
    for (int direction = 0; direction < 2; direction++) {
      check_weights(LSTM, bias, direction, 0, 3, 8);
      check_weights(LSTM, bias, direction, 3, 3, 8);
      check_weights(GRU, bias, direction, 5, 2, 6);
      check_weights(RNN_TANH, bias, direction, 0, 1, 2);
    }
  const int lengths[] = {4, 2};
  size_t workspace = 0, reserve = 0, inference = 1;
  void *rnn, *data;
  SAYS(OK, cudnnCreateRNNDescriptor(&rnn));
  SAYS(OK, cudnnCreateRNNDataDescriptor(&data));
  SAYS(OK, cudnnSetRNNDescriptor_v8(rnn, 0, LSTM, BOTH, 1, 0, HALF, FLOAT, 0, 7, 5, 0, 2, NULL, 0));
  SAYS(BAD, cudnnSetRNNDescriptor_v8(rnn, 0, LSTM, BOTH, 1, 0, HALF, FLOAT, 0, 7, 5, 6, 2, NULL, 0));
  SAYS(NOT_SUPPORTED, cudnnSetRNNDescriptor_v8(rnn, 0, LSTM, BOTH, 1, 0, HALF, FLOAT, 0, 7, 1 << 30, 0, 2, NULL, 0));
  SAYS(OK, cudnnSetRNNDataDescriptor(data, HALF, 1, 4, 2, 7, lengths, NULL));
  SAYS(BAD, cudnnSetRNNDataDescriptor(data, HALF, 1, 3, 2, 7, lengths, NULL));
  SAYS(OK, cudnnGetRNNTempSpaceSizes(handle, rnn, 1, data, &workspace, &reserve));
  TRUE(workspace > 0 && reserve > workspace);
  SAYS(OK, cudnnGetRNNTempSpaceSizes(handle, rnn, 1, data, NULL, NULL));
  SAYS(OK, cudnnGetRNNTempSpaceSizes(handle, rnn, 0, data, &workspace, &inference));
  TRUE(inference == 0);
}

int main(void) {
  begin();
  CUstream stream, got = NULL;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SAYS(OK, cudnnCreate(&handle));
  SAYS(OK, cudnnSetStream(handle, stream));
  SAYS(OK, cudnnGetStream(handle, &got));
  TRUE(got == stream);
  names();
  tensors();
  convolutions(stream);
  recurrent();
  SAYS(OK, cudnnDestroy(handle));
  CHECK(cuCtxDestroy_v2(context));
  puts("ok");
}
