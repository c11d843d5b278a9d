/* graph_node_copy.c - nodes of graphs that copy and fill. */
#include "simcuda/cudart/copy_shape.h"
#include "simcuda/cudart/registry.h"

static cudaError_t begin(const struct sc_driver **ret_driver, CUcontext *ret_context) {
  cudaError_t error = sc_enter(ret_driver);
  return error == cudaSuccess ? (cudaError_t)(*ret_driver)->cuCtxGetCurrent(ret_context) : error;
}

static cudaError_t begin_copy(const struct sc_driver **ret_driver, const struct cudaMemcpy3DParms *params,
                              CUDA_MEMCPY3D *ret_copy, CUcontext *ret_context) {
  cudaError_t error = begin(ret_driver, ret_context);
  if (error == cudaSuccess && params == NULL) error = cudaErrorInvalidValue;
  return error == cudaSuccess ? sc_read_copy(*ret_driver, params, ret_copy) : error;
}

SC_PUBLIC cudaError_t cudaGraphAddMemcpyNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                             size_t count, const struct cudaMemcpy3DParms *params) {
  const struct sc_driver *driver;
  CUDA_MEMCPY3D copy;
  CUcontext context;
  cudaError_t error = begin_copy(&driver, params, &copy, &context);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuGraphAddMemcpyNode(ret_node, graph, dependencies, count, &copy, context);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaGraphMemcpyNodeSetParams(CUgraphNode node, const struct cudaMemcpy3DParms *params) {
  const struct sc_driver *driver;
  CUDA_MEMCPY3D copy;
  CUcontext context;
  cudaError_t error = begin_copy(&driver, params, &copy, &context);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuGraphMemcpyNodeSetParams(node, &copy);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                       const struct cudaMemcpy3DParms *params) {
  const struct sc_driver *driver;
  CUDA_MEMCPY3D copy;
  CUcontext context;
  cudaError_t error = begin_copy(&driver, params, &copy, &context);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context);
  return sc_end(error);
}

/* ---- one row of bytes ---- */

static struct cudaMemcpy3DParms describe_row(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  return (struct cudaMemcpy3DParms){.srcPtr = {(void *)from, bytes, bytes, 1},
                                    .dstPtr = {to, bytes, bytes, 1},
                                    .extent = {bytes, 1, 1},
                                    .kind = kind};
}

SC_PUBLIC cudaError_t cudaGraphAddMemcpyNode1D(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                               size_t count, void *to, const void *from, size_t bytes,
                                               enum cudaMemcpyKind kind) {
  struct cudaMemcpy3DParms row = describe_row(to, from, bytes, kind);
  return cudaGraphAddMemcpyNode(ret_node, graph, dependencies, count, &row);
}

SC_PUBLIC cudaError_t cudaGraphMemcpyNodeSetParams1D(CUgraphNode node, void *to, const void *from, size_t bytes,
                                                     enum cudaMemcpyKind kind) {
  struct cudaMemcpy3DParms row = describe_row(to, from, bytes, kind);
  return cudaGraphMemcpyNodeSetParams(node, &row);
}

SC_PUBLIC cudaError_t cudaGraphExecMemcpyNodeSetParams1D(CUgraphExec exec, CUgraphNode node, void *to, const void *from,
                                                         size_t bytes, enum cudaMemcpyKind kind) {
  struct cudaMemcpy3DParms row = describe_row(to, from, bytes, kind);
  return cudaGraphExecMemcpyNodeSetParams(exec, node, &row);
}

/* ---- variables ---- */

SC_PUBLIC cudaError_t cudaGraphAddMemcpyNodeToSymbol(CUgraphNode *ret_node, CUgraph graph,
                                                     const CUgraphNode *dependencies, size_t count, const void *symbol,
                                                     const void *from, size_t bytes, size_t offset,
                                                     enum cudaMemcpyKind kind) {
  void *to;
  cudaError_t error = sc_locate_variable(symbol, offset, bytes, &to);
  return error == cudaSuccess ? cudaGraphAddMemcpyNode1D(ret_node, graph, dependencies, count, to, from, bytes, kind)
                              : error;
}

SC_PUBLIC cudaError_t cudaGraphAddMemcpyNodeFromSymbol(CUgraphNode *ret_node, CUgraph graph,
                                                       const CUgraphNode *dependencies, size_t count, void *to,
                                                       const void *symbol, size_t bytes, size_t offset,
                                                       enum cudaMemcpyKind kind) {
  void *from;
  cudaError_t error = sc_locate_variable(symbol, offset, bytes, &from);
  return error == cudaSuccess ? cudaGraphAddMemcpyNode1D(ret_node, graph, dependencies, count, to, from, bytes, kind)
                              : error;
}

SC_PUBLIC cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(CUgraphNode node, const void *symbol, const void *from,
                                                           size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
  void *to;
  cudaError_t error = sc_locate_variable(symbol, offset, bytes, &to);
  return error == cudaSuccess ? cudaGraphMemcpyNodeSetParams1D(node, to, from, bytes, kind) : error;
}

SC_PUBLIC cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(CUgraphNode node, void *to, const void *symbol,
                                                             size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
  void *from;
  cudaError_t error = sc_locate_variable(symbol, offset, bytes, &from);
  return error == cudaSuccess ? cudaGraphMemcpyNodeSetParams1D(node, to, from, bytes, kind) : error;
}

SC_PUBLIC cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(CUgraphExec exec, CUgraphNode node, const void *symbol,
                                                               const void *from, size_t bytes, size_t offset,
                                                               enum cudaMemcpyKind kind) {
  void *to;
  cudaError_t error = sc_locate_variable(symbol, offset, bytes, &to);
  return error == cudaSuccess ? cudaGraphExecMemcpyNodeSetParams1D(exec, node, to, from, bytes, kind) : error;
}

SC_PUBLIC cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(CUgraphExec exec, CUgraphNode node, void *to,
                                                                 const void *symbol, size_t bytes, size_t offset,
                                                                 enum cudaMemcpyKind kind) {
  void *from;
  cudaError_t error = sc_locate_variable(symbol, offset, bytes, &from);
  return error == cudaSuccess ? cudaGraphExecMemcpyNodeSetParams1D(exec, node, to, from, bytes, kind) : error;
}

/* ---- fills: their parameters have the driver's layout ---- */

_Static_assert(sizeof(struct cudaMemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS), "both are of the same layout");

SC_PUBLIC cudaError_t cudaGraphAddMemsetNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                             size_t count, const struct cudaMemsetParams *params) {
  const struct sc_driver *driver;
  CUcontext context;
  cudaError_t error = begin(&driver, &context);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuGraphAddMemsetNode(ret_node, graph, dependencies, count,
                                                      (const CUDA_MEMSET_NODE_PARAMS *)params, context);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaGraphMemsetNodeGetParams(CUgraphNode node, struct cudaMemsetParams *ret_params) {
  return SC_CALL(cuGraphMemsetNodeGetParams, node, (CUDA_MEMSET_NODE_PARAMS *)ret_params);
}

SC_PUBLIC cudaError_t cudaGraphMemsetNodeSetParams(CUgraphNode node, const struct cudaMemsetParams *params) {
  return SC_CALL(cuGraphMemsetNodeSetParams, node, (const CUDA_MEMSET_NODE_PARAMS *)params);
}

SC_PUBLIC cudaError_t cudaGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                       const struct cudaMemsetParams *params) {
  const struct sc_driver *driver;
  CUcontext context;
  cudaError_t error = begin(&driver, &context);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuGraphExecMemsetNodeSetParams(exec, node, (const CUDA_MEMSET_NODE_PARAMS *)params,
                                                                context);
  return sc_end(error);
}
