/* graph.c - graphs: their nodes and edges, and the executable ones. Handles are the driver's. */
#include "simcuda/cudart/runtime.h"

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

SC_PUBLIC cudaError_t cudaGraphDestroyNode(CUgraphNode node) {
  return SC_CALL(cuGraphDestroyNode, node);
}

SC_PUBLIC cudaError_t cudaGraphClone(CUgraph *ret_graph, CUgraph graph) {
  return SC_CALL(cuGraphClone, ret_graph, graph);
}

SC_PUBLIC cudaError_t cudaGraphNodeFindInClone(CUgraphNode *ret_node, CUgraphNode node, CUgraph clone) {
  return SC_CALL(cuGraphNodeFindInClone, ret_node, node, clone);
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

SC_PUBLIC cudaError_t cudaGraphInstantiateWithParams(CUgraphExec *ret_exec, CUgraph graph,
                                                     CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  return SC_CALL(cuGraphInstantiateWithParams, ret_exec, graph, params);
}

SC_PUBLIC cudaError_t cudaGraphExecGetFlags(CUgraphExec exec, unsigned long long *ret_flags) {
  return SC_CALL(cuGraphExecGetFlags, exec, (cuuint64_t *)ret_flags);
}

SC_PUBLIC cudaError_t cudaGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *ret_info) {
  return SC_CALL(cuGraphExecUpdate_v2, exec, graph, ret_info);
}

SC_PUBLIC cudaError_t cudaGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned *ret_is_enabled) {
  return SC_CALL(cuGraphNodeGetEnabled, exec, node, ret_is_enabled);
}

SC_PUBLIC cudaError_t cudaGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned is_enabled) {
  return SC_CALL(cuGraphNodeSetEnabled, exec, node, is_enabled);
}

/* ---- objects of the program that live as long as graphs ---- */

SC_PUBLIC cudaError_t cudaUserObjectCreate(CUuserObject *ret_object, void *pointer, CUhostFn destroy, unsigned count,
                                           unsigned flags) {
  return SC_CALL(cuUserObjectCreate, ret_object, pointer, destroy, count, flags);
}

SC_PUBLIC cudaError_t cudaUserObjectRetain(CUuserObject object, unsigned count) {
  return SC_CALL(cuUserObjectRetain, object, count);
}

SC_PUBLIC cudaError_t cudaUserObjectRelease(CUuserObject object, unsigned count) {
  return SC_CALL(cuUserObjectRelease, object, count);
}

SC_PUBLIC cudaError_t cudaGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
  return SC_CALL(cuGraphRetainUserObject, graph, object, count, flags);
}

SC_PUBLIC cudaError_t cudaGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
  return SC_CALL(cuGraphReleaseUserObject, graph, object, count);
}
