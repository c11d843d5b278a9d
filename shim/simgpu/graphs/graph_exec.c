/*
 * graph_exec.c - executable graphs: instantiate, change single nodes, launch, destroy. Called by programs. An
 * executable is a copy of the graph in running order; its nodes are found again by the program's node through
 * `original`.
 */
#include "simgpu/graphs/graph.h"
#include "simgpu/graphs/graph_node.h"
#include "simgpu/modules/condition.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t launch_lock = PTHREAD_MUTEX_INITIALIZER; /* launches of graphs do not mix their nodes */

/* What is wrong with a graph, before it is copied. Cycles show when it is put in order. */
static CUresult check(struct sim_graph *graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  struct sim_node *node = NULL;
  params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  if (graph == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (sim_graph_is_instantiated(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  if (!sim_conditions_used(graph->conditions))
    params->result_out = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
  else if (!sim_graph_bodies_allowed(graph, &node))
    params->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
  else
    return CUDA_SUCCESS;
  params->hErrNode_out = (CUgraphNode)node;
  return CUDA_ERROR_INVALID_VALUE;
}

static bool flags_known(uint64_t flags) {
  uint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                   CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  uint64_t exclusive = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  return (flags & ~known) == 0 && (flags & exclusive) != exclusive;
}

static CUresult instantiate(CUgraphExec *ret_exec, CUgraph handle, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  struct sim_context *context;
  params->hErrNode_out = NULL;
  params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  struct sim_graph *graph = sim_graph_find(handle), *copy;
  struct sim_node **order;
  if (ret_exec == NULL || !flags_known(params->flags)) return CUDA_ERROR_INVALID_VALUE;
  result = check(graph, params);
  if (result == CUDA_SUCCESS) result = sim_graph_copy(graph, &copy);
  if (result != CUDA_SUCCESS) return result;
  result = sim_graph_order(copy, &order);
  if (result == CUDA_ERROR_INVALID_VALUE) params->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
  struct sim_exec *exec = result == CUDA_SUCCESS ? sim_exec_make(copy, order) : NULL;
  if (exec == NULL) {
    sim_graph_free(copy);
    if (result == CUDA_SUCCESS) free(order);
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
  }
  exec->flags = params->flags & ~(uint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD; /* as documented */
  params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  *ret_exec = (CUgraphExec)exec;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphInstantiateWithFlags(CUgraphExec *ret_exec, CUgraph graph, unsigned long long flags) {
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = flags};
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE; /* names no stream */
  return instantiate(ret_exec, graph, &params);
}

SIM_PUBLIC CUresult cuGraphInstantiate_v2(CUgraphExec *ret_exec, CUgraph graph, CUgraphNode *ret_error, char *log,
                                          size_t log_bytes) {
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
  if (log != NULL && log_bytes != 0) log[0] = 0;
  CUresult result = instantiate(ret_exec, graph, &params);
  if (ret_error != NULL) *ret_error = params.hErrNode_out;
  return result;
}

SIM_PUBLIC CUresult cuGraphInstantiate(CUgraphExec *ret_exec, CUgraph graph, CUgraphNode *ret_error, char *log,
                                       size_t log_bytes) {
  return cuGraphInstantiate_v2(ret_exec, graph, ret_error, log, log_bytes);
}

/* What an upload and a launch are given. */
static CUresult find(CUgraphExec handle, CUstream stream_handle, bool per_thread, struct sim_exec **ret_exec,
                     struct sim_stream **ret_stream) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_stream_find(stream_handle, per_thread, ret_stream);
  if (result != CUDA_SUCCESS) return result;
  *ret_exec = sim_exec_find(handle);
  return *ret_exec == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult upload(CUgraphExec handle, CUstream stream_handle, bool per_thread) {
  struct sim_exec *exec;
  struct sim_stream *stream;
  CUresult result = find(handle, stream_handle, per_thread, &exec, &stream);
  return result == CUDA_SUCCESS ? sim_graph_reserve(exec->graph) : result;
}

/* An upload that fails leaves no executable behind. */
static CUresult instantiate_params(CUgraphExec *ret_exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params,
                                   bool per_thread) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = instantiate(ret_exec, graph, params);
  if (result != CUDA_SUCCESS || (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0) return result;
  result = upload(*ret_exec, params->hUploadStream, per_thread);
  if (result == CUDA_SUCCESS) return result;
  cuGraphExecDestroy(*ret_exec);
  *ret_exec = NULL;
  params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

SIM_PUBLIC CUresult cuGraphInstantiateWithParams(CUgraphExec *ret_exec, CUgraph graph,
                                                 CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  return instantiate_params(ret_exec, graph, params, false);
}

SIM_PUBLIC CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *ret_exec, CUgraph graph,
                                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  return instantiate_params(ret_exec, graph, params, true);
}

SIM_PUBLIC CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *ret_flags) {
  struct sim_exec *exec = sim_exec_find(handle);
  if (exec == NULL || ret_flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ret_flags = exec->flags;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphExecDestroy(CUgraphExec handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_exec *exec = sim_exec_find(handle);
  if (exec == NULL) return CUDA_ERROR_INVALID_VALUE;
  sim_exec_free(exec);
  return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec handle, CUstream stream_handle, bool per_thread) {
  struct sim_exec *exec;
  struct sim_stream *stream;
  CUresult result = find(handle, stream_handle, per_thread, &exec, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture != NULL) return sim_capture_work()->graph(stream, exec->graph);
  result = sim_capture_implicit(stream);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&launch_lock);
  /* Before anything runs: a launch that is refused has done nothing. */
  result = sim_graph_settle(exec->graph, (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0);
  if (result == CUDA_SUCCESS) result = sim_graph_reserve(exec->graph);
  sim_graph_reset_conditions(exec->graph);
  if (result == CUDA_SUCCESS) result = sim_submit_launch_begin(stream);
  if (result == CUDA_SUCCESS) result = sim_graph_run(exec->order, exec->graph->count, stream);
  pthread_mutex_unlock(&launch_lock);
  return sim_is_sticky(result) ? sim_stream_fault(stream, result) : result;
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

SIM_PUBLIC CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraphNodeParams *params) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_node *node = params == NULL ? NULL : sim_exec_node_of_type(exec, handle, params->type);
  if (node != NULL && node->type == CU_GRAPH_NODE_TYPE_GRAPH)
    return cuGraphExecChildGraphNodeSetParams(exec, handle, params->graph.graph);
  return node == NULL ? CUDA_ERROR_INVALID_VALUE : sim_node_set_any(node, params);
}

SIM_PUBLIC CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode handle,
                                                      const CUDA_KERNEL_NODE_PARAMS *params) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_node *node = sim_exec_node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_KERNEL);
  return node == NULL ? CUDA_ERROR_INVALID_VALUE : sim_node_set_kernel(node, params);
}

SIM_PUBLIC CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode handle,
                                                   const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  CUDA_KERNEL_NODE_PARAMS wide = {0};
  struct sim_node *node = sim_exec_node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_KERNEL);
  if (params == NULL || node == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&wide, params, sizeof *params);
  wide.ctx = (CUcontext)node->context; /* the first ABI has none: it stays in its context */
  return cuGraphExecKernelNodeSetParams_v2(exec, handle, &wide);
}

SIM_PUBLIC CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode handle, const CUDA_MEMCPY3D *copy,
                                                   CUcontext context) {
  struct sim_node *node = sim_exec_node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_MEMCPY);
  return node == NULL ? CUDA_ERROR_INVALID_VALUE : sim_node_set_copy(node, copy, context);
}

SIM_PUBLIC CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode handle,
                                                   const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context) {
  struct sim_node *node = sim_exec_node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_MEMSET);
  return node == NULL ? CUDA_ERROR_INVALID_VALUE : sim_node_set_memset(node, set, context);
}

SIM_PUBLIC CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode handle,
                                                 const CUDA_HOST_NODE_PARAMS *host) {
  struct sim_node *node = sim_exec_node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_HOST);
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
  return set_event(sim_exec_node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_EVENT_RECORD), event);
}

SIM_PUBLIC CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode handle, CUevent event) {
  return set_event(sim_exec_node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_WAIT_EVENT), event);
}

SIM_PUBLIC CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraph child) {
  struct sim_node *node = sim_exec_node_of_type(exec, handle, CU_GRAPH_NODE_TYPE_GRAPH);
  CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = child}};
  struct sim_graph *graph = sim_graph_find(child);
  if (node == NULL || graph == NULL || graph->count != node->child->count) return CUDA_ERROR_INVALID_VALUE;
  return sim_node_set_any(node, &params);
}

SIM_PUBLIC CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned enabled) {
  struct sim_node *node = sim_exec_node(exec, handle);
  if (node == NULL || (node->type != CU_GRAPH_NODE_TYPE_KERNEL && node->type != CU_GRAPH_NODE_TYPE_MEMCPY &&
                       node->type != CU_GRAPH_NODE_TYPE_MEMSET))
    return CUDA_ERROR_INVALID_VALUE;
  node->enabled = enabled != 0;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned *ret_enabled) {
  struct sim_node *node = sim_exec_node(exec, handle);
  if (node == NULL || ret_enabled == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ret_enabled = node->enabled;
  return CUDA_SUCCESS;
}
