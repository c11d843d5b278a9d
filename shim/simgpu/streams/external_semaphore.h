/*
 * external_semaphore.h - semaphores of other interfaces: check, then signal or wait in a stream.
 */
#ifndef VG_SIM_EXTERNAL_SEMAPHORE_H
#define VG_SIM_EXTERNAL_SEMAPHORE_H
#include "simgpu/streams/stream.h"

CUresult sim_semaphores_check_signal(const CUexternalSemaphore *handles,
                                     const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count);
CUresult sim_semaphores_check_wait(const CUexternalSemaphore *handles,
                                   const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned count);
CUresult sim_semaphores_signal(struct sim_stream *stream, const CUexternalSemaphore *handles,
                               const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count);
CUresult sim_semaphores_wait(struct sim_stream *stream, const CUexternalSemaphore *handles,
                             const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned count);

#endif
