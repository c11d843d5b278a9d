/* capture.c - streams whose work becomes a graph. */
#include "simcuda/cudart/runtime.h"

SC_PUBLIC cudaError_t cudaStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  return SC_CALL(cuStreamBeginCapture_v2, stream, mode);
}

SC_PUBLIC cudaError_t cudaStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                                    const CUgraphEdgeData *edges, size_t count,
                                                    CUstreamCaptureMode mode) {
  return SC_CALL(cuStreamBeginCaptureToGraph, stream, graph, dependencies, edges, count, mode);
}

SC_PUBLIC cudaError_t cudaStreamEndCapture(CUstream stream, CUgraph *ret_graph) {
  return SC_CALL(cuStreamEndCapture, stream, ret_graph);
}

SC_PUBLIC cudaError_t cudaStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret_status) {
  return SC_CALL(cuStreamIsCapturing, stream, ret_status);
}

SC_PUBLIC cudaError_t cudaStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *ret_status,
                                               unsigned long long *ret_id, CUgraph *ret_graph,
                                               const CUgraphNode **ret_dependencies, const CUgraphEdgeData **ret_edges,
                                               size_t *ret_count) {
  return SC_CALL(cuStreamGetCaptureInfo_v3, stream, ret_status, (cuuint64_t *)ret_id, ret_graph, ret_dependencies,
                 ret_edges, ret_count);
}

SC_PUBLIC cudaError_t cudaStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies,
                                                          const CUgraphEdgeData *edges, size_t count, unsigned flags) {
  return SC_CALL(cuStreamUpdateCaptureDependencies_v2, stream, dependencies, edges, count, flags);
}

SC_PUBLIC cudaError_t cudaThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  return SC_CALL(cuThreadExchangeStreamCaptureMode, mode);
}
