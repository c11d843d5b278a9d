/*
 * graph_node.c - nodes of any kind, from parameters in the runtime's form. The driver's form is the same but for
 * kernels, which the runtime names by their host functions, copies, and what works in a context.
 */
#include "simcuda/cudart/graph_node.h"
#include "simcuda/cudart/copy_shape.h"
#include <string.h>

static cudaError_t read_params(const struct sc_driver *driver, const struct cudaGraphNodeParams *from,
                               CUgraphNodeParams *ret_params) {
  CUcontext context;
  cudaError_t error = (cudaError_t)driver->cuCtxGetCurrent(&context);
  if (error != cudaSuccess) return error;
  _Static_assert(sizeof *from == sizeof *ret_params, "both are of the same layout");
  memcpy(ret_params, from, sizeof *from);
  switch (from->type) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    return sc_read_kernel_node(driver, &from->kernel, &ret_params->kernel);
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    ret_params->memcpy = (CUDA_MEMCPY_NODE_PARAMS){.flags = from->memcpy.flags, .copyCtx = context};
    return sc_read_copy(driver, &from->memcpy.copyParams, &ret_params->memcpy.copyParams);
  case CU_GRAPH_NODE_TYPE_MEMSET:
    ret_params->memset.ctx = context;
    return cudaSuccess;
  case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    ret_params->conditional.ctx = context;
    return cudaSuccess;
  default:
    return cudaSuccess;
  }
}

/* The driver's answers are in the program's structure as well. */
static void return_answers(const CUgraphNodeParams *from, struct cudaGraphNodeParams *ret_params) {
  CUgraphNodeParams *same = (CUgraphNodeParams *)ret_params;
  if (from->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) same->conditional.phGraph_out = from->conditional.phGraph_out;
  if (from->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) same->alloc.dptr = from->alloc.dptr;
}

cudaError_t sc_add_node(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                        const CUgraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *params) {
  const struct sc_driver *driver;
  CUgraphNodeParams wanted;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess && params == NULL) error = cudaErrorInvalidValue;
  if (error == cudaSuccess) error = read_params(driver, params, &wanted);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuGraphAddNode_v2(ret_node, graph, dependencies, edges, count, &wanted);
  if (error == cudaSuccess) return_answers(&wanted, params);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaGraphNodeSetParams(CUgraphNode node, struct cudaGraphNodeParams *params) {
  const struct sc_driver *driver;
  CUgraphNodeParams wanted;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess && params == NULL) error = cudaErrorInvalidValue;
  if (error == cudaSuccess) error = read_params(driver, params, &wanted);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuGraphNodeSetParams(node, &wanted);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 struct cudaGraphNodeParams *params) {
  const struct sc_driver *driver;
  CUgraphNodeParams wanted;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess && params == NULL) error = cudaErrorInvalidValue;
  if (error == cudaSuccess) error = read_params(driver, params, &wanted);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuGraphExecNodeSetParams(exec, node, &wanted);
  return sc_end(error);
}
