/*
 * workspace.c - see workspace.h. Which algorithm cuDNN takes, and how much it works in, is known to cuDNN alone: plans
 * answer 0. For an interval of a program's memory (`vgpu predict run`) the largest workspace of all plans is kept, by
 * how the algorithms work that cuDNN's documentation names, for their shapes:
 *   likely  tensor cores take channels as the last dimension: tensors that are not so are copied, channels filled up
 *   most    at least that; for 3 x 3 filters in FP32 the three transformed tensors of Winograd's algorithm (tiles of
 *           4 x 4 outputs are 6 x 6 numbers); for 5 x 5 and more those of Fourier's (tiles of 32 x 32)
 * Explicit matrices, which are 9 times the input for 3 x 3 filters, are slower than all of these, and left out.
 */
#include "simcuda/cudnn/workspace.h"
#include "simcuda/common/public.h"
#include "simcuda/cudnn/descriptors.h"
#include "simcuda/cudnn/graph_work.h"
#include <stdatomic.h>

#define VECTOR_BYTES 16      /* channels are read in pieces of that size */
#define WINOGRAD_OUTPUTS 4   /* of a tile, in each dimension */
#define WINOGRAD_NUMBERS 36  /* of a transformed tile */
#define FOURIER_EXTENT 32    /* of a tile with its border */
#define FOURIER_NUMBERS 1088 /* of a transformed tile: 32 x 17 complex ones */
#define RANK_OF_IMAGES 4
#define BYTES_MAX 0x1p53

static _Atomic uint64_t likely_bytes_most, most_bytes_most;

struct convolution {
  const struct sc_dnn_node *x, *w, *y, *descriptor;
};

static bool find_convolution(const struct sc_dnn_node *operation, struct convolution *ret_convolution) {
  int x, w, y, descriptor;
  switch (operation->type) {
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    x = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, w = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W;
    y = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, descriptor = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC;
    break;
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W;
    y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, descriptor = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC;
    break;
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW;
    y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY;
    descriptor = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC;
    break;
  default:
    return false;
  }
  *ret_convolution = (struct convolution){
      .x = sc_dnn_find_node(operation, x, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
      .w = sc_dnn_find_node(operation, w, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
      .y = sc_dnn_find_node(operation, y, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
      .descriptor = sc_dnn_find_node(operation, descriptor, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR),
  };
  return true;
}

static double find_element_bytes(const struct sc_dnn_node *tensor) {
  return sc_dnn_find_element_bytes((int)sc_dnn_find_integer(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT));
}

static bool are_channels_last(const struct sc_dnn_node *tensor) {
  const struct sc_dnn_value *strides = sc_dnn_find_value(tensor, CUDNN_ATTR_TENSOR_STRIDES);
  return strides != NULL && strides->element_type == CUDNN_TYPE_INT64 && strides->count > 1 &&
         ((const int64_t *)strides->elements)[1] == 1;
}

/* Bytes of a copy of a tensor with channels as the last dimension; 0: it is so already. */
static double measure_copy(const struct sc_dnn_node *tensor) {
  const int64_t *dims;
  int rank = sc_dnn_find_dims(tensor, &dims);
  double element_bytes = find_element_bytes(tensor);
  if (rank < 3 || element_bytes == 0 || are_channels_last(tensor)) return 0;
  double vector = VECTOR_BYTES / element_bytes, bytes = element_bytes;
  for (int i = 0; i < rank; i++) bytes *= (double)dims[i];
  double channels = (double)dims[1], vectors = (double)(int64_t)((channels + vector - 1) / vector);
  return channels > 0 ? bytes / channels * vectors * vector : 0;
}

static bool are_all_one(const struct sc_dnn_node *descriptor, int attribute) {
  const struct sc_dnn_value *found = sc_dnn_find_value(descriptor, attribute);
  for (int64_t i = 0; found != NULL && i < found->count; i++)
    if (found->element_type != CUDNN_TYPE_INT64 || ((const int64_t *)found->elements)[i] != 1) return false;
  return true;
}

/* Bytes of inputs, outputs and filters, each as tiles of so many numbers, if there are so many tiles of an image. */
static double measure_tiles(const int64_t *x, const int64_t *w, double tiles, double numbers) {
  double batch = (double)x[0], inputs = (double)x[1], outputs = (double)w[0], group_inputs = (double)w[1];
  return sizeof(float) * numbers * (batch * tiles * (inputs + outputs) + outputs * group_inputs);
}

static double count_tiles(int64_t height, int64_t width, int64_t tile_height, int64_t tile_width) {
  return (double)((height + tile_height - 1) / tile_height) * (double)((width + tile_width - 1) / tile_width);
}

static double measure_transforms(const struct convolution *found) {
  const int64_t *x, *w, *y;
  bool are_images = sc_dnn_find_dims(found->x, &x) == RANK_OF_IMAGES &&
                    sc_dnn_find_dims(found->w, &w) == RANK_OF_IMAGES &&
                    sc_dnn_find_dims(found->y, &y) == RANK_OF_IMAGES;
  if (!are_images || w[1] != x[1] /* in groups */ || find_element_bytes(found->x) != sizeof(float) ||
      !are_all_one(found->descriptor, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES) ||
      !are_all_one(found->descriptor, CUDNN_ATTR_CONVOLUTION_DILATIONS))
    return 0;
  if (w[2] == 3 && w[3] == 3)
    return measure_tiles(x, w, count_tiles(y[2], y[3], WINOGRAD_OUTPUTS, WINOGRAD_OUTPUTS), WINOGRAD_NUMBERS);
  if (w[2] < 5 || w[3] < 5 || w[2] > FOURIER_EXTENT || w[3] > FOURIER_EXTENT) return 0;
  double tiles = count_tiles(y[2], y[3], FOURIER_EXTENT + 1 - w[2], FOURIER_EXTENT + 1 - w[3]);
  return measure_tiles(x, w, tiles, FOURIER_NUMBERS);
}

static void keep_most(_Atomic uint64_t *most, double bytes) {
  uint64_t before = atomic_load(most), found = (uint64_t)(bytes < BYTES_MAX ? bytes : BYTES_MAX);
  while (found > before && !atomic_compare_exchange_weak(most, &before, found)) continue;
}

void sc_dnn_note_workspaces(const struct sc_dnn_node *graph, bool are_tensor_cores_used) {
  const struct sc_dnn_value *operations = sc_dnn_find_value(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  for (int64_t i = 0; operations != NULL && i < operations->count; i++) {
    struct convolution found;
    if (!find_convolution(((struct sc_dnn_node **)operations->elements)[i], &found)) continue;
    double likely = 0;
    if (are_tensor_cores_used) likely = measure_copy(found.x) + measure_copy(found.w) + measure_copy(found.y);
    double transforms = measure_transforms(&found);
    keep_most(&likely_bytes_most, likely);
    keep_most(&most_bytes_most, likely > transforms ? likely : transforms);
  }
}

/* Not a function of cuDNN's: what `vgpu predict run` asks when a program ends. */
SC_PUBLIC void sc_dnn_get_workspaces(uint64_t *ret_likely_bytes, uint64_t *ret_most_bytes) {
  *ret_likely_bytes = atomic_load(&likely_bytes_most);
  *ret_most_bytes = atomic_load(&most_bytes_most);
}
