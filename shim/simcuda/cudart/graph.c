/* graph.c - graphs: their nodes and edges, and the executable ones. Handles are the driver's. */
#include "simcuda/cudart/registry.h"
#include <string.h>

SC_PUBLIC cudaError_t cudaGraphCreate(CUgraph *ret_graph, unsigned flags) {
  return SC_CALL(cuGraphCreate, ret_graph, flags);
}

SC_PUBLIC cudaError_t cudaGraphDestroy(CUgraph graph) {
  return SC_CALL(cuGraphDestroy, graph);
}

SC_PUBLIC cudaError_t cudaGraphGetNodes(CUgraph graph, CUgraphNode *ret_nodes, size_t *count) {
  return SC_CALL(cuGraphGetNodes, graph, ret_nodes, count);
}

SC_PUBLIC cudaError_t cudaGraphGetRootNodes(CUgraph graph, CUgraphNode *ret_nodes, size_t *count) {
  return SC_CALL(cuGraphGetRootNodes, graph, ret_nodes, count);
}

SC_PUBLIC cudaError_t cudaGraphNodeGetType(CUgraphNode node, CUgraphNodeType *ret_type) {
  return SC_CALL(cuGraphNodeGetType, node, ret_type);
}

SC_PUBLIC cudaError_t cudaGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *ret_nodes, CUgraphEdgeData *ret_edges,
                                                   size_t *count) {
  return SC_CALL(cuGraphNodeGetDependencies_v2, node, ret_nodes, ret_edges, count);
}

SC_PUBLIC cudaError_t cudaGraphDebugDotPrint(CUgraph graph, const char *path, unsigned flags) {
  return SC_CALL(cuGraphDebugDotPrint, graph, path, flags);
}

SC_PUBLIC cudaError_t cudaGraphConditionalHandleCreate(CUgraphConditionalHandle *ret_handle, CUgraph graph,
                                                       unsigned default_value, unsigned flags) {
  const struct sc_driver *driver;
  CUcontext context;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuCtxGetCurrent(&context);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuGraphConditionalHandleCreate(ret_handle, graph, context, default_value, flags);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaGraphInstantiate(CUgraphExec *ret_exec, CUgraph graph, unsigned long long flags) {
  return SC_CALL(cuGraphInstantiateWithFlags, ret_exec, graph, flags);
}

SC_PUBLIC cudaError_t cudaGraphInstantiateWithFlags(CUgraphExec *ret_exec, CUgraph graph, unsigned long long flags) {
  return SC_CALL(cuGraphInstantiateWithFlags, ret_exec, graph, flags);
}

SC_PUBLIC cudaError_t cudaGraphUpload(CUgraphExec exec, CUstream stream) {
  return SC_CALL(cuGraphUpload, exec, stream);
}

SC_PUBLIC cudaError_t cudaGraphLaunch(CUgraphExec exec, CUstream stream) {
  return SC_CALL(cuGraphLaunch, exec, stream);
}

SC_PUBLIC cudaError_t cudaGraphExecDestroy(CUgraphExec exec) {
  return SC_CALL(cuGraphExecDestroy, exec);
}
