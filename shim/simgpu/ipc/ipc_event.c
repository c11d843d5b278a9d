/*
 * ipc_event.c - events that other processes open by a handle: the entry points. Called by programs.
 */
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/event_page.h"
#include "simgpu/streams/stream.h"
#include <string.h>
#include <unistd.h>

struct handle { /* what a CUipcEventHandle holds */
  uint64_t key;
  int32_t pid; /* of its maker, which cannot open it */
};

SIM_PUBLIC CUresult cuIpcGetEventHandle(CUipcEventHandle *ret_handle, CUevent event_handle) {
  struct handle handle = {.pid = getpid()};
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_event *event = sim_event_find(event_handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (!ret_handle || !(event->flags & CU_EVENT_INTERPROCESS)) return CUDA_ERROR_INVALID_VALUE;
  handle.key = sim_ipc_event_key(event);
  memset(ret_handle, 0, sizeof *ret_handle);
  memcpy(ret_handle, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuIpcOpenEventHandle(CUevent *ret_event, CUipcEventHandle text) {
  struct sim_context *context;
  struct handle handle;
  struct sim_ipc_event *ipc;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  memcpy(&handle, &text, sizeof handle);
  if (!ret_event) return CUDA_ERROR_INVALID_VALUE;
  if (handle.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  result = sim_ipc_event_open(handle.key, &ipc);
  if (result != CUDA_SUCCESS) return result;
  result = sim_event_make(context, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, ipc, ret_event);
  if (result != CUDA_SUCCESS) sim_ipc_event_close(ipc);
  return result;
}
