/* spatial.c - what moves over the extents of images: pooling and the spatial transformer's grids and sampling. */
#include "simcuda/common/public.h"
#include "simcuda/cudnn/descriptors.h"
#include "simcuda/cudnn/handle.h"
#include <string.h>

/* the signatures are cuDNN's; what lies in memory is not looked at */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* ---- pooling ---- */

SC_PUBLIC int cudnnSetPooling2dDescriptor(struct sc_dnn_pooling *pooling, int mode, int nan_propagation,
                                          int window_height, int window_width, int padding_height, int padding_width,
                                          int stride_height, int stride_width) {
  if (!sc_dnn_is(pooling, SC_DNN_POOLING) || mode < 0 || mode > 3 || window_height < 1 || window_width < 1 ||
      padding_height < 0 || padding_width < 0 || stride_height < 1 || stride_width < 1)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "pooling has a mode, and windows and strides of at least 1");
  pooling->mode = mode;
  pooling->window[0] = window_height;
  pooling->window[1] = window_width;
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnPoolingForward(const struct sc_dnn_handle *handle, const struct sc_dnn_pooling *pooling,
                                  const void *alpha, const struct sc_dnn_tensor *x, const void *x_data,
                                  const void *beta, const struct sc_dnn_tensor *y, void *y_data) {
  if (!sc_dnn_is(pooling, SC_DNN_POOLING) || pooling->window[0] == 0 || !sc_dnn_is_tensor(x) || !sc_dnn_is_tensor(y))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "pooling needs its descriptor and two tensors");
  double flops = sc_dnn_count(y->dims, y->rank) * pooling->window[0] * pooling->window[1];
  double bytes = sc_dnn_measure_bytes(x) + sc_dnn_measure_bytes(y);
  return sc_dnn_launch(handle, SC_WORK_ELEMENTWISE, (struct sc_cost){flops, bytes, SC_MATH_FP32});
}

/* ---- the spatial transformer ---- */

#define GRID_FLOPS 8   /* a point: two products with a row of three */
#define SAMPLE_FLOPS 8 /* an element: four corners, weighted */
#define GRID_COORDINATES 2

SC_PUBLIC int cudnnSetSpatialTransformerNdDescriptor(struct sc_dnn_spatial *spatial, int sampler, int type, int rank,
                                                     const int *dims) {
  if (!sc_dnn_is(spatial, SC_DNN_SPATIAL) || sampler != 0 || dims == NULL || sc_dnn_find_element_bytes(type) == 0)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the spatial transformer has a bilinear sampler, a type and dimensions");
  if (rank != 4) return sc_dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "the spatial transformer works on 4 dimensions");
  for (int i = 0; i < rank; i++)
    if (dims[i] < 1) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "each dimension of a tensor is at least 1");
  spatial->type = type;
  spatial->rank = rank;
  memcpy(spatial->dims, dims, (size_t)rank * sizeof *dims);
  return CUDNN_STATUS_SUCCESS;
}

static bool is_spatial(const struct sc_dnn_spatial *spatial) {
  return sc_dnn_is(spatial, SC_DNN_SPATIAL) && spatial->rank;
}

/* Of batch, channels, height and width. */
static double count_points(const struct sc_dnn_spatial *spatial) {
  return (double)spatial->dims[0] * spatial->dims[2] * spatial->dims[3];
}

static int run_grid(const struct sc_dnn_handle *handle, const struct sc_dnn_spatial *spatial, const void *from,
                    const void *to) {
  if (!is_spatial(spatial) || from == NULL || to == NULL)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a grid needs the spatial transformer and its matrices");
  double points = count_points(spatial);
  double bytes = points * GRID_COORDINATES * sc_dnn_find_element_bytes(spatial->type);
  return sc_dnn_launch(handle, SC_WORK_ELEMENTWISE, (struct sc_cost){GRID_FLOPS * points, bytes, SC_MATH_FP32});
}

SC_PUBLIC int cudnnSpatialTfGridGeneratorForward(const struct sc_dnn_handle *handle,
                                                 const struct sc_dnn_spatial *spatial, const void *matrices,
                                                 void *grid) {
  return run_grid(handle, spatial, matrices, grid);
}

SC_PUBLIC int cudnnSpatialTfGridGeneratorBackward(const struct sc_dnn_handle *handle,
                                                  const struct sc_dnn_spatial *spatial, const void *grid_gradients,
                                                  void *matrix_gradients) {
  return run_grid(handle, spatial, grid_gradients, matrix_gradients);
}

static int run_sampler(const struct sc_dnn_handle *handle, const struct sc_dnn_spatial *spatial,
                       const struct sc_dnn_tensor *x, const struct sc_dnn_tensor *y, int passes) {
  if (!is_spatial(spatial) || !sc_dnn_is_tensor(x) || !sc_dnn_is_tensor(y))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "sampling needs the spatial transformer and its tensors");
  double grid_bytes = count_points(spatial) * GRID_COORDINATES * sc_dnn_find_element_bytes(spatial->type);
  double bytes = passes * (sc_dnn_measure_bytes(x) + sc_dnn_measure_bytes(y) + grid_bytes);
  double flops = passes * SAMPLE_FLOPS * sc_dnn_count(y->dims, y->rank);
  return sc_dnn_launch(handle, SC_WORK_ELEMENTWISE, (struct sc_cost){flops, bytes, SC_MATH_FP32});
}

SC_PUBLIC int cudnnSpatialTfSamplerForward(const struct sc_dnn_handle *handle, const struct sc_dnn_spatial *spatial,
                                           const void *alpha, const struct sc_dnn_tensor *x, const void *x_data,
                                           const void *grid, const void *beta, const struct sc_dnn_tensor *y,
                                           void *y_data) {
  return run_sampler(handle, spatial, x, y, 1);
}

/* Gradients of the image and of the grid. */
SC_PUBLIC int cudnnSpatialTfSamplerBackward(const struct sc_dnn_handle *handle, const struct sc_dnn_spatial *spatial,
                                            const void *alpha, const struct sc_dnn_tensor *x, const void *x_data,
                                            const void *beta, const struct sc_dnn_tensor *dx, void *dx_data,
                                            const void *alpha_grid, const struct sc_dnn_tensor *dy, const void *dy_data,
                                            const void *grid, const void *beta_grid, void *grid_gradients) {
  if (!sc_dnn_is_tensor(dx)) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "sampling misses the image's gradients");
  return run_sampler(handle, spatial, x, dy, 2);
}
