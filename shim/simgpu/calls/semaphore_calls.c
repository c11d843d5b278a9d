/*
 * semaphore_calls.c - cuSignalExternalSemaphoresAsync and cuWaitExternalSemaphoresAsync: in a stream, or a node of the
 * graph that the stream is captured into. Called by programs.
 */
#include "simgpu/contexts/context.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/external_semaphore.h"
#include "simgpu/streams/stream.h"

static CUresult find(CUstream handle, bool is_per_thread, struct sim_stream **ret_stream) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  return result == CUDA_SUCCESS ? sim_stream_find(handle, is_per_thread, ret_stream) : result;
}

/* Signals and waits, legacy and per thread. */
#define SEMAPHORES(name, suffix, is_per_thread, params_type, to_node, work)                                            \
  SIM_PUBLIC CUresult cu##name##ExternalSemaphoresAsync##suffix(                                                       \
      const CUexternalSemaphore *handles, const params_type *params, unsigned count, CUstream handle) {                \
    struct sim_stream *stream;                                                                                         \
    CUresult result = find(handle, is_per_thread, &stream);                                                            \
    if (result == CUDA_SUCCESS) result = sim_semaphores_check_##work(handles, params, count);                          \
    if (result != CUDA_SUCCESS) return result;                                                                         \
    return stream->capture ? to_node(stream, handles, params, count)                                                   \
                           : sim_semaphores_##work(stream, handles, params, count);                                    \
  }

SEMAPHORES(Signal, , false, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, sim_capture_signal, signal)
SEMAPHORES(Signal, _ptsz, true, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, sim_capture_signal, signal)
SEMAPHORES(Wait, , false, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, sim_capture_wait_semaphores, wait)
SEMAPHORES(Wait, _ptsz, true, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, sim_capture_wait_semaphores, wait)
