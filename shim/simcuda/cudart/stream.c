/* stream.c - streams and what waits in them. Handles and flags are the driver's. */
#include "simcuda/cudart/runtime.h"

SC_PUBLIC cudaError_t cudaStreamCreate(CUstream *ret_stream) {
  return SC_CALL(cuStreamCreate, ret_stream, 0);
}

SC_PUBLIC cudaError_t cudaStreamCreateWithFlags(CUstream *ret_stream, unsigned flags) {
  return SC_CALL(cuStreamCreate, ret_stream, flags);
}

SC_PUBLIC cudaError_t cudaStreamCreateWithPriority(CUstream *ret_stream, unsigned flags, int priority) {
  return SC_CALL(cuStreamCreateWithPriority, ret_stream, flags, priority);
}

SC_PUBLIC cudaError_t cudaStreamDestroy(CUstream stream) {
  return SC_CALL(cuStreamDestroy_v2, stream);
}

SC_PUBLIC cudaError_t cudaStreamGetPriority(CUstream stream, int *ret_priority) {
  return SC_CALL(cuStreamGetPriority, stream, ret_priority);
}

SC_PUBLIC cudaError_t cudaStreamGetFlags(CUstream stream, unsigned *ret_flags) {
  return SC_CALL(cuStreamGetFlags, stream, ret_flags);
}

SC_PUBLIC cudaError_t cudaStreamGetId(CUstream stream, unsigned long long *ret_id) {
  return SC_CALL(cuStreamGetId, stream, ret_id);
}

SC_PUBLIC cudaError_t cudaStreamGetDevice(CUstream stream, int *ret_device) {
  return SC_CALL(cuStreamGetDevice, stream, ret_device);
}

SC_PUBLIC cudaError_t cudaStreamQuery(CUstream stream) {
  return SC_CALL(cuStreamQuery, stream);
}

SC_PUBLIC cudaError_t cudaStreamSynchronize(CUstream stream) {
  return SC_CALL(cuStreamSynchronize, stream);
}

SC_PUBLIC cudaError_t cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return SC_CALL(cuStreamWaitEvent, stream, event, flags);
}

SC_PUBLIC cudaError_t cudaStreamAddCallback(CUstream stream, cudaStreamCallback_t callback, void *user_data,
                                            unsigned flags) {
  return SC_CALL(cuStreamAddCallback, stream, (CUstreamCallback)callback, user_data, flags);
}

SC_PUBLIC cudaError_t cudaStreamAttachMemAsync(CUstream stream, void *pointer, size_t bytes, unsigned flags) {
  return SC_CALL(cuStreamAttachMemAsync, stream, (CUdeviceptr)pointer, bytes, flags);
}

SC_PUBLIC cudaError_t cudaStreamCopyAttributes(CUstream to, CUstream from) {
  return SC_CALL(cuStreamCopyAttributes, to, from);
}

SC_PUBLIC cudaError_t cudaStreamGetAttribute(CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *ret_value) {
  return SC_CALL(cuStreamGetAttribute, stream, attribute, ret_value);
}

SC_PUBLIC cudaError_t cudaStreamSetAttribute(CUstream stream, CUstreamAttrID attribute,
                                             const CUstreamAttrValue *value) {
  return SC_CALL(cuStreamSetAttribute, stream, attribute, value);
}
