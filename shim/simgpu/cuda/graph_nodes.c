/*
 * graph_nodes.c - what nodes are made from and how their work is set and read. Called by programs; the setters also by
 * graph_exec.c (updates of executables) and capture.c.
 */
#include "graph.h"
#include <stdlib.h>
#include <string.h>

static CUresult node_context(CUcontext handle, struct sim_context **ret_context) {
  if (handle == NULL) return sim_enter(ret_context);
  *ret_context = sim_context_find(handle);
  return *ret_context == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult sim_node_set_launch(struct sim_node *node, const struct sim_launch *launch, struct sim_context *context) {
  const struct sim_image_kernel *kernel = &launch->function->kernel;
  uint8_t *params = NULL;
  void **pointers = NULL;
  /* A node may outlive its module; the place of its function may then have been given to another one. */
  if (sim_function_find((CUfunction)launch->function) == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (launch->params != NULL && launch->param_bytes != kernel->param_bytes) return CUDA_ERROR_INVALID_HANDLE;
  if (launch->params != NULL) {
    params = malloc(kernel->param_bytes);
    pointers = calloc(kernel->param_count + 1, sizeof *pointers);
    if (params == NULL || pointers == NULL) {
      free(params);
      free(pointers);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(params, launch->params, kernel->param_bytes);
    for (uint32_t i = 0; i < kernel->param_count; i++) pointers[i] = params + kernel->params[i].offset_bytes;
  }
  struct sim_launch copy = *launch;
  sim_node_drop_work(node);
  copy.params = params;
  node->kernel.launch = copy;
  node->kernel.pointers = pointers;
  node->context = context;
  return CUDA_SUCCESS;
}

CUresult sim_node_set_kernel(struct sim_node *node, const CUDA_KERNEL_NODE_PARAMS *params) {
  struct sim_context *context;
  struct sim_launch launch;
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = node_context(params->ctx, &context);
  if (result != CUDA_SUCCESS) return result;
  const unsigned grid[3] = {params->gridDimX, params->gridDimY, params->gridDimZ};
  const unsigned block[3] = {params->blockDimX, params->blockDimY, params->blockDimZ};
  CUfunction function = params->func != NULL ? params->func : (CUfunction)params->kern;
  result = sim_launch_make(function, grid, block, params->sharedMemBytes, params->kernelParams, params->extra, &launch);
  if (result != CUDA_SUCCESS) return result;
  if (launch.function->module != NULL) context = launch.function->module->context;
  result = sim_node_set_launch(node, &launch, context);
  free(launch.params);
  return result;
}

/* Device memory that a node names must be there when it is named. Unified addresses may be plain host memory. */
static bool is_there(CUmemorytype type, CUdeviceptr address) {
  struct sim_allocation allocation;
  return type != CU_MEMORYTYPE_DEVICE || sim_memory_find(address, &allocation);
}

CUresult sim_node_set_copy(struct sim_node *node, const CUDA_MEMCPY3D *copy, CUcontext context) {
  if (copy == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (copy->srcMemoryType == CU_MEMORYTYPE_ARRAY && !sim_array_known(copy->srcArray)) return CUDA_ERROR_INVALID_VALUE;
  if (copy->dstMemoryType == CU_MEMORYTYPE_ARRAY && !sim_array_known(copy->dstArray)) return CUDA_ERROR_INVALID_VALUE;
  if (!is_there(copy->srcMemoryType, copy->srcDevice) || !is_there(copy->dstMemoryType, copy->dstDevice))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = node_context(context, &node->context);
  if (result == CUDA_SUCCESS) node->copy = *copy;
  return result;
}

CUresult sim_node_set_memset(struct sim_node *node, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context) {
  if (set == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (set->elementSize != 1 && set->elementSize != 2 && set->elementSize != 4) return CUDA_ERROR_INVALID_VALUE;
  if (!is_there(CU_MEMORYTYPE_DEVICE, set->dst)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = node_context(context, &node->context);
  if (result == CUDA_SUCCESS) node->set = *set;
  return result;
}

static CUresult set_host(struct sim_node *node, const CUDA_HOST_NODE_PARAMS *host) {
  if (host == NULL || host->fn == NULL) return CUDA_ERROR_INVALID_VALUE;
  node->host = *host;
  return CUDA_SUCCESS;
}

static CUresult set_child(struct sim_node *node, CUgraph handle) {
  struct sim_graph *graph = sim_graph_find(handle), *copy;
  if (graph == NULL || graph == node->graph) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = sim_graph_copy(graph, &copy);
  if (result != CUDA_SUCCESS) return result;
  sim_node_drop_work(node);
  copy->owned = true;
  node->child = copy;
  return CUDA_SUCCESS;
}

static CUresult set_event(struct sim_node *node, CUevent event) {
  if (sim_event_find(event) == NULL) return CUDA_ERROR_INVALID_VALUE;
  node->event = event;
  return CUDA_SUCCESS;
}

static CUresult set_free(struct sim_node *node, CUdeviceptr address) {
  if (address == 0) return CUDA_ERROR_INVALID_VALUE;
  node->address = address;
  return CUDA_SUCCESS;
}

CUresult sim_node_set_any(struct sim_node *node, CUgraphNodeParams *params) {
  switch (node->type) {
  case CU_GRAPH_NODE_TYPE_KERNEL: /* v2 and v3 of the parameters have the same layout */
    return sim_node_set_kernel(node, (const CUDA_KERNEL_NODE_PARAMS *)&params->kernel);
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    return sim_node_set_copy(node, &params->memcpy.copyParams, params->memcpy.copyCtx);
  case CU_GRAPH_NODE_TYPE_MEMSET: /* v1 is the head of v2 */
    return sim_node_set_memset(node, (const CUDA_MEMSET_NODE_PARAMS *)&params->memset, params->memset.ctx);
  case CU_GRAPH_NODE_TYPE_HOST:
    return set_host(node, (const CUDA_HOST_NODE_PARAMS *)&params->host);
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return set_child(node, params->graph.graph);
  case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    return set_event(node, params->eventWait.event);
  case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    return set_event(node, params->eventRecord.event);
  case CU_GRAPH_NODE_TYPE_MEM_ALLOC: /* v1 and v2 have the same layout */
    return sim_node_set_alloc(node, (CUDA_MEM_ALLOC_NODE_PARAMS *)&params->alloc);
  case CU_GRAPH_NODE_TYPE_MEM_FREE:
    return set_free(node, params->free.dptr);
  case CU_GRAPH_NODE_TYPE_EMPTY:
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_NOT_SUPPORTED;
  }
}

static CUresult finish(struct sim_node *node, CUresult result, CUgraphNode *ret_node) {
  if (result != CUDA_SUCCESS)
    sim_node_free(node);
  else
    *ret_node = (CUgraphNode)node;
  return result;
}

static CUresult begin(CUgraphNode *ret_handle, CUgraph handle, CUgraphNodeType type, const CUgraphNode *dependencies,
                      size_t count, struct sim_node **ret_node) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || ret_handle == NULL || (count != 0 && dependencies == NULL)) return CUDA_ERROR_INVALID_VALUE;
  return sim_node_make(graph, type, (struct sim_node *const *)dependencies, count, ret_node);
}

/* cuGraphAdd<...>Node: the head of the arguments is the same in all. */
#define ADD(name, type, work, ...)                                                                                     \
  SIM_PUBLIC CUresult name(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,                      \
                           size_t count __VA_OPT__(, ) __VA_ARGS__) {                                                  \
    struct sim_node *node;                                                                                             \
    CUresult result = begin(ret_node, graph, type, dependencies, count, &node);                                        \
    return result != CUDA_SUCCESS ? result : finish(node, work, ret_node);                                             \
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

ADD(cuGraphAddEmptyNode, CU_GRAPH_NODE_TYPE_EMPTY, CUDA_SUCCESS)
ADD(cuGraphAddKernelNode, CU_GRAPH_NODE_TYPE_KERNEL, set_kernel_v1(node, params),
    const CUDA_KERNEL_NODE_PARAMS_v1 *params)
ADD(cuGraphAddKernelNode_v2, CU_GRAPH_NODE_TYPE_KERNEL, sim_node_set_kernel(node, params),
    const CUDA_KERNEL_NODE_PARAMS *params)
ADD(cuGraphAddMemcpyNode, CU_GRAPH_NODE_TYPE_MEMCPY, sim_node_set_copy(node, copy, context), const CUDA_MEMCPY3D *copy,
    CUcontext context)
ADD(cuGraphAddMemsetNode, CU_GRAPH_NODE_TYPE_MEMSET, sim_node_set_memset(node, set, context),
    const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context)
ADD(cuGraphAddHostNode, CU_GRAPH_NODE_TYPE_HOST, set_host(node, host), const CUDA_HOST_NODE_PARAMS *host)
ADD(cuGraphAddChildGraphNode, CU_GRAPH_NODE_TYPE_GRAPH, set_child(node, child), CUgraph child)
ADD(cuGraphAddEventRecordNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, set_event(node, event), CUevent event)
ADD(cuGraphAddEventWaitNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, set_event(node, event), CUevent event)

ADD(cuGraphAddMemAllocNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, sim_node_set_alloc(node, params),
    CUDA_MEM_ALLOC_NODE_PARAMS *params)
ADD(cuGraphAddMemFreeNode, CU_GRAPH_NODE_TYPE_MEM_FREE, set_free(node, address), CUdeviceptr address)

SIM_PUBLIC CUresult cuGraphAddNode_v2(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                                      const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params) {
  (void)data;
  struct sim_node *node;
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = begin(ret_node, graph, params->type, dependencies, count, &node);
  return result != CUDA_SUCCESS ? result : finish(node, sim_node_set_any(node, params), ret_node);
}

SIM_PUBLIC CUresult cuGraphAddNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                   CUgraphNodeParams *params) {
  return cuGraphAddNode_v2(ret_node, graph, dependencies, NULL, count, params);
}

static struct sim_node *of_type(CUgraphNode handle, CUgraphNodeType type) {
  struct sim_node *node = sim_node_find(handle);
  return node != NULL && node->type == type ? node : NULL;
}

SIM_PUBLIC CUresult cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams *params) {
  struct sim_node *node = params == NULL ? NULL : of_type(handle, params->type);
  return node == NULL ? CUDA_ERROR_INVALID_VALUE : sim_node_set_any(node, params);
}

/* Get and Set of one kind of node. */
#define GET(name, node_type, out_type, expression)                                                                     \
  SIM_PUBLIC CUresult name(CUgraphNode handle, out_type *ret_value) {                                                  \
    struct sim_node *node = of_type(handle, node_type);                                                                \
    if (node == NULL || ret_value == NULL) return CUDA_ERROR_INVALID_VALUE;                                            \
    *ret_value = (expression);                                                                                         \
    return CUDA_SUCCESS;                                                                                               \
  }
#define SET(name, node_type, in_type, work)                                                                            \
  SIM_PUBLIC CUresult name(CUgraphNode handle, in_type value) {                                                        \
    struct sim_node *node = of_type(handle, node_type);                                                                \
    return node == NULL ? CUDA_ERROR_INVALID_VALUE : (work);                                                           \
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

GET(cuGraphKernelNodeGetParams, CU_GRAPH_NODE_TYPE_KERNEL, CUDA_KERNEL_NODE_PARAMS_v1, read_kernel_v1(node))
GET(cuGraphKernelNodeGetParams_v2, CU_GRAPH_NODE_TYPE_KERNEL, CUDA_KERNEL_NODE_PARAMS, read_kernel(node))
SET(cuGraphKernelNodeSetParams, CU_GRAPH_NODE_TYPE_KERNEL, const CUDA_KERNEL_NODE_PARAMS_v1 *,
    set_kernel_v1(node, value))
SET(cuGraphKernelNodeSetParams_v2, CU_GRAPH_NODE_TYPE_KERNEL, const CUDA_KERNEL_NODE_PARAMS *,
    sim_node_set_kernel(node, value))
GET(cuGraphMemcpyNodeGetParams, CU_GRAPH_NODE_TYPE_MEMCPY, CUDA_MEMCPY3D, node->copy)
SET(cuGraphMemcpyNodeSetParams, CU_GRAPH_NODE_TYPE_MEMCPY, const CUDA_MEMCPY3D *,
    sim_node_set_copy(node, value, (CUcontext)node->context))
GET(cuGraphMemsetNodeGetParams, CU_GRAPH_NODE_TYPE_MEMSET, CUDA_MEMSET_NODE_PARAMS, node->set)
SET(cuGraphMemsetNodeSetParams, CU_GRAPH_NODE_TYPE_MEMSET, const CUDA_MEMSET_NODE_PARAMS *,
    sim_node_set_memset(node, value, (CUcontext)node->context))
GET(cuGraphHostNodeGetParams, CU_GRAPH_NODE_TYPE_HOST, CUDA_HOST_NODE_PARAMS, node->host)
SET(cuGraphHostNodeSetParams, CU_GRAPH_NODE_TYPE_HOST, const CUDA_HOST_NODE_PARAMS *, set_host(node, value))
GET(cuGraphChildGraphNodeGetGraph, CU_GRAPH_NODE_TYPE_GRAPH, CUgraph, (CUgraph)node->child)
GET(cuGraphEventRecordNodeGetEvent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, CUevent, node->event)
SET(cuGraphEventRecordNodeSetEvent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, CUevent, set_event(node, value))
GET(cuGraphEventWaitNodeGetEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CUevent, node->event)
SET(cuGraphEventWaitNodeSetEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CUevent, set_event(node, value))
GET(cuGraphMemAllocNodeGetParams, CU_GRAPH_NODE_TYPE_MEM_ALLOC, CUDA_MEM_ALLOC_NODE_PARAMS, node->memory.params)
GET(cuGraphMemFreeNodeGetParams, CU_GRAPH_NODE_TYPE_MEM_FREE, CUdeviceptr, node->address)
