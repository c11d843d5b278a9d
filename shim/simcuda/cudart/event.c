/* event.c - events, of this process and of others. Handles and flags are the driver's. */
#include "simcuda/cudart/runtime.h"

SC_PUBLIC cudaError_t cudaEventCreate(CUevent *ret_event) {
  return SC_CALL(cuEventCreate, ret_event, 0);
}

SC_PUBLIC cudaError_t cudaEventCreateWithFlags(CUevent *ret_event, unsigned flags) {
  return SC_CALL(cuEventCreate, ret_event, flags);
}

SC_PUBLIC cudaError_t cudaEventDestroy(CUevent event) {
  return SC_CALL(cuEventDestroy_v2, event);
}

SC_PUBLIC cudaError_t cudaEventRecord(CUevent event, CUstream stream) {
  return SC_CALL(cuEventRecord, event, stream);
}

SC_PUBLIC cudaError_t cudaEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return SC_CALL(cuEventRecordWithFlags, event, stream, flags);
}

SC_PUBLIC cudaError_t cudaEventQuery(CUevent event) {
  return SC_CALL(cuEventQuery, event);
}

SC_PUBLIC cudaError_t cudaEventSynchronize(CUevent event) {
  return SC_CALL(cuEventSynchronize, event);
}

SC_PUBLIC cudaError_t cudaEventElapsedTime(float *ret_ms, CUevent start, CUevent end) {
  return SC_CALL(cuEventElapsedTime, ret_ms, start, end);
}

/* ---- memory and events of other processes ---- */

SC_PUBLIC cudaError_t cudaIpcGetEventHandle(CUipcEventHandle *ret_handle, CUevent event) {
  return SC_CALL(cuIpcGetEventHandle, ret_handle, event);
}

SC_PUBLIC cudaError_t cudaIpcOpenEventHandle(CUevent *ret_event, CUipcEventHandle handle) {
  return SC_CALL(cuIpcOpenEventHandle, ret_event, handle);
}

SC_PUBLIC cudaError_t cudaIpcGetMemHandle(CUipcMemHandle *ret_handle, void *pointer) {
  return SC_CALL(cuIpcGetMemHandle, ret_handle, (CUdeviceptr)pointer);
}

SC_PUBLIC cudaError_t cudaIpcOpenMemHandle(void **ret_pointer, CUipcMemHandle handle, unsigned flags) {
  return SC_CALL(cuIpcOpenMemHandle_v2, (CUdeviceptr *)ret_pointer, handle, flags);
}

SC_PUBLIC cudaError_t cudaIpcCloseMemHandle(void *pointer) {
  return SC_CALL(cuIpcCloseMemHandle, (CUdeviceptr)pointer);
}
