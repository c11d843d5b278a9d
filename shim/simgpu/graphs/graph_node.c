/*
 * graph_node.c - what the entry points of all nodes begin and end with (graph_node.h).
 */
#include "simgpu/graphs/graph_node.h"
#include "simgpu/graphs/graph.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"

CUresult sim_node_context(CUcontext handle, struct sim_context **ret_context) {
  if (handle == NULL) return sim_enter(ret_context);
  struct sim_context *context = sim_context_find(handle);
  if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *ret_context = context->home;
  return CUDA_SUCCESS;
}

CUresult sim_node_begin(CUgraphNode *ret_handle, CUgraph handle, CUgraphNodeType type, const CUgraphNode *dependencies,
                        size_t count, struct sim_node **ret_node) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || ret_handle == NULL || (count != 0 && dependencies == NULL)) return CUDA_ERROR_INVALID_VALUE;
  return sim_node_make(graph, type, (struct sim_node *const *)dependencies, count, ret_node);
}

CUresult sim_node_finish(struct sim_node *node, CUresult result, CUgraphNode *ret_node) {
  if (result != CUDA_SUCCESS)
    sim_node_free(node);
  else
    *ret_node = (CUgraphNode)node;
  return result;
}

struct sim_node *sim_node_of_type(CUgraphNode handle, CUgraphNodeType type) {
  struct sim_node *node = sim_node_find(handle);
  return node != NULL && node->type == type ? node : NULL;
}

struct sim_node *sim_exec_node(CUgraphExec handle, CUgraphNode node_handle) {
  struct sim_exec *exec = sim_exec_find(handle);
  struct sim_node *node = sim_node_find(node_handle);
  if (exec == NULL || node == NULL) return NULL;
  if (node->index < exec->graph->count && exec->graph->nodes[node->index]->original == node)
    return exec->graph->nodes[node->index];
  for (uint32_t i = 0; i < exec->graph->count; i++) /* nodes before it were destroyed since */
    if (exec->graph->nodes[i]->original == node) return exec->graph->nodes[i];
  return NULL;
}

struct sim_node *sim_exec_node_of_type(CUgraphExec exec, CUgraphNode handle, CUgraphNodeType type) {
  struct sim_node *node = sim_exec_node(exec, handle);
  return node != NULL && node->type == type ? node : NULL;
}
