/*
 * graph_node_work.c - the work of kernel, copy, memset, host, event and child nodes: how it is set, copied and run.
 * Called by graph_node_params.c, graph_exec.c (updates of executables) and capture_work.c.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/arrays/array.h"
#include "simgpu/copies/bytes.h"
#include "simgpu/graphs/graph.h"
#include "simgpu/graphs/graph_node.h"
#include "simgpu/images/image.h"
#include "simgpu/modules/module.h"
#include "simgpu/process/current.h"
#include "simgpu/streams/stream.h"
#include <stdlib.h>
#include <string.h>

/* ---- kernels ---- */

static void drop_kernel(struct sim_node *node) {
  free(node->kernel.launch.params);
  free(node->kernel.pointers);
  memset(&node->kernel, 0, sizeof node->kernel);
}

static CUresult copy_kernel(struct sim_node *node, const struct sim_node *from) {
  return sim_node_set_launch(node, &from->kernel.launch, from->context);
}

static CUresult run_kernel(const struct sim_node *node, struct sim_stream *stream) {
  if (sim_function_find((CUfunction)node->kernel.launch.function) == NULL) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = sim_launch_compute(&node->kernel.launch);
  if (result != CUDA_SUCCESS) return result;
  const struct sim_launch *launch = &node->kernel.launch;
  sim_launch_use(launch, stream);
  return sim_submit_node(stream, sim_launch_work_of(launch, stream->context), sim_launch_meeting(launch));
}

static const struct sim_node_work kernel_work = {copy_kernel, drop_kernel, run_kernel};

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
  node->work = &kernel_work;
  node->kernel.launch = copy;
  node->kernel.pointers = pointers;
  node->context = context;
  return CUDA_SUCCESS;
}

CUresult sim_node_set_kernel(struct sim_node *node, const CUDA_KERNEL_NODE_PARAMS *params) {
  struct sim_context *context;
  struct sim_launch launch;
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = sim_node_context(params->ctx, &context);
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

/* ---- copies and memsets ---- */

static CUresult copy_copy(struct sim_node *node, const struct sim_node *from) {
  node->work = from->work;
  node->copy = from->copy;
  return CUDA_SUCCESS;
}

static CUresult run_copy(const struct sim_node *node, struct sim_stream *stream) {
  const CUDA_MEMCPY3D *copy = &node->copy;
  struct sim_copy_way way;
  CUresult result = sim_copy_bytes(copy, &way);
  return result == CUDA_SUCCESS ? sim_submit_copy(stream, way, copy->WidthInBytes * copy->Height * copy->Depth)
                                : result;
}

static const struct sim_node_work copy_work = {copy_copy, NULL, run_copy};

static CUresult copy_memset(struct sim_node *node, const struct sim_node *from) {
  node->work = from->work;
  node->set = from->set;
  return CUDA_SUCCESS;
}

static CUresult run_memset(const struct sim_node *node, struct sim_stream *stream) {
  const CUDA_MEMSET_NODE_PARAMS *set = &node->set;
  CUresult result = sim_set_bytes(set);
  return result == CUDA_SUCCESS ? sim_submit_memset(stream, set->width * set->height * set->elementSize) : result;
}

static const struct sim_node_work memset_work = {copy_memset, NULL, run_memset};

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
  CUresult result = sim_node_context(context, &node->context);
  if (result != CUDA_SUCCESS) return result;
  node->work = &copy_work;
  node->copy = *copy;
  return CUDA_SUCCESS;
}

CUresult sim_node_set_memset(struct sim_node *node, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context) {
  if (set == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (set->elementSize != 1 && set->elementSize != 2 && set->elementSize != 4) return CUDA_ERROR_INVALID_VALUE;
  if (!is_there(CU_MEMORYTYPE_DEVICE, set->dst)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = sim_node_context(context, &node->context);
  if (result != CUDA_SUCCESS) return result;
  node->work = &memset_work;
  node->set = *set;
  return CUDA_SUCCESS;
}

/* ---- host functions ---- */

static CUresult copy_host(struct sim_node *node, const struct sim_node *from) {
  node->work = from->work;
  node->host = from->host;
  return CUDA_SUCCESS;
}

static CUresult run_host(const struct sim_node *node, struct sim_stream *stream) {
  return sim_submit_callback(stream, node->host.fn, node->host.userData, false);
}

static const struct sim_node_work host_work = {copy_host, NULL, run_host};

CUresult sim_node_set_host(struct sim_node *node, const CUDA_HOST_NODE_PARAMS *host) {
  if (host == NULL || host->fn == NULL) return CUDA_ERROR_INVALID_VALUE;
  node->work = &host_work;
  node->host = *host;
  return CUDA_SUCCESS;
}

/* ---- child graphs ---- */

static CUresult copy_child(struct sim_node *node, const struct sim_node *from) {
  return sim_node_put_child(node, from->child);
}

static void drop_child(struct sim_node *node) {
  if (node->child != NULL) sim_graph_free(node->child);
  node->child = NULL;
}

static CUresult run_child(const struct sim_node *node, struct sim_stream *stream) {
  return sim_graph_run_inner(node->child, stream);
}

static const struct sim_node_work child_work = {copy_child, drop_child, run_child};

CUresult sim_node_put_child(struct sim_node *node, struct sim_graph *graph) {
  struct sim_graph *copy;
  CUresult result = sim_graph_copy(graph, &copy);
  if (result != CUDA_SUCCESS) return result;
  sim_node_drop_work(node);
  copy->object.inner = true;
  node->work = &child_work;
  node->child = copy;
  return CUDA_SUCCESS;
}

CUresult sim_node_set_child(struct sim_node *node, CUgraph handle) {
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || graph == node->graph) return CUDA_ERROR_INVALID_VALUE;
  if (sim_graph_has_memory(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  return sim_node_put_child(node, graph);
}

/* ---- events: recorded or waited for, by the type of the node ---- */

static CUresult copy_event(struct sim_node *node, const struct sim_node *from) {
  node->work = from->work;
  node->event = from->event;
  return CUDA_SUCCESS;
}

static CUresult run_event(const struct sim_node *node, struct sim_stream *stream) {
  struct sim_event *event = sim_event_find(node->event);
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? sim_submit_wait_event(stream, event)
                                                     : sim_submit_record(stream, event);
}

static const struct sim_node_work event_work = {copy_event, NULL, run_event};

CUresult sim_node_set_event(struct sim_node *node, CUevent event) {
  if (sim_event_find(event) == NULL) return CUDA_ERROR_INVALID_VALUE;
  node->work = &event_work;
  node->event = event;
  return CUDA_SUCCESS;
}
