/*
 * sticky.c - errors that a context keeps: once a kernel has faulted, every call in that context answers the fault's
 * code until the context is destroyed or the primary one reset; whatever it had queued is dropped, other contexts and
 * processes continue. Called where a kernel faults (streams/agent.c) and for faults on request (entries/fault.c).
 */
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include <stdio.h>

bool sim_is_sticky(CUresult code) {
  switch ((int)code) {
  case CUDA_ERROR_ECC_UNCORRECTABLE:
  case CUDA_ERROR_NVLINK_UNCORRECTABLE:
  case CUDA_ERROR_CONTAINED:
  case CUDA_ERROR_ILLEGAL_ADDRESS:
  case CUDA_ERROR_LAUNCH_TIMEOUT:
  case CUDA_ERROR_ASSERT:
  case CUDA_ERROR_HARDWARE_STACK_ERROR:
  case CUDA_ERROR_ILLEGAL_INSTRUCTION:
  case CUDA_ERROR_MISALIGNED_ADDRESS:
  case CUDA_ERROR_INVALID_ADDRESS_SPACE:
  case CUDA_ERROR_INVALID_PC:
  case CUDA_ERROR_LAUNCH_FAILED:
  case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    return true;
  default:
    return false;
  }
}

void sim_context_fault(struct sim_context *context, CUresult code) {
  CUresult healthy = CUDA_SUCCESS;
  struct sim_context *home = context->home;
  /* The first fault is the one that is answered and reported. */
  if (!__atomic_compare_exchange_n(&home->sticky, &healthy, code, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
  char text[64];
  snprintf(text, sizeof text, "a context has failed: error %d", (int)code);
  sim_log(text);
  sim_link_request(SIM_REQUEST_FAULT, home->device, home->server_id, (uint64_t)code);
}

void sim_fault_struck(CUresult code) {
  struct sim_context *context;
  if (sim_is_sticky(code) && sim_enter(&context) == CUDA_SUCCESS) sim_context_fault(context, code);
}

CUresult sim_context_waited(const struct sim_context *context) {
  CUresult result = sim_waited();
  return result == CUDA_SUCCESS ? sim_context_state(context) : result;
}
