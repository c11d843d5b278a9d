/* forms.c - entry points whose forms have changed, as CUDA 12 has them: the first ones, and later ones by their
 * numbers. */
#include "simcuda/cudart/graph_node.h"

#define VERSION 12080

SC_PUBLIC cudaError_t cudaRuntimeGetVersion(int *ret_version) {
  if (ret_version == NULL) return sc_end(cudaErrorInvalidValue);
  *ret_version = VERSION;
  return cudaSuccess;
}

SC_PUBLIC cudaError_t cudaGetDriverEntryPoint(const char *name, void **ret_function, unsigned long long flags,
                                              CUdriverProcAddressQueryResult *ret_status) {
  return sc_find_entry_point(name, ret_function, VERSION, flags, ret_status);
}

SC_PUBLIC cudaError_t cudaGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *ret_nodes, size_t *count) {
  return SC_CALL(cuGraphNodeGetDependencies, node, ret_nodes, count);
}

SC_PUBLIC cudaError_t cudaGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *ret_nodes, size_t *count) {
  return SC_CALL(cuGraphNodeGetDependentNodes, node, ret_nodes, count);
}

SC_PUBLIC cudaError_t cudaGraphGetEdges(CUgraph graph, CUgraphNode *ret_from, CUgraphNode *ret_to, size_t *count) {
  return SC_CALL(cuGraphGetEdges, graph, ret_from, ret_to, count);
}

SC_PUBLIC cudaError_t cudaGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                               size_t count) {
  return SC_CALL(cuGraphAddDependencies, graph, from, to, count);
}

SC_PUBLIC cudaError_t cudaGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                                  size_t count) {
  return SC_CALL(cuGraphRemoveDependencies, graph, from, to, count);
}

SC_PUBLIC cudaError_t cudaGraphAddNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                       size_t count, struct cudaGraphNodeParams *params) {
  return sc_add_node(ret_node, graph, dependencies, NULL, count, params);
}

SC_PUBLIC cudaError_t cudaStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *ret_status,
                                               unsigned long long *ret_id) {
  return SC_CALL(cuStreamGetCaptureInfo_v2, stream, ret_status, (cuuint64_t *)ret_id, NULL, NULL, NULL);
}

SC_PUBLIC cudaError_t cudaStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *ret_status,
                                                  unsigned long long *ret_id, CUgraph *ret_graph,
                                                  const CUgraphNode **ret_dependencies, size_t *ret_count) {
  return SC_CALL(cuStreamGetCaptureInfo_v2, stream, ret_status, (cuuint64_t *)ret_id, ret_graph, ret_dependencies,
                 ret_count);
}

SC_PUBLIC cudaError_t cudaStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies, size_t count,
                                                          unsigned flags) {
  return SC_CALL(cuStreamUpdateCaptureDependencies, stream, dependencies, count, flags);
}

SC_PUBLIC cudaError_t cudaMemPrefetchAsync(const void *pointer, size_t bytes, int device, CUstream stream) {
  return SC_CALL(cuMemPrefetchAsync, (CUdeviceptr)pointer, bytes, device, stream);
}

SC_PUBLIC cudaError_t cudaMemAdvise(const void *pointer, size_t bytes, CUmem_advise advice, int device) {
  return SC_CALL(cuMemAdvise, (CUdeviceptr)pointer, bytes, advice, device);
}

SC_PUBLIC cudaError_t cudaEventElapsedTime_v2(float *ret_ms, CUevent start, CUevent end) {
  return SC_CALL(cuEventElapsedTime, ret_ms, start, end);
}

/* ---- later forms, which are the only ones of CUDA 13 ---- */

SC_PUBLIC cudaError_t cudaGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *ret_nodes,
                                                      CUgraphEdgeData *ret_edges, size_t *count) {
  return SC_CALL(cuGraphNodeGetDependencies_v2, node, ret_nodes, ret_edges, count);
}

SC_PUBLIC cudaError_t cudaGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *ret_nodes,
                                                        CUgraphEdgeData *ret_edges, size_t *count) {
  return SC_CALL(cuGraphNodeGetDependentNodes_v2, node, ret_nodes, ret_edges, count);
}

SC_PUBLIC cudaError_t cudaGraphGetEdges_v2(CUgraph graph, CUgraphNode *ret_from, CUgraphNode *ret_to,
                                           CUgraphEdgeData *ret_edges, size_t *count) {
  return SC_CALL(cuGraphGetEdges_v2, graph, ret_from, ret_to, ret_edges, count);
}

SC_PUBLIC cudaError_t cudaGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                                  const CUgraphEdgeData *edges, size_t count) {
  return SC_CALL(cuGraphAddDependencies_v2, graph, from, to, edges, count);
}

SC_PUBLIC cudaError_t cudaGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                                     const CUgraphEdgeData *edges, size_t count) {
  return SC_CALL(cuGraphRemoveDependencies_v2, graph, from, to, edges, count);
}

SC_PUBLIC cudaError_t cudaStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
                                                             const CUgraphEdgeData *edges, size_t count,
                                                             unsigned flags) {
  return SC_CALL(cuStreamUpdateCaptureDependencies_v2, stream, dependencies, edges, count, flags);
}

SC_PUBLIC cudaError_t cudaMemPrefetchAsync_v2(const void *pointer, size_t bytes, CUmemLocation location, unsigned flags,
                                              CUstream stream) {
  return SC_CALL(cuMemPrefetchAsync_v2, (CUdeviceptr)pointer, bytes, location, flags, stream);
}

SC_PUBLIC cudaError_t cudaMemAdvise_v2(const void *pointer, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  return SC_CALL(cuMemAdvise_v2, (CUdeviceptr)pointer, bytes, advice, location);
}

SC_PUBLIC cudaError_t cudaStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *ret_status,
                                                  unsigned long long *ret_id, CUgraph *ret_graph,
                                                  const CUgraphNode **ret_dependencies,
                                                  const CUgraphEdgeData **ret_edges, size_t *ret_count) {
  return SC_CALL(cuStreamGetCaptureInfo_v3, stream, ret_status, (cuuint64_t *)ret_id, ret_graph, ret_dependencies,
                 ret_edges, ret_count);
}

SC_PUBLIC cudaError_t cudaGraphAddNode_v2(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *edges, size_t count,
                                          struct cudaGraphNodeParams *params) {
  return sc_add_node(ret_node, graph, dependencies, edges, count, params);
}
