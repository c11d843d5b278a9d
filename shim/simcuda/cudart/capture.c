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

SC_PUBLIC cudaError_t cudaThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  return SC_CALL(cuThreadExchangeStreamCaptureMode, mode);
}
