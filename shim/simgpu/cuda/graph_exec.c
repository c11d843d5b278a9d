/*
 * graph_exec.c - executable graphs: instantiate, update, launch, destroy. Called by programs. An executable is a copy
 * of the graph in running order; its nodes are found again by the program's node through `original`.
 */
#include "graph.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct sim_slab execs = SIM_SLAB(sizeof(struct sim_exec), 1 << 16);
static pthread_mutex_t launch_lock = PTHREAD_MUTEX_INITIALIZER; /* launches of graphs do not mix their nodes */

static struct sim_exec *exec_find(CUgraphExec handle) {
  return sim_slab_find(&execs, handle, SIM_EXEC_MAGIC);
}

static CUresult instantiate(CUgraphExec *ret_exec, CUgraph handle, uint64_t flags) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  struct sim_graph *graph = sim_graph_find(handle), *copy;
  struct sim_node **order;
  if (graph == NULL || ret_exec == NULL) return CUDA_ERROR_INVALID_VALUE;
  result = sim_graph_copy(graph, &copy);
  if (result != CUDA_SUCCESS) return result;
  result = sim_graph_order(copy, &order);
  struct sim_exec *exec = result == CUDA_SUCCESS ? sim_slab_get(&execs, SIM_EXEC_MAGIC) : NULL;
  if (exec == NULL) {
    sim_graph_free(copy);
    if (result == CUDA_SUCCESS) free(order);
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
  }
  copy->owned = true;
  exec->graph = copy;
  exec->order = order;
  exec->flags = flags;
  *ret_exec = (CUgraphExec)exec;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphInstantiateWithFlags(CUgraphExec *ret_exec, CUgraph graph, unsigned long long flags) {
  return instantiate(ret_exec, graph, flags);
}

SIM_PUBLIC CUresult cuGraphInstantiate_v2(CUgraphExec *ret_exec, CUgraph graph, CUgraphNode *ret_error, char *log,
                                          size_t log_bytes) {
  if (ret_error != NULL) *ret_error = NULL;
  if (log != NULL && log_bytes != 0) log[0] = 0;
  return instantiate(ret_exec, graph, 0);
}

SIM_PUBLIC CUresult cuGraphInstantiate(CUgraphExec *ret_exec, CUgraph graph, CUgraphNode *ret_error, char *log,
                                       size_t log_bytes) {
  return cuGraphInstantiate_v2(ret_exec, graph, ret_error, log, log_bytes);
}

static CUresult instantiate_params(CUgraphExec *ret_exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = instantiate(ret_exec, graph, params->flags);
  params->hErrNode_out = NULL;
  params->result_out = result == CUDA_SUCCESS               ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                       : result == CUDA_ERROR_INVALID_VALUE ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                                                            : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

SIM_PUBLIC CUresult cuGraphInstantiateWithParams(CUgraphExec *ret_exec, CUgraph graph,
                                                 CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  return instantiate_params(ret_exec, graph, params);
}

SIM_PUBLIC CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *ret_exec, CUgraph graph,
                                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  return instantiate_params(ret_exec, graph, params);
}

SIM_PUBLIC CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *ret_flags) {
  struct sim_exec *exec = exec_find(handle);
  if (exec == NULL || ret_flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ret_flags = exec->flags;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphExecDestroy(CUgraphExec handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_exec *exec = exec_find(handle);
  if (exec == NULL) return CUDA_ERROR_INVALID_VALUE;
  sim_graph_free(exec->graph);
  free(exec->order);
  sim_slab_put(&execs, exec);
  return CUDA_SUCCESS;
}

static CUresult upload(CUgraphExec handle, CUstream stream_handle, bool per_thread) {
  struct sim_context *context;
  struct sim_stream *stream;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_stream_find(stream_handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  struct sim_exec *exec = exec_find(handle);
  return exec == NULL ? CUDA_ERROR_INVALID_VALUE : sim_graph_reserve(exec->graph);
}

static CUresult launch(CUgraphExec handle, CUstream stream_handle, bool per_thread) {
  struct sim_context *context;
  struct sim_stream *stream;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_stream_find(stream_handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  struct sim_exec *exec = exec_find(handle);
  if (exec == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture != NULL) return sim_capture_graph(stream, exec->graph);
  result = sim_capture_implicit(stream);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&launch_lock);
  result = sim_graph_reserve(exec->graph); /* before anything runs: a launch that is refused has done nothing */
  if (result == CUDA_SUCCESS) result = sim_submit_launch_begin(stream);
  if (result == CUDA_SUCCESS) result = sim_graph_run(exec->order, exec->graph->count, stream);
  pthread_mutex_unlock(&launch_lock);
  if (result != CUDA_ERROR_ILLEGAL_ADDRESS) return result;
  stream->context->sticky = result; /* noticed by the next call, as with a real fault */
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return upload(exec, stream, false);
}
SIM_PUBLIC CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
  return upload(exec, stream, true);
}
SIM_PUBLIC CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return launch(exec, stream, false);
}
SIM_PUBLIC CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  return launch(exec, stream, true);
}

/* The executable's node for a node of the graph that it was made from. */
static struct sim_node *node_of(CUgraphExec handle, CUgraphNode node_handle) {
  struct sim_exec *exec = exec_find(handle);
  struct sim_node *node = sim_node_find(node_handle);
  if (exec == NULL || node == NULL) return NULL;
  if (node->index < exec->graph->count && exec->graph->nodes[node->index]->original == node)
    return exec->graph->nodes[node->index];
  for (uint32_t i = 0; i < exec->graph->count; i++) /* nodes before it were destroyed since */
    if (exec->graph->nodes[i]->original == node) return exec->graph->nodes[i];
  return NULL;
}

static struct sim_node *node_of_type(CUgraphExec exec, CUgraphNode handle, CUgraphNodeType type) {
  struct sim_node *node = node_of(exec, handle);
  return node != NULL && node->type == type ? node : NULL;
}

SIM_PUBLIC CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraphNodeParams *params) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_node *node = params == NULL ? NULL : node_of_type(exec, handle, params->type);
  return node == NULL ? CUDA_ERROR_INVALID_VALUE : sim_node_set_any(node, params);
}

SIM_PUBLIC CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode handle,
                                                      const CUDA_KERNEL_NODE_PARAMS *params) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_node *node = node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_KERNEL);
  return node == NULL ? CUDA_ERROR_INVALID_VALUE : sim_node_set_kernel(node, params);
}

SIM_PUBLIC CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode handle,
                                                   const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  CUDA_KERNEL_NODE_PARAMS wide = {0};
  struct sim_node *node = node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_KERNEL);
  if (params == NULL || node == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&wide, params, sizeof *params);
  wide.ctx = (CUcontext)node->context; /* the first ABI has none: it stays in its context */
  return cuGraphExecKernelNodeSetParams_v2(exec, handle, &wide);
}

SIM_PUBLIC CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode handle, const CUDA_MEMCPY3D *copy,
                                                   CUcontext context) {
  struct sim_node *node = node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_MEMCPY);
  return node == NULL ? CUDA_ERROR_INVALID_VALUE : sim_node_set_copy(node, copy, context);
}

SIM_PUBLIC CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode handle,
                                                   const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context) {
  struct sim_node *node = node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_MEMSET);
  return node == NULL ? CUDA_ERROR_INVALID_VALUE : sim_node_set_memset(node, set, context);
}

SIM_PUBLIC CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode handle,
                                                 const CUDA_HOST_NODE_PARAMS *host) {
  struct sim_node *node = node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_HOST);
  if (node == NULL || host == NULL || host->fn == NULL) return CUDA_ERROR_INVALID_VALUE;
  node->host = *host;
  return CUDA_SUCCESS;
}

static CUresult set_event(struct sim_node *node, CUevent event) {
  if (node == NULL || sim_event_find(event) == NULL) return CUDA_ERROR_INVALID_VALUE;
  node->event = event;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode handle, CUevent event) {
  return set_event(node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_EVENT_RECORD), event);
}

SIM_PUBLIC CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode handle, CUevent event) {
  return set_event(node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_WAIT_EVENT), event);
}

SIM_PUBLIC CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraph child) {
  struct sim_node *node = node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_GRAPH);
  CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = child}};
  struct sim_graph *graph = sim_graph_find(child);
  if (node == NULL || graph == NULL || graph->count != node->child->count) return CUDA_ERROR_INVALID_VALUE;
  return sim_node_set_any(node, &params);
}

SIM_PUBLIC CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned enabled) {
  struct sim_node *node = node_of(exec, handle);
  if (node == NULL || (node->type != CU_GRAPH_NODE_TYPE_KERNEL && node->type != CU_GRAPH_NODE_TYPE_MEMCPY &&
                       node->type != CU_GRAPH_NODE_TYPE_MEMSET))
    return CUDA_ERROR_INVALID_VALUE;
  node->enabled = enabled != 0;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned *ret_enabled) {
  struct sim_node *node = node_of(exec, handle);
  if (node == NULL || ret_enabled == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ret_enabled = node->enabled;
  return CUDA_SUCCESS;
}

static bool same_edges(const struct sim_node *a, const struct sim_node *b) {
  if (a->dependency_count != b->dependency_count) return false;
  for (uint32_t i = 0; i < a->dependency_count; i++)
    if (a->dependencies[i]->index != b->dependencies[i]->index) return false;
  return true;
}

/* What keeps graph from being loaded into exec; the first node that differs. */
static CUgraphExecUpdateResult compare(const struct sim_exec *exec, const struct sim_graph *graph,
                                       struct sim_node **ret_node) {
  *ret_node = NULL;
  if (exec->graph->count != graph->count) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (uint32_t i = 0; i < graph->count; i++) {
    struct sim_node *now = exec->graph->nodes[i], *then = graph->nodes[i];
    *ret_node = then;
    if (now->type != then->type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (!same_edges(now, then)) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (now->context != then->context) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    if (now->type == CU_GRAPH_NODE_TYPE_GRAPH && now->child->count != then->child->count)
      return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  *ret_node = NULL;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle,
                                         CUgraphExecUpdateResultInfo *ret_info) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_exec *exec = exec_find(handle);
  struct sim_graph *graph = sim_graph_find(graph_handle);
  struct sim_node *different;
  if (exec == NULL || graph == NULL || ret_info == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResult found = compare(exec, graph, &different);
  *ret_info = (CUgraphExecUpdateResultInfo){.result = found, .errorNode = (CUgraphNode)different};
  if (found != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  for (uint32_t i = 0; i < graph->count && result == CUDA_SUCCESS; i++) {
    result = sim_node_copy_work(exec->graph->nodes[i], graph->nodes[i]);
    exec->graph->nodes[i]->original = graph->nodes[i];
  }
  return result;
}

SIM_PUBLIC CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *ret_error,
                                      CUgraphExecUpdateResult *ret_result) {
  CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
  CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
  if (ret_error != NULL) *ret_error = info.errorNode;
  if (ret_result != NULL) *ret_result = info.result;
  return result;
}
