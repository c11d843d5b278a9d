/*
 * launch.c - kernel launches: made (modules/launch_make.c), computed if the kernel has a host implementation, then
 * given to the stream with the time that they take. Called by programs.
 */
#include "simgpu/base/strict.h"
#include "simgpu/modules/module.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"
#include <stdlib.h>
#include <string.h>

static CUresult submit(struct sim_stream *stream, const struct sim_launch *launch) {
  const struct sim_function *function = launch->function;
  if (function->module != NULL && function->module->context != stream->context) {
    if (SIM_STRICT) sim_strict_tell("function", function, "of another context than the stream");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (stream->capture != NULL) return sim_capture_work()->kernel(stream, launch);
  CUresult result = sim_capture_implicit(stream);
  if (result != CUDA_SUCCESS) return result;
  CUresult done = sim_launch_compute(launch);
  if (done != CUDA_SUCCESS && !sim_is_sticky(done)) return done;
  sim_launch_use(launch, stream);
  result = sim_submit_kernel(stream, sim_launch_work_of(launch, stream->context), sim_launch_meeting(launch));
  /* Noticed by a wait for it, or by a later call. */
  return result == CUDA_SUCCESS && done != CUDA_SUCCESS ? sim_stream_fault(stream, done) : result;
}

static CUresult launch_on(CUstream handle, bool per_thread, CUfunction function, const unsigned grid[3],
                          const unsigned block[3], unsigned shared_bytes, void **params, void **extra) {
  struct sim_context *context;
  struct sim_stream *stream;
  struct sim_launch launch;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_stream_find(handle, per_thread, &stream);
  if (result == CUDA_SUCCESS) result = sim_launch_make(function, grid, block, shared_bytes, params, extra, &launch);
  if (result != CUDA_SUCCESS) return result;
  result = submit(stream, &launch);
  free(launch.params);
  return result;
}

#define SHAPE(g, x, y, z) const unsigned g[3] = {(x), (y), (z)}

#define LAUNCH_KERNEL(name, per_thread)                                                                                \
  SIM_PUBLIC CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
                           unsigned shared_bytes, CUstream stream, void **params, void **extra) {                      \
    SHAPE(grid, gx, gy, gz);                                                                                           \
    SHAPE(block, bx, by, bz);                                                                                          \
    return launch_on(stream, per_thread, f, grid, block, shared_bytes, params, extra);                                 \
  }
LAUNCH_KERNEL(cuLaunchKernel, false)
LAUNCH_KERNEL(cuLaunchKernel_ptsz, true)

/* All blocks of a cooperative launch must be resident at once. */
static CUresult launch_cooperative(CUfunction f, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                                   CUstream stream, bool per_thread, void **params) {
  struct sim_context *context;
  int blocks;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  if (threads == 0 || threads > SIM_BLOCK_THREADS_MAX) return CUDA_ERROR_INVALID_VALUE;
  result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, (int)threads, shared_bytes);
  if (result != CUDA_SUCCESS) return result;
  if ((uint64_t)grid[0] * grid[1] * grid[2] > (uint64_t)blocks * sim_device(context->ordinal)->sm_count)
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  return launch_on(stream, per_thread, f, grid, block, shared_bytes, params, NULL);
}

#define LAUNCH_COOPERATIVE(name, per_thread)                                                                           \
  SIM_PUBLIC CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
                           unsigned shared_bytes, CUstream stream, void **params) {                                    \
    SHAPE(grid, gx, gy, gz);                                                                                           \
    SHAPE(block, bx, by, bz);                                                                                          \
    return launch_cooperative(f, grid, block, shared_bytes, stream, per_thread, params);                               \
  }
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

/* ---- one cooperative launch on several devices ---- */

#define MULTI_MAX 16
#define SHAPE_BYTES (7 * sizeof(unsigned)) /* grid, block, shared memory: one after the other */
#define MULTI_FLAGS                                                                                                    \
  (CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC | CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC)

/* The same kernel, of the same shape, each in a made stream of another device. */
static CUresult check_multi(const CUDA_LAUNCH_PARAMS *list, unsigned count, struct sim_stream **ret_streams) {
  uint64_t devices = 0;
  for (unsigned i = 0; i < count; i++) {
    const CUDA_LAUNCH_PARAMS *one = &list[i];
    const struct sim_function *function = sim_function_find(one->function);
    CUresult result = sim_stream_find(one->hStream, false, &ret_streams[i]);
    if (result != CUDA_SUCCESS) return result;
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    uint64_t device = 1ull << ret_streams[i]->context->ordinal;
    if (ret_streams[i]->object.inner || devices & device) return CUDA_ERROR_INVALID_VALUE;
    devices |= device;
    if (strcmp(function->kernel.name, sim_function_find(list->function)->kernel.name) != 0 ||
        memcmp(&one->gridDimX, &list->gridDimX, SHAPE_BYTES) != 0)
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

/* Each stream continues when all have arrived here. */
static CUresult join(struct sim_stream *const *streams, unsigned count) {
  struct sim_point points[MULTI_MAX];
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) result = sim_submit_marker(streams[i], &points[i]);
  for (unsigned i = 0; i < count * count && result == CUDA_SUCCESS; i++)
    if (i / count != i % count) result = sim_submit_wait(streams[i / count], points[i % count]);
  return result;
}

SIM_PUBLIC CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned count, unsigned flags) {
  struct sim_context *context;
  struct sim_stream *streams[MULTI_MAX];
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (list == NULL || count == 0 || count > MULTI_MAX || (flags & ~(unsigned)MULTI_FLAGS) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  result = check_multi(list, count, streams);
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
    if (streams[i]->capture != NULL) result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (result == CUDA_SUCCESS && (flags & CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC) == 0)
    result = join(streams, count);
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
    const CUDA_LAUNCH_PARAMS *one = &list[i];
    SHAPE(grid, one->gridDimX, one->gridDimY, one->gridDimZ);
    SHAPE(block, one->blockDimX, one->blockDimY, one->blockDimZ);
    result =
        launch_cooperative(one->function, grid, block, one->sharedMemBytes, one->hStream, false, one->kernelParams);
  }
  if (result == CUDA_SUCCESS && (flags & CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC) == 0)
    result = join(streams, count);
  return result;
}

/* Events that the launch itself records: when it ends, as nothing here starts before the work before it has ended. */
static CUresult record_attributes(const CUlaunchConfig *config, bool per_thread) {
  for (unsigned i = 0; i < config->numAttrs; i++) {
    const CUlaunchAttribute *attribute = &config->attrs[i];
    CUevent event = NULL;
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) event = attribute->value.programmaticEvent.event;
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
      event = attribute->value.launchCompletionEvent.event;
    if (event == NULL) continue;
    CUresult result = per_thread ? cuEventRecord_ptsz(event, config->hStream) : cuEventRecord(event, config->hStream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

static CUresult launch_config(const CUlaunchConfig *config, bool per_thread, CUfunction f, void **params,
                              void **extra) {
  if (config == NULL || (config->numAttrs != 0 && config->attrs == NULL)) return CUDA_ERROR_INVALID_VALUE;
  SHAPE(grid, config->gridDimX, config->gridDimY, config->gridDimZ);
  SHAPE(block, config->blockDimX, config->blockDimY, config->blockDimZ);
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) cooperative = config->attrs[i].value.cooperative != 0;
  CUresult result =
      cooperative && extra == NULL
          ? launch_cooperative(f, grid, block, config->sharedMemBytes, config->hStream, per_thread, params)
          : launch_on(config->hStream, per_thread, f, grid, block, config->sharedMemBytes, params, extra);
  return result == CUDA_SUCCESS ? record_attributes(config, per_thread) : result;
}

SIM_PUBLIC CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra) {
  return launch_config(config, false, f, params, extra);
}

SIM_PUBLIC CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params, void **extra) {
  return launch_config(config, true, f, params, extra);
}
