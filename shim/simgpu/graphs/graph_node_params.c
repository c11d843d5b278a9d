/*
 * graph_node_params.c - the parameters of nodes: given when one is added, read and changed; attributes of kernel nodes.
 * Those of memory operations and semaphores are in graph_batch.c. Called by programs.
 */
#include "simgpu/graphs/graph.h"
#include "simgpu/graphs/graph_node.h"
#include "simgpu/modules/module.h"
#include "simgpu/process/process.h"
#include <string.h>

CUresult sim_node_set_any(struct sim_node *node, CUgraphNodeParams *params) {
  switch (node->type) {
  case CU_GRAPH_NODE_TYPE_KERNEL: /* v2 and v3 of the parameters have the same layout */
    return sim_node_set_kernel(node, (const CUDA_KERNEL_NODE_PARAMS *)&params->kernel);
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    return sim_node_set_copy(node, &params->memcpy.copyParams, params->memcpy.copyCtx);
  case CU_GRAPH_NODE_TYPE_MEMSET: /* v1 is the head of v2 */
    return sim_node_set_memset(node, (const CUDA_MEMSET_NODE_PARAMS *)&params->memset, params->memset.ctx);
  case CU_GRAPH_NODE_TYPE_HOST:
    return sim_node_set_host(node, (const CUDA_HOST_NODE_PARAMS *)&params->host);
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return sim_node_set_child(node, params->graph.graph);
  case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    return sim_node_set_event(node, params->eventWait.event);
  case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    return sim_node_set_event(node, params->eventRecord.event);
  case CU_GRAPH_NODE_TYPE_MEM_ALLOC: /* v1 and v2 have the same layout */
    return sim_node_set_alloc(node, (CUDA_MEM_ALLOC_NODE_PARAMS *)&params->alloc);
  case CU_GRAPH_NODE_TYPE_MEM_FREE:
    return sim_node_set_free(node, params->free.dptr);
  case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: /* both versions have the same layout, here and below */
    return sim_node_set_batch(node, (const CUDA_BATCH_MEM_OP_NODE_PARAMS *)&params->memOp);
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    return sim_node_set_signal(node, (const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *)&params->extSemSignal);
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    return sim_node_set_wait(node, (const CUDA_EXT_SEM_WAIT_NODE_PARAMS *)&params->extSemWait);
  case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    return sim_node_set_conditional(node, &params->conditional);
  case CU_GRAPH_NODE_TYPE_EMPTY:
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

/* The first ABI ends before the kernel and the context. */
static CUDA_KERNEL_NODE_PARAMS widen(const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  CUDA_KERNEL_NODE_PARAMS wide = {0};
  memcpy(&wide, params, sizeof *params);
  return wide;
}

static CUresult set_kernel_v1(struct sim_node *node, const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide = widen(params);
  return sim_node_set_kernel(node, &wide);
}

SIM_NODE_ADD(cuGraphAddEmptyNode, CU_GRAPH_NODE_TYPE_EMPTY, CUDA_SUCCESS)
SIM_NODE_ADD(cuGraphAddKernelNode, CU_GRAPH_NODE_TYPE_KERNEL, set_kernel_v1(node, params),
             const CUDA_KERNEL_NODE_PARAMS_v1 *params)
SIM_NODE_ADD(cuGraphAddKernelNode_v2, CU_GRAPH_NODE_TYPE_KERNEL, sim_node_set_kernel(node, params),
             const CUDA_KERNEL_NODE_PARAMS *params)
SIM_NODE_ADD(cuGraphAddMemcpyNode, CU_GRAPH_NODE_TYPE_MEMCPY, sim_node_set_copy(node, copy, context),
             const CUDA_MEMCPY3D *copy, CUcontext context)
SIM_NODE_ADD(cuGraphAddMemsetNode, CU_GRAPH_NODE_TYPE_MEMSET, sim_node_set_memset(node, set, context),
             const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context)
SIM_NODE_ADD(cuGraphAddHostNode, CU_GRAPH_NODE_TYPE_HOST, sim_node_set_host(node, host),
             const CUDA_HOST_NODE_PARAMS *host)
SIM_NODE_ADD(cuGraphAddChildGraphNode, CU_GRAPH_NODE_TYPE_GRAPH, sim_node_set_child(node, child), CUgraph child)
SIM_NODE_ADD(cuGraphAddEventRecordNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, sim_node_set_event(node, event), CUevent event)
SIM_NODE_ADD(cuGraphAddEventWaitNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, sim_node_set_event(node, event), CUevent event)

SIM_NODE_ADD(cuGraphAddMemAllocNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, sim_node_set_alloc(node, params),
             CUDA_MEM_ALLOC_NODE_PARAMS *params)
SIM_NODE_ADD(cuGraphAddMemFreeNode, CU_GRAPH_NODE_TYPE_MEM_FREE, sim_node_set_free(node, address), CUdeviceptr address)

SIM_PUBLIC CUresult cuGraphAddNode_v2(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                      const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params) {
  struct sim_node *node;
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = sim_node_begin(ret_node, graph, params->type, dependencies, data == NULL ? count : 0, &node);
  if (result != CUDA_SUCCESS) return result;
  for (size_t i = 0; data != NULL && i < count && result == CUDA_SUCCESS; i++) {
    struct sim_node *on = sim_node_find(dependencies[i]);
    result = on == NULL || on->graph != node->graph ? CUDA_ERROR_INVALID_VALUE : sim_node_depend(node, on, &data[i]);
  }
  if (result == CUDA_SUCCESS) result = sim_node_set_any(node, params);
  return sim_node_finish(node, result, ret_node);
}

SIM_PUBLIC CUresult cuGraphAddNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                   CUgraphNodeParams *params) {
  return cuGraphAddNode_v2(ret_node, graph, dependencies, NULL, count, params);
}

SIM_PUBLIC CUresult cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams *params) {
  struct sim_node *node = params == NULL ? NULL : sim_node_of_type(handle, params->type);
  return node == NULL ? CUDA_ERROR_INVALID_VALUE : sim_node_set_any(node, params);
}

static CUDA_KERNEL_NODE_PARAMS read_kernel(const struct sim_node *node) {
  const struct sim_launch *launch = &node->kernel.launch;
  bool is_kernel = launch->function->module == NULL;
  return (CUDA_KERNEL_NODE_PARAMS){.func = is_kernel ? NULL : (CUfunction)launch->function,
                                   .gridDimX = launch->grid[0],
                                   .gridDimY = launch->grid[1],
                                   .gridDimZ = launch->grid[2],
                                   .blockDimX = launch->block[0],
                                   .blockDimY = launch->block[1],
                                   .blockDimZ = launch->block[2],
                                   .sharedMemBytes = launch->shared_bytes,
                                   .kernelParams = node->kernel.pointers,
                                   .kern = is_kernel ? (CUkernel)launch->function : NULL,
                                   .ctx = (CUcontext)node->context};
}

static CUDA_KERNEL_NODE_PARAMS_v1 read_kernel_v1(const struct sim_node *node) {
  CUDA_KERNEL_NODE_PARAMS wide = read_kernel(node);
  CUDA_KERNEL_NODE_PARAMS_v1 narrow;
  memcpy(&narrow, &wide, sizeof narrow);
  if (narrow.func == NULL) narrow.func = (CUfunction)wide.kern;
  return narrow;
}

SIM_NODE_GET(cuGraphKernelNodeGetParams, CU_GRAPH_NODE_TYPE_KERNEL, CUDA_KERNEL_NODE_PARAMS_v1, read_kernel_v1(node))
SIM_NODE_GET(cuGraphKernelNodeGetParams_v2, CU_GRAPH_NODE_TYPE_KERNEL, CUDA_KERNEL_NODE_PARAMS, read_kernel(node))
SIM_NODE_SET(cuGraphKernelNodeSetParams, CU_GRAPH_NODE_TYPE_KERNEL, const CUDA_KERNEL_NODE_PARAMS_v1 *,
             set_kernel_v1(node, value))
SIM_NODE_SET(cuGraphKernelNodeSetParams_v2, CU_GRAPH_NODE_TYPE_KERNEL, const CUDA_KERNEL_NODE_PARAMS *,
             sim_node_set_kernel(node, value))
SIM_NODE_GET(cuGraphMemcpyNodeGetParams, CU_GRAPH_NODE_TYPE_MEMCPY, CUDA_MEMCPY3D, node->copy)
SIM_NODE_SET(cuGraphMemcpyNodeSetParams, CU_GRAPH_NODE_TYPE_MEMCPY, const CUDA_MEMCPY3D *,
             sim_node_set_copy(node, value, (CUcontext)node->context))
SIM_NODE_GET(cuGraphMemsetNodeGetParams, CU_GRAPH_NODE_TYPE_MEMSET, CUDA_MEMSET_NODE_PARAMS, node->set)
SIM_NODE_SET(cuGraphMemsetNodeSetParams, CU_GRAPH_NODE_TYPE_MEMSET, const CUDA_MEMSET_NODE_PARAMS *,
             sim_node_set_memset(node, value, (CUcontext)node->context))
SIM_NODE_GET(cuGraphHostNodeGetParams, CU_GRAPH_NODE_TYPE_HOST, CUDA_HOST_NODE_PARAMS, node->host)
SIM_NODE_SET(cuGraphHostNodeSetParams, CU_GRAPH_NODE_TYPE_HOST, const CUDA_HOST_NODE_PARAMS *,
             sim_node_set_host(node, value))
SIM_NODE_GET(cuGraphChildGraphNodeGetGraph, CU_GRAPH_NODE_TYPE_GRAPH, CUgraph, (CUgraph)node->child)
SIM_NODE_GET(cuGraphEventRecordNodeGetEvent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, CUevent, node->event)
SIM_NODE_SET(cuGraphEventRecordNodeSetEvent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, CUevent, sim_node_set_event(node, value))
SIM_NODE_GET(cuGraphEventWaitNodeGetEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CUevent, node->event)
SIM_NODE_SET(cuGraphEventWaitNodeSetEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CUevent, sim_node_set_event(node, value))
SIM_NODE_GET(cuGraphMemAllocNodeGetParams, CU_GRAPH_NODE_TYPE_MEM_ALLOC, CUDA_MEM_ALLOC_NODE_PARAMS,
             node->memory.params)
SIM_NODE_GET(cuGraphMemFreeNodeGetParams, CU_GRAPH_NODE_TYPE_MEM_FREE, CUdeviceptr, node->address)

/* ---- attributes of kernel nodes ---- */

static struct sim_node *kernel_node(CUgraphNode handle) {
  struct sim_node *node = sim_node_find(handle);
  return node != NULL && node->type == CU_GRAPH_NODE_TYPE_KERNEL ? node : NULL;
}

SIM_PUBLIC CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID id,
                                                  const CUkernelNodeAttrValue *value) {
  struct sim_node *node = kernel_node(handle);
  if (node == NULL || value == NULL || (unsigned)id > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING)
    return CUDA_ERROR_INVALID_VALUE;
  return sim_node_set_attribute(node, id, value);
}

SIM_PUBLIC CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID id,
                                                  CUkernelNodeAttrValue *ret_value) {
  struct sim_node *node = kernel_node(handle);
  if (node == NULL || ret_value == NULL || (unsigned)id > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING)
    return CUDA_ERROR_INVALID_VALUE;
  *ret_value = sim_node_attribute(node, id);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  struct sim_node *node = kernel_node(to), *source = kernel_node(from);
  if (node == NULL || source == NULL) return CUDA_ERROR_INVALID_VALUE;
  return node == source ? CUDA_SUCCESS : sim_node_copy_attributes(node, source);
}
