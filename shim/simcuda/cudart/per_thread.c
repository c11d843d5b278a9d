/*
 * per_thread.c - the forms of entry points for programs that are compiled for a default stream of each thread: stream 0
 * is that one. Copies without a stream go through it and wait.
 */
#include "simcuda/cudart/per_thread.h"

#define KIND enum cudaMemcpyKind kind
#define SHAPE const void *f, dim3 grid, dim3 block, void **args, size_t bytes, CUstream stream

/* clang-format off */

/* ---- launches ---- */

SC_DEFINE_FORM(cudaLaunchKernel_ptsz, cudaLaunchKernel, (SHAPE), f, grid, block, args, bytes, OWN)
SC_DEFINE_FORM(cudaLaunchCooperativeKernel_ptsz, cudaLaunchCooperativeKernel, (SHAPE), f, grid, block, args, bytes, OWN)
SC_DEFINE_FORM(__cudaLaunchKernel_ptsz, __cudaLaunchKernel,
               (CUkernel f, dim3 grid, dim3 block, void **args, size_t bytes, CUstream stream),
               f, grid, block, args, bytes, OWN)
SC_DEFINE_FORM(cudaLaunchHostFunc_ptsz, cudaLaunchHostFunc, (CUstream stream, CUhostFn f, void *data), OWN, f, data)
SC_DEFINE_FORM(cudaGraphLaunch_ptsz, cudaGraphLaunch, (CUgraphExec exec, CUstream stream), exec, OWN)
SC_DEFINE_FORM(cudaGraphUpload_ptsz, cudaGraphUpload, (CUgraphExec exec, CUstream stream), exec, OWN)
SC_DEFINE_FORM(cudaGraphInstantiateWithParams_ptsz, cudaGraphInstantiateWithParams,
               (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), exec, graph, params)

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *f, void **args);
SC_PUBLIC cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *f, void **args) {
  cudaLaunchConfig_t own;
  if (config == NULL || config->stream != NULL) return cudaLaunchKernelExC(config, f, args);
  own = *config;
  own.stream = CU_STREAM_PER_THREAD;
  return cudaLaunchKernelExC(&own, f, args);
}

/* ---- streams, events and captures ---- */

SC_DEFINE_FORM(cudaStreamQuery_ptsz, cudaStreamQuery, (CUstream stream), OWN)
SC_DEFINE_FORM(cudaStreamSynchronize_ptsz, cudaStreamSynchronize, (CUstream stream), OWN)
SC_DEFINE_FORM(cudaStreamGetPriority_ptsz, cudaStreamGetPriority, (CUstream stream, int *value), OWN, value)
SC_DEFINE_FORM(cudaStreamGetFlags_ptsz, cudaStreamGetFlags, (CUstream stream, unsigned *value), OWN, value)
SC_DEFINE_FORM(cudaStreamGetId_ptsz, cudaStreamGetId, (CUstream stream, unsigned long long *value), OWN, value)
SC_DEFINE_FORM(cudaStreamGetDevice_ptsz, cudaStreamGetDevice, (CUstream stream, int *value), OWN, value)
SC_DEFINE_FORM(cudaStreamCopyAttributes_ptsz, cudaStreamCopyAttributes, (CUstream to, CUstream stream),
               to == NULL ? CU_STREAM_PER_THREAD : to, OWN)
SC_DEFINE_FORM(cudaStreamGetAttribute_ptsz, cudaStreamGetAttribute,
               (CUstream stream, CUstreamAttrID id, CUstreamAttrValue *value), OWN, id, value)
SC_DEFINE_FORM(cudaStreamSetAttribute_ptsz, cudaStreamSetAttribute,
               (CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value), OWN, id, value)
SC_DEFINE_FORM(cudaStreamWaitEvent_ptsz, cudaStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags),
               OWN, event, flags)
SC_DEFINE_FORM(cudaStreamAddCallback_ptsz, cudaStreamAddCallback,
               (CUstream stream, cudaStreamCallback_t f, void *data, unsigned flags), OWN, f, data, flags)
SC_DEFINE_FORM(cudaStreamAttachMemAsync_ptsz, cudaStreamAttachMemAsync,
               (CUstream stream, void *pointer, size_t bytes, unsigned flags), OWN, pointer, bytes, flags)
SC_DEFINE_FORM(cudaEventRecord_ptsz, cudaEventRecord, (CUevent event, CUstream stream), event, OWN)
SC_DEFINE_FORM(cudaEventRecordWithFlags_ptsz, cudaEventRecordWithFlags,
               (CUevent event, CUstream stream, unsigned flags), event, OWN, flags)
SC_DEFINE_FORM(cudaStreamBeginCapture_ptsz, cudaStreamBeginCapture, (CUstream stream, CUstreamCaptureMode mode),
               OWN, mode)
SC_DEFINE_FORM(cudaStreamBeginCaptureToGraph_ptsz, cudaStreamBeginCaptureToGraph,
               (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count,
                CUstreamCaptureMode mode), OWN, graph, nodes, edges, count, mode)
SC_DEFINE_FORM(cudaStreamEndCapture_ptsz, cudaStreamEndCapture, (CUstream stream, CUgraph *graph), OWN, graph)
SC_DEFINE_FORM(cudaStreamIsCapturing_ptsz, cudaStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status),
               OWN, status)

/* ---- memory ---- */

SC_DEFINE_FORM(cudaMallocAsync_ptsz, cudaMallocAsync, (void **pointer, size_t bytes, CUstream stream),
               pointer, bytes, OWN)
SC_DEFINE_FORM(cudaMallocFromPoolAsync_ptsz, cudaMallocFromPoolAsync,
               (void **pointer, size_t bytes, CUmemoryPool pool, CUstream stream), pointer, bytes, pool, OWN)
SC_DEFINE_FORM(cudaFreeAsync_ptsz, cudaFreeAsync, (void *pointer, CUstream stream), pointer, OWN)

/* ---- copies and fills ---- */

#define LINEAR void *to, const void *from, size_t bytes, KIND
#define ROWS void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, KIND
#define TO_SYMBOL const void *symbol, const void *from, size_t bytes, size_t offset, KIND
#define FROM_SYMBOL void *to, const void *symbol, size_t bytes, size_t offset, KIND
#define TO_ARRAY CUarray to, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height, KIND
#define FROM_ARRAY void *to, size_t pitch, CUarray from, size_t x, size_t y, size_t width, size_t height, KIND
#define BOX const struct cudaMemcpy3DParms *params
#define STREAM CUstream stream

SC_DEFINE_FORM(cudaMemcpyAsync_ptsz, cudaMemcpyAsync, (LINEAR, STREAM), to, from, bytes, kind, OWN)
SC_DEFINE_WAIT(cudaMemcpy_ptds, cudaMemcpyAsync, (LINEAR), (LINEAR, STREAM), to, from, bytes, kind)
SC_DEFINE_FORM(cudaMemcpy2DAsync_ptsz, cudaMemcpy2DAsync, (ROWS, STREAM), to, to_pitch, from, from_pitch, width, height,
               kind, OWN)
SC_DEFINE_WAIT(cudaMemcpy2D_ptds, cudaMemcpy2DAsync, (ROWS), (ROWS, STREAM), to, to_pitch, from, from_pitch, width,
               height, kind)
SC_DEFINE_FORM(cudaMemcpy3DAsync_ptsz, cudaMemcpy3DAsync, (BOX, STREAM), params, OWN)
SC_DEFINE_WAIT(cudaMemcpy3D_ptds, cudaMemcpy3DAsync, (BOX), (BOX, STREAM), params)
SC_DEFINE_FORM(cudaMemcpyToSymbolAsync_ptsz, cudaMemcpyToSymbolAsync, (TO_SYMBOL, STREAM), symbol, from, bytes, offset,
               kind, OWN)
SC_DEFINE_WAIT(cudaMemcpyToSymbol_ptds, cudaMemcpyToSymbolAsync, (TO_SYMBOL), (TO_SYMBOL, STREAM), symbol, from, bytes,
               offset, kind)
SC_DEFINE_FORM(cudaMemcpyFromSymbolAsync_ptsz, cudaMemcpyFromSymbolAsync, (FROM_SYMBOL, STREAM), to, symbol, bytes,
               offset, kind, OWN)
SC_DEFINE_WAIT(cudaMemcpyFromSymbol_ptds, cudaMemcpyFromSymbolAsync, (FROM_SYMBOL), (FROM_SYMBOL, STREAM), to, symbol,
               bytes, offset, kind)
SC_DEFINE_FORM(cudaMemcpy2DToArrayAsync_ptsz, cudaMemcpy2DToArrayAsync, (TO_ARRAY, STREAM), to, x, y, from, pitch,
               width, height, kind, OWN)
SC_DEFINE_WAIT(cudaMemcpy2DToArray_ptds, cudaMemcpy2DToArrayAsync, (TO_ARRAY), (TO_ARRAY, STREAM), to, x, y, from,
               pitch, width, height, kind)
SC_DEFINE_FORM(cudaMemcpy2DFromArrayAsync_ptsz, cudaMemcpy2DFromArrayAsync, (FROM_ARRAY, STREAM), to, pitch, from, x, y,
               width, height, kind, OWN)
SC_DEFINE_WAIT(cudaMemcpy2DFromArray_ptds, cudaMemcpy2DFromArrayAsync, (FROM_ARRAY), (FROM_ARRAY, STREAM), to, pitch,
               from, x, y, width, height, kind)

#define FILL void *to, int value, size_t bytes
#define FILL_ROWS void *to, size_t pitch, int value, size_t width, size_t height
#define FILL_BOX struct cudaPitchedPtr to, int value, struct cudaExtent extent

SC_DEFINE_FORM(cudaMemsetAsync_ptsz, cudaMemsetAsync, (FILL, STREAM), to, value, bytes, OWN)
SC_DEFINE_WAIT(cudaMemset_ptds, cudaMemsetAsync, (FILL), (FILL, STREAM), to, value, bytes)
SC_DEFINE_FORM(cudaMemset2DAsync_ptsz, cudaMemset2DAsync, (FILL_ROWS, STREAM), to, pitch, value, width, height, OWN)
SC_DEFINE_WAIT(cudaMemset2D_ptds, cudaMemset2DAsync, (FILL_ROWS), (FILL_ROWS, STREAM), to, pitch, value, width, height)
SC_DEFINE_FORM(cudaMemset3DAsync_ptsz, cudaMemset3DAsync, (FILL_BOX, STREAM), to, value, extent, OWN)
SC_DEFINE_WAIT(cudaMemset3D_ptds, cudaMemset3DAsync, (FILL_BOX), (FILL_BOX, STREAM), to, value, extent)

/* ---- the driver's entry points of the same kind ---- */

#define ENTRY void **f, unsigned version, unsigned long long flags, CUdriverProcAddressQueryResult *status
#define OWN_FLAGS flags != 0 ? flags : (unsigned long long)CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
SC_DEFINE_FORM(cudaGetDriverEntryPointByVersion_ptsz, cudaGetDriverEntryPointByVersion, (const char *name, ENTRY),
               name, f, version, OWN_FLAGS, status)
/* clang-format on */
