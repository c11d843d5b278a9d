/* graph_node_kernel.c - kernel nodes of graphs, see graph_node.h. */
#include "simcuda/cudart/graph_node.h"

_Static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS_v3) == sizeof(CUDA_KERNEL_NODE_PARAMS), "both are of the same layout");

cudaError_t sc_read_kernel_node(const struct sc_driver *driver, const struct cudaKernelNodeParams *from,
                                CUDA_KERNEL_NODE_PARAMS_v3 *ret_params) {
  CUkernel kernel;
  if (from == NULL) return cudaErrorInvalidValue;
  cudaError_t error = sc_find_kernel(driver, from->func, &kernel);
  if (error != cudaSuccess) return error;
  *ret_params = (CUDA_KERNEL_NODE_PARAMS_v3){.func = (CUfunction)kernel,
                                             .gridDimX = from->gridDim.x,
                                             .gridDimY = from->gridDim.y,
                                             .gridDimZ = from->gridDim.z,
                                             .blockDimX = from->blockDim.x,
                                             .blockDimY = from->blockDim.y,
                                             .blockDimZ = from->blockDim.z,
                                             .sharedMemBytes = from->sharedMemBytes,
                                             .kernelParams = from->kernelParams,
                                             .extra = from->extra};
  return cudaSuccess;
}

static cudaError_t begin(const struct sc_driver **ret_driver, const struct cudaKernelNodeParams *params,
                         CUDA_KERNEL_NODE_PARAMS *ret_params) {
  cudaError_t error = sc_enter(ret_driver);
  return error == cudaSuccess ? sc_read_kernel_node(*ret_driver, params, (CUDA_KERNEL_NODE_PARAMS_v3 *)ret_params)
                              : error;
}

SC_PUBLIC cudaError_t cudaGraphAddKernelNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                             size_t count, const struct cudaKernelNodeParams *params) {
  const struct sc_driver *driver;
  CUDA_KERNEL_NODE_PARAMS wanted;
  cudaError_t error = begin(&driver, params, &wanted);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuGraphAddKernelNode_v2(ret_node, graph, dependencies, count, &wanted);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaGraphKernelNodeSetParams(CUgraphNode node, const struct cudaKernelNodeParams *params) {
  const struct sc_driver *driver;
  CUDA_KERNEL_NODE_PARAMS wanted;
  cudaError_t error = begin(&driver, params, &wanted);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuGraphKernelNodeSetParams_v2(node, &wanted);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                       const struct cudaKernelNodeParams *params) {
  const struct sc_driver *driver;
  CUDA_KERNEL_NODE_PARAMS wanted;
  cudaError_t error = begin(&driver, params, &wanted);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuGraphExecKernelNodeSetParams_v2(exec, node, &wanted);
  return sc_end(error);
}

/* The kernel is named as the program named it, where that is known. */
SC_PUBLIC cudaError_t cudaGraphKernelNodeGetParams(CUgraphNode node, struct cudaKernelNodeParams *ret_params) {
  CUDA_KERNEL_NODE_PARAMS params;
  if (ret_params == NULL) return sc_end(cudaErrorInvalidValue);
  cudaError_t error = SC_CALL(cuGraphKernelNodeGetParams_v2, node, &params);
  if (error != cudaSuccess) return error;
  *ret_params = (struct cudaKernelNodeParams){.func = params.kern == NULL ? (void *)params.func
                                                                          : (void *)sc_name_of_kernel(params.kern),
                                              .gridDim = {params.gridDimX, params.gridDimY, params.gridDimZ},
                                              .blockDim = {params.blockDimX, params.blockDimY, params.blockDimZ},
                                              .sharedMemBytes = params.sharedMemBytes,
                                              .kernelParams = params.kernelParams,
                                              .extra = params.extra};
  return cudaSuccess;
}

SC_PUBLIC cudaError_t cudaGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  return SC_CALL(cuGraphKernelNodeCopyAttributes, to, from);
}

SC_PUBLIC cudaError_t cudaGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                                      CUkernelNodeAttrValue *ret_value) {
  return SC_CALL(cuGraphKernelNodeGetAttribute, node, attribute, ret_value);
}

SC_PUBLIC cudaError_t cudaGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                                      const CUkernelNodeAttrValue *value) {
  return SC_CALL(cuGraphKernelNodeSetAttribute, node, attribute, value);
}
