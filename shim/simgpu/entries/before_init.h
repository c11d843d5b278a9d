/*
 * before_init.h - what an entry point answers before cuInit (and in a forked child, which is not initialised either).
 * Most answer CUDA_ERROR_NOT_INITIALIZED whatever their arguments are. Those that look at an argument first, or clear
 * an output first, have a row here: its steps in their order, the parameters named as in gen/abi/cuda_abi.h; a row
 * without steps leaves the answer to the body. Observed on drivers 535.261.03, 550.163.01 and 555.58.02, which need no
 * device for it; of newer entry points the documentation says it. A handle that is not NULL cannot be valid here: it is
 * not followed, which those drivers do.
 */
#ifndef VG_SIM_BEFORE_INIT_H
#define VG_SIM_BEFORE_INIT_H
#include "gen/abi/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

/*
 * SIM_BEFORE(cuX): the steps of cuX's row, or nothing where it has none. A row begins with `~,`: it is what moves its
 * steps to the place that SIM_SECOND takes.
 */
#define SIM_SECOND(first, second, ...) second
#define SIM_ROW(...) SIM_SECOND(__VA_ARGS__, , )
#define SIM_BEFORE(name) SIM_ROW(SIM_BEFORE_##name)

/* The steps. */
#define ANSWER(code) return CUDA_ERROR_##code;
#define WRONG(condition, code)                                                                                         \
  if (condition) ANSWER(code)
#define NONE(parameter, code) WRONG(!(parameter), code)
#define UNASKED(output)                                                                                                \
  if (!(output)) return CUDA_SUCCESS;
#define CLEAR(output)                                                                                                  \
  if (output) *(output) = 0;
#define BODY break; /* out of SIM_ENTRY's loop, to the body */
#define NO_STREAM(output) *(output) = (CUstream)(intptr_t)-1;
#define NOT_INSTANTIATED(params)                                                                                       \
  {                                                                                                                    \
    (params)->hErrNode_out = NULL;                                                                                     \
    (params)->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;                                                               \
  }
#define CLEAR_UPDATE(info)                                                                                             \
  if (info) {                                                                                                          \
    (info)->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;                                                                     \
    (info)->errorNode = (info)->errorFromNode = NULL;                                                                  \
  }
#define INSTANTIATE_FLAGS                                                                                              \
  ((unsigned)CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | (unsigned)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |          \
   (unsigned)CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | (unsigned)CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

/* need no cuInit: the body answers */
#define SIM_BEFORE_cuInit ~, BODY
#define SIM_BEFORE_cuDriverGetVersion ~, BODY
#define SIM_BEFORE_cuGetErrorName ~, BODY
#define SIM_BEFORE_cuGetErrorString ~, BODY
#define SIM_BEFORE_cuGetExportTable ~, BODY
#define SIM_BEFORE_cuGetProcAddress ~, BODY
#define SIM_BEFORE_cuGetProcAddress_v2 ~, BODY
#define SIM_BEFORE_cuProfilerInitialize ~, BODY
#define SIM_BEFORE_cuCoredumpGetAttribute ~, BODY
#define SIM_BEFORE_cuCoredumpGetAttributeGlobal ~, BODY
#define SIM_BEFORE_cuCoredumpSetAttribute ~, BODY
#define SIM_BEFORE_cuCoredumpSetAttributeGlobal ~, BODY
#define SIM_BEFORE_cuLogsCurrent ~, BODY
#define SIM_BEFORE_cuLogsDumpToFile ~, BODY
#define SIM_BEFORE_cuLogsDumpToMemory ~, BODY
#define SIM_BEFORE_cuLogsRegisterCallback ~, BODY
#define SIM_BEFORE_cuLogsUnregisterCallback ~, BODY
#define SIM_BEFORE_cuUserObjectCreate ~, BODY
#define SIM_BEFORE_cuUserObjectRelease ~, BODY
#define SIM_BEFORE_cuUserObjectRetain ~, BODY

/* memory: outputs are cleared first */
#define SIM_BEFORE_cuDeviceTotalMem ~, CLEAR(bytes)
#define SIM_BEFORE_cuDeviceTotalMem_v2 ~, CLEAR(bytes)
#define SIM_BEFORE_cuMemGetInfo ~, CLEAR(free) CLEAR(total)
#define SIM_BEFORE_cuMemGetInfo_v2 ~, CLEAR(free) CLEAR(total)
#define SIM_BEFORE_cuMemAlloc ~, CLEAR(dptr)
#define SIM_BEFORE_cuMemAlloc_v2 ~, CLEAR(dptr)
#define SIM_BEFORE_cuMemAllocAsync ~, CLEAR(dptr)
#define SIM_BEFORE_cuMemAllocAsync_ptsz ~, CLEAR(dptr)
#define SIM_BEFORE_cuMemAllocFromPoolAsync ~, CLEAR(dptr)
#define SIM_BEFORE_cuMemAllocFromPoolAsync_ptsz ~, CLEAR(dptr)
#define SIM_BEFORE_cuMemAllocPitch ~, CLEAR(dptr) CLEAR(pPitch)
#define SIM_BEFORE_cuMemAllocPitch_v2 ~, CLEAR(dptr) CLEAR(pPitch)
#define SIM_BEFORE_cuMemAllocHost ~, CLEAR(pp)
#define SIM_BEFORE_cuMemAllocHost_v2 ~, CLEAR(pp)
#define SIM_BEFORE_cuMemHostAlloc ~, CLEAR(pp)
#define SIM_BEFORE_cuMemAllocManaged                                                                                   \
  ~, CLEAR(dptr) NONE(dptr, INVALID_VALUE) NONE(bytesize, INVALID_VALUE)                                               \
         WRONG(flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST, INVALID_VALUE)
#define SIM_BEFORE_cuMemGetAddressRange ~, UNASKED(pbase || psize) CLEAR(pbase) CLEAR(psize)
#define SIM_BEFORE_cuMemGetAddressRange_v2 ~, UNASKED(pbase || psize) CLEAR(pbase) CLEAR(psize)
#define SIM_BEFORE_cuMemHostGetDevicePointer ~, CLEAR(pdptr)
#define SIM_BEFORE_cuMemHostGetDevicePointer_v2 ~, CLEAR(pdptr)
#define SIM_BEFORE_cuModuleGetGlobal ~, CLEAR(dptr) CLEAR(bytes)
#define SIM_BEFORE_cuModuleGetGlobal_v2 ~, CLEAR(dptr) CLEAR(bytes)
#define SIM_BEFORE_cuTexRefGetAddress ~, CLEAR(pdptr)
#define SIM_BEFORE_cuTexRefGetAddress_v2 ~, CLEAR(pdptr)
#define SIM_BEFORE_cuTexRefSetAddress ~, CLEAR(ByteOffset)
#define SIM_BEFORE_cuTexRefSetAddress_v2 ~, CLEAR(ByteOffset)
#define SIM_BEFORE_cuGLMapBufferObject ~, CLEAR(dptr) CLEAR(size)
#define SIM_BEFORE_cuGLMapBufferObjectAsync ~, CLEAR(dptr) CLEAR(size)
#define SIM_BEFORE_cuGLMapBufferObjectAsync_v2 ~, CLEAR(dptr) CLEAR(size)
#define SIM_BEFORE_cuGLMapBufferObjectAsync_v2_ptsz ~, CLEAR(dptr) CLEAR(size)
#define SIM_BEFORE_cuGLMapBufferObject_v2 ~, CLEAR(dptr) CLEAR(size)
#define SIM_BEFORE_cuGLMapBufferObject_v2_ptds ~, CLEAR(dptr) CLEAR(size)
#define SIM_BEFORE_cuGraphicsResourceGetMappedPointer ~, CLEAR(pDevPtr) CLEAR(pSize)
#define SIM_BEFORE_cuGraphicsResourceGetMappedPointer_v2 ~, CLEAR(pDevPtr) CLEAR(pSize)
#define SIM_BEFORE_cuMemAdvise_v2 ~, NONE(advice, INVALID_VALUE) NONE(location.type, INVALID_VALUE)
#define SIM_BEFORE_cuMemPrefetchAsync_v2 ~, WRONG(flags, INVALID_VALUE) NONE(location.type, INVALID_VALUE)
#define SIM_BEFORE_cuMemPrefetchAsync_v2_ptsz ~, WRONG(flags, INVALID_VALUE) NONE(location.type, INVALID_VALUE)
#define SIM_BEFORE_cuMemGetHandleForAddressRange ~, NONE(handle, INVALID_VALUE) NONE(dptr &&size, INVALID_VALUE)
#define SIM_BEFORE_cuMemHostGetFlags ~, NONE(pFlags, INVALID_VALUE)
#define SIM_BEFORE_cuIpcGetMemHandle ~, NONE(pHandle, INVALID_VALUE) NONE(dptr, INVALID_VALUE)
#define SIM_BEFORE_cuIpcGetEventHandle ~, NONE(pHandle, INVALID_VALUE) NONE(event, INVALID_VALUE)
#define SIM_BEFORE_cuMemMapArrayAsync ~, NONE(mapInfoList, INVALID_VALUE) NONE(count, INVALID_VALUE)
#define SIM_BEFORE_cuMemMapArrayAsync_ptsz ~, NONE(mapInfoList, INVALID_VALUE) NONE(count, INVALID_VALUE)
#define SIM_BEFORE_cuArrayGetMemoryRequirements ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuArrayGetSparseProperties ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuMipmappedArrayGetMemoryRequirements ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuMipmappedArrayGetSparseProperties ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuArray3DGetDescriptor ~, NONE(hArray, INVALID_HANDLE) ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuArray3DGetDescriptor_v2 ~, NONE(hArray, INVALID_HANDLE) ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuArrayGetDescriptor ~, NONE(hArray, INVALID_HANDLE) ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuArrayGetDescriptor_v2 ~, NONE(hArray, INVALID_HANDLE) ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuArrayGetPlane ~, NONE(hArray, INVALID_HANDLE) ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuMipmappedArrayGetLevel ~, NONE(hMipmappedArray, INVALID_HANDLE) ANSWER(INVALID_CONTEXT)

/* devices, contexts and their parts */
#define SIM_BEFORE_cuDeviceGetAttribute ~, NONE(pi, INVALID_VALUE)
#define SIM_BEFORE_cuDevicePrimaryCtxGetState ~, NONE(flags, INVALID_VALUE) NONE(active, INVALID_VALUE)
#define SIM_BEFORE_cuCtxDestroy ~, NONE(ctx, INVALID_VALUE)
#define SIM_BEFORE_cuCtxDestroy_v2 ~, NONE(ctx, INVALID_VALUE)
#define SIM_BEFORE_cuCtxGetFlags ~, NONE(flags, INVALID_VALUE)
#define SIM_BEFORE_cuCtxGetId ~, NONE(ctxId, INVALID_VALUE)
#define SIM_BEFORE_cuCtxFromGreenCtx ~, NONE(pContext, INVALID_VALUE)
#define SIM_BEFORE_cuDevResourceGenerateDesc ~, NONE(phDesc, INVALID_VALUE) NONE(resources, INVALID_VALUE)
#define SIM_BEFORE_cuCtxGetDevResource                                                                                 \
  ~, NONE(resource, INVALID_VALUE) WRONG(type != CU_DEV_RESOURCE_TYPE_SM, INVALID_RESOURCE_TYPE)
#define SIM_BEFORE_cuGreenCtxGetDevResource                                                                            \
  ~, NONE(resource, INVALID_VALUE) WRONG(type != CU_DEV_RESOURCE_TYPE_SM, INVALID_RESOURCE_TYPE)
#define SIM_BEFORE_cuGreenCtxRecordEvent ~, ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuGreenCtxWaitEvent ~, ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuGreenCtxStreamCreate ~, NONE(phStream, INVALID_VALUE) NO_STREAM(phStream) ANSWER(INVALID_CONTEXT)

/* streams and events */
#define SIM_BEFORE_cuStreamCreate                                                                                      \
  ~, NONE(phStream, INVALID_VALUE) WRONG(Flags & ~(unsigned)CU_STREAM_NON_BLOCKING, INVALID_VALUE) NO_STREAM(phStream)
#define SIM_BEFORE_cuStreamCreateWithPriority                                                                          \
  ~, NONE(phStream, INVALID_VALUE) WRONG(flags & ~(unsigned)CU_STREAM_NON_BLOCKING, INVALID_VALUE) NO_STREAM(phStream)
#define SIM_BEFORE_cuStreamDestroy ~, NONE(hStream, INVALID_HANDLE)
#define SIM_BEFORE_cuStreamDestroy_v2 ~, NONE(hStream, INVALID_HANDLE)
#define SIM_BEFORE_cuStreamGetCaptureInfo ~, NONE(captureStatus_out, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetCaptureInfo_ptsz ~, NONE(captureStatus_out, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetCaptureInfo_v2 ~, NONE(captureStatus_out, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetCaptureInfo_v2_ptsz ~, NONE(captureStatus_out, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetCaptureInfo_v3 ~, NONE(captureStatus_out, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetCaptureInfo_v3_ptsz ~, NONE(captureStatus_out, INVALID_VALUE)
#define SIM_BEFORE_cuStreamIsCapturing ~, NONE(captureStatus, INVALID_VALUE)
#define SIM_BEFORE_cuStreamIsCapturing_ptsz ~, NONE(captureStatus, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetCtx ~, NONE(pctx, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetCtx_ptsz ~, NONE(pctx, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetCtx_v2 ~, NONE(pCtx, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetCtx_v2_ptsz ~, NONE(pCtx, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetFlags ~, NONE(flags, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetFlags_ptsz ~, NONE(flags, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetGreenCtx ~, NONE(phCtx, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetId ~, NONE(streamId, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetId_ptsz ~, NONE(streamId, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetPriority ~, NONE(priority, INVALID_VALUE)
#define SIM_BEFORE_cuStreamGetPriority_ptsz ~, NONE(priority, INVALID_VALUE)
#define SIM_BEFORE_cuStreamBeginCapture_v2 ~, WRONG(mode > CU_STREAM_CAPTURE_MODE_RELAXED, INVALID_VALUE)
#define SIM_BEFORE_cuStreamBeginCapture_v2_ptsz ~, WRONG(mode > CU_STREAM_CAPTURE_MODE_RELAXED, INVALID_VALUE)
#define SIM_BEFORE_cuStreamBeginCaptureToGraph                                                                         \
  ~, NONE(hGraph, INVALID_VALUE) WRONG(mode > CU_STREAM_CAPTURE_MODE_RELAXED, INVALID_VALUE)
#define SIM_BEFORE_cuStreamBeginCaptureToGraph_ptsz                                                                    \
  ~, NONE(hGraph, INVALID_VALUE) WRONG(mode > CU_STREAM_CAPTURE_MODE_RELAXED, INVALID_VALUE)
#define SIM_BEFORE_cuStreamEndCapture ~, CLEAR(phGraph)
#define SIM_BEFORE_cuStreamEndCapture_ptsz ~, CLEAR(phGraph)
#define SIM_BEFORE_cuEventDestroy ~, NONE(hEvent, INVALID_HANDLE) ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuEventDestroy_v2 ~, NONE(hEvent, INVALID_HANDLE) ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuEventQuery ~, NONE(hEvent, INVALID_HANDLE) ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuEventSynchronize ~, NONE(hEvent, INVALID_HANDLE) ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuEventElapsedTime                                                                                  \
  ~, NONE(pMilliseconds, INVALID_HANDLE) NONE(hStart, INVALID_HANDLE) ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuEventElapsedTime_v2                                                                               \
  ~, NONE(pMilliseconds, INVALID_HANDLE) NONE(hStart, INVALID_HANDLE) ANSWER(INVALID_CONTEXT)

/* modules, libraries and functions */
#define SIM_BEFORE_cuFuncGetAttribute ~, NONE(pi, INVALID_VALUE) NONE(hfunc, INVALID_HANDLE)
#define SIM_BEFORE_cuFuncGetName ~, NONE(name, INVALID_VALUE) NONE(hfunc, INVALID_VALUE)
#define SIM_BEFORE_cuFuncGetParamInfo ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuFuncIsLoaded ~, NONE(state, INVALID_VALUE) NONE(function, INVALID_HANDLE)
#define SIM_BEFORE_cuFuncLoad ~, NONE(function, INVALID_HANDLE)
#define SIM_BEFORE_cuKernelGetAttribute ~, ANSWER(INVALID_HANDLE)
#define SIM_BEFORE_cuKernelSetAttribute ~, ANSWER(INVALID_HANDLE)
#define SIM_BEFORE_cuKernelSetCacheConfig ~, ANSWER(INVALID_HANDLE)
#define SIM_BEFORE_cuKernelGetFunction ~, NONE(pFunc, INVALID_VALUE) ANSWER(INVALID_HANDLE)
#define SIM_BEFORE_cuKernelGetLibrary ~, NONE(pLib, INVALID_VALUE) ANSWER(INVALID_HANDLE)
#define SIM_BEFORE_cuKernelGetName ~, NONE(name, INVALID_VALUE) NONE(hfunc, INVALID_VALUE)
#define SIM_BEFORE_cuKernelGetParamInfo ~, NONE(kernel, INVALID_VALUE) NONE(paramOffset, INVALID_VALUE)
#define SIM_BEFORE_cuLaunchKernelEx ~, NONE(config, INVALID_VALUE)
#define SIM_BEFORE_cuLaunchKernelEx_ptsz ~, NONE(config, INVALID_VALUE)
#define SIM_BEFORE_cuLibraryEnumerateKernels ~, NONE(kernels, INVALID_VALUE) NONE(lib, INVALID_HANDLE)
#define SIM_BEFORE_cuLibraryGetGlobal ~, NONE(name && *name, INVALID_VALUE) NONE(library, INVALID_HANDLE)
#define SIM_BEFORE_cuLibraryGetManaged ~, NONE(name && *name, INVALID_VALUE) NONE(library, INVALID_HANDLE)
#define SIM_BEFORE_cuLibraryGetKernel                                                                                  \
  ~, NONE(pKernel, INVALID_VALUE) NONE(name, INVALID_VALUE) NONE(library, INVALID_HANDLE)
#define SIM_BEFORE_cuLibraryGetKernelCount ~, NONE(count, INVALID_VALUE) NONE(lib, INVALID_HANDLE)
#define SIM_BEFORE_cuLibraryGetModule ~, NONE(pMod, INVALID_VALUE) NONE(library, INVALID_HANDLE)
#define SIM_BEFORE_cuLibraryLoadData ~, NONE(library, INVALID_VALUE) NONE(code, INVALID_VALUE)
#define SIM_BEFORE_cuLibraryLoadFromFile ~, NONE(library, INVALID_VALUE) NONE(fileName, INVALID_VALUE)
#define SIM_BEFORE_cuLibraryUnload ~, NONE(library, INVALID_HANDLE)
#define SIM_BEFORE_cuLinkAddData ~, NONE(state, INVALID_HANDLE)
#define SIM_BEFORE_cuLinkAddData_v2 ~, NONE(state, INVALID_HANDLE)
#define SIM_BEFORE_cuLinkAddFile ~, NONE(state, INVALID_HANDLE)
#define SIM_BEFORE_cuLinkAddFile_v2 ~, NONE(state, INVALID_HANDLE)
#define SIM_BEFORE_cuLinkDestroy ~, NONE(state, INVALID_HANDLE)
#define SIM_BEFORE_cuLinkComplete ~, NONE(state, INVALID_HANDLE) NONE(cubinOut, INVALID_VALUE)
#define SIM_BEFORE_cuModuleEnumerateFunctions ~, NONE(functions, INVALID_VALUE) NONE(mod, INVALID_HANDLE)
#define SIM_BEFORE_cuModuleGetFunctionCount ~, NONE(count, INVALID_VALUE) NONE(mod, INVALID_HANDLE)
#define SIM_BEFORE_cuOccupancyMaxActiveClusters                                                                        \
  ~, NONE(numClusters, INVALID_VALUE) NONE(func, INVALID_VALUE) NONE(config, INVALID_VALUE)
#define SIM_BEFORE_cuOccupancyMaxPotentialClusterSize                                                                  \
  ~, NONE(clusterSize, INVALID_VALUE) NONE(func, INVALID_VALUE) NONE(config, INVALID_VALUE)

/* graphs: nodes that cannot be, and handles of none */
#define SIM_BEFORE_cuGraphAddBatchMemOpNode ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphAddDependencies ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphAddDependencies_v2 ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphAddEmptyNode ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphAddEventRecordNode ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphAddEventWaitNode ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphAddExternalSemaphoresSignalNode ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphAddExternalSemaphoresWaitNode ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphAddHostNode ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphAddNode ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphAddNode_v2 ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphBatchMemOpNodeGetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphBatchMemOpNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphDebugDotPrint ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphEventRecordNodeGetEvent ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphEventRecordNodeSetEvent ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphEventWaitNodeGetEvent ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphEventWaitNodeSetEvent ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExecBatchMemOpNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExecChildGraphNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExecEventRecordNodeSetEvent ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExecEventWaitNodeSetEvent ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExecExternalSemaphoresSignalNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExecExternalSemaphoresWaitNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExecHostNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExecKernelNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExecKernelNodeSetParams_v2 ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExecNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExternalSemaphoresSignalNodeGetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExternalSemaphoresSignalNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExternalSemaphoresWaitNodeGetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphExternalSemaphoresWaitNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphHostNodeGetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphHostNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphMemAllocNodeGetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphMemFreeNodeGetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphMemcpyNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphMemsetNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphNodeGetEnabled ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphNodeSetEnabled ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphNodeSetParams ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphReleaseUserObject ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphRemoveDependencies ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphRemoveDependencies_v2 ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphRetainUserObject ~, ANSWER(INVALID_VALUE)
#define SIM_BEFORE_cuGraphConditionalHandleCreate                                                                      \
  ~, NONE(pHandle_out, INVALID_VALUE) NONE(hGraph, INVALID_VALUE) ANSWER(INVALID_CONTEXT)
#define SIM_BEFORE_cuGraphExecMemcpyNodeSetParams ~, NONE(ctx, INVALID_VALUE) ANSWER(CONTEXT_IS_DESTROYED)
#define SIM_BEFORE_cuGraphExecMemsetNodeSetParams ~, NONE(ctx, INVALID_VALUE) ANSWER(CONTEXT_IS_DESTROYED)
#define SIM_BEFORE_cuGraphExecUpdate ~, CLEAR(hErrorNode_out) CLEAR(updateResult_out)
#define SIM_BEFORE_cuGraphExecUpdate_v2 ~, CLEAR_UPDATE(resultInfo)
#define SIM_BEFORE_cuGraphInstantiate ~, CLEAR(phErrorNode) if (bufferSize) CLEAR(logBuffer)
#define SIM_BEFORE_cuGraphInstantiate_v2 ~, CLEAR(phErrorNode) if (bufferSize) CLEAR(logBuffer)
#define SIM_BEFORE_cuGraphInstantiateWithFlags                                                                         \
  ~, WRONG(flags & ~(INSTANTIATE_FLAGS ^ CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD), INVALID_VALUE)
#define SIM_BEFORE_cuGraphInstantiateWithParams                                                                        \
  ~, NONE(instantiateParams, INVALID_VALUE) NOT_INSTANTIATED(instantiateParams)                                        \
         WRONG(instantiateParams->flags & ~INSTANTIATE_FLAGS, INVALID_VALUE)
#define SIM_BEFORE_cuGraphInstantiateWithParams_ptsz                                                                   \
  ~, NONE(instantiateParams, INVALID_VALUE) NOT_INSTANTIATED(instantiateParams)                                        \
         WRONG(instantiateParams->flags & ~INSTANTIATE_FLAGS, INVALID_VALUE)
#define SIM_BEFORE_cuGraphKernelNodeGetParams ~, NONE(hNode, INVALID_VALUE) NONE(nodeParams, INVALID_VALUE)
#define SIM_BEFORE_cuGraphKernelNodeGetParams_v2 ~, NONE(hNode, INVALID_VALUE) NONE(nodeParams, INVALID_VALUE)
#define SIM_BEFORE_cuGraphKernelNodeSetParams ~, NONE(hNode, INVALID_VALUE)
#define SIM_BEFORE_cuGraphKernelNodeSetParams_v2 ~, NONE(hNode, INVALID_VALUE)

/* EGL */
#define SIM_BEFORE_cuEGLStreamConsumerAcquireFrame ~, NONE(conn, INVALID_HANDLE)
#define SIM_BEFORE_cuEGLStreamConsumerConnect ~, NONE(stream, INVALID_HANDLE)
#define SIM_BEFORE_cuEGLStreamConsumerConnectWithFlags ~, NONE(stream, INVALID_HANDLE)
#define SIM_BEFORE_cuEGLStreamConsumerDisconnect ~, NONE(conn, INVALID_HANDLE)
#define SIM_BEFORE_cuEGLStreamConsumerReleaseFrame ~, NONE(conn, INVALID_HANDLE)
#define SIM_BEFORE_cuEGLStreamProducerConnect ~, NONE(stream, INVALID_HANDLE)
#define SIM_BEFORE_cuEGLStreamProducerDisconnect ~, NONE(conn, INVALID_HANDLE)
#define SIM_BEFORE_cuEGLStreamProducerPresentFrame ~, NONE(conn, INVALID_HANDLE)
#define SIM_BEFORE_cuEGLStreamProducerReturnFrame ~, NONE(conn, INVALID_HANDLE)

#endif
