/* launch.c - launches of kernels, and the shapes that <<< >>> hands to nvcc's stubs. */
#include "simcuda/cudart/registry.h"

#define SHAPES_MAX 16 /* of launches whose arguments launch again */

struct shape {
  dim3 grid, block;
  size_t shared_bytes;
  CUstream stream;
};

static __thread struct shape shapes[SHAPES_MAX];
static __thread unsigned shape_count;

/* Returns whether the launch is left out. */
SC_PUBLIC unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream stream) {
  if (shape_count == SHAPES_MAX) return 1;
  shapes[shape_count++] = (struct shape){grid, block, shared_bytes, stream};
  return 0;
}

SC_PUBLIC cudaError_t __cudaPopCallConfiguration(dim3 *ret_grid, dim3 *ret_block, size_t *ret_shared_bytes,
                                                 void *ret_stream) {
  if (shape_count == 0) return sc_end(cudaErrorMissingConfiguration);
  const struct shape *shape = &shapes[--shape_count];
  *ret_grid = shape->grid;
  *ret_block = shape->block;
  *ret_shared_bytes = shape->shared_bytes;
  *(CUstream *)ret_stream = shape->stream;
  return cudaSuccess;
}

/* The limits of every device since compute capability 3.0; those of a kernel are the driver's business. */
static bool is_valid(dim3 grid, dim3 block) {
  uint64_t threads = (uint64_t)block.x * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0) return false;
  if (grid.x > INT32_MAX || grid.y > UINT16_MAX || grid.z > UINT16_MAX) return false;
  return block.x <= 1024 && block.y <= 1024 && block.z <= 64 && threads <= 1024;
}

static cudaError_t begin_launch(const struct sc_driver **ret_driver, const void *name, dim3 grid, dim3 block,
                                size_t shared_bytes, CUkernel *ret_kernel) {
  cudaError_t error = sc_enter(ret_driver);
  if (error == cudaSuccess) error = sc_find_kernel(*ret_driver, name, ret_kernel);
  if (error == cudaSuccess && !is_valid(grid, block)) error = cudaErrorInvalidConfiguration;
  return error == cudaSuccess && shared_bytes > INT32_MAX ? cudaErrorInvalidValue : error;
}

static cudaError_t launch(const void *name, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                          CUstream stream) {
  const struct sc_driver *driver;
  CUkernel kernel;
  cudaError_t error = begin_launch(&driver, name, grid, block, shared_bytes, &kernel);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuLaunchKernel((CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                (unsigned)shared_bytes, stream, arguments, NULL);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaLaunchKernel(const void *name, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                                       CUstream stream) {
  return launch(name, grid, block, arguments, shared_bytes, stream);
}

SC_PUBLIC cudaError_t __cudaLaunchKernel(CUkernel kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                                         CUstream stream) {
  return launch(kernel, grid, block, arguments, shared_bytes, stream);
}

SC_PUBLIC cudaError_t cudaLaunchCooperativeKernel(const void *name, dim3 grid, dim3 block, void **arguments,
                                                  size_t shared_bytes, CUstream stream) {
  const struct sc_driver *driver;
  CUkernel kernel;
  cudaError_t error = begin_launch(&driver, name, grid, block, shared_bytes, &kernel);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuLaunchCooperativeKernel((CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y,
                                                           block.z, (unsigned)shared_bytes, stream, arguments);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *name, void **arguments) {
  const struct sc_driver *driver;
  CUkernel kernel;
  if (config == NULL) return sc_end(cudaErrorInvalidValue);
  dim3 grid = config->gridDim, block = config->blockDim;
  CUlaunchConfig wanted = {.gridDimX = grid.x,
                           .gridDimY = grid.y,
                           .gridDimZ = grid.z,
                           .blockDimX = block.x,
                           .blockDimY = block.y,
                           .blockDimZ = block.z,
                           .sharedMemBytes = (unsigned)config->dynamicSmemBytes,
                           .hStream = config->stream,
                           .attrs = config->attrs,
                           .numAttrs = config->numAttrs};
  cudaError_t error = begin_launch(&driver, name, grid, block, config->dynamicSmemBytes, &kernel);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuLaunchKernelEx(&wanted, (CUfunction)kernel, arguments, NULL);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaLaunchHostFunc(CUstream stream, CUhostFn function, void *user_data) {
  return SC_CALL(cuLaunchHostFunc, stream, function, user_data);
}
