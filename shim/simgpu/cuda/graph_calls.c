/*
 * graph_calls.c - the entry points of graphs: made, copied, destroyed, their edges, and what of the program's they
 * hold. Called by programs; graph.c keeps the graphs.
 */
#include "simgpu/cuda/graph.h"
#include "simgpu/process/process.h"
#include <string.h>

SIM_PUBLIC CUresult cuGraphCreate(CUgraph *ret_graph, unsigned flags) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (ret_graph == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  struct sim_graph *graph = sim_graph_make();
  if (graph == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *ret_graph = (CUgraph)graph;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphDestroy(CUgraph handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || graph->object.inner) return CUDA_ERROR_INVALID_VALUE;
  sim_graph_free(graph);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphClone(CUgraph *ret_graph, CUgraph handle) {
  struct sim_graph *graph = sim_graph_find(handle), *copy;
  if (graph == NULL || ret_graph == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (sim_graph_has_memory(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = sim_graph_copy(graph, &copy);
  if (result == CUDA_SUCCESS) *ret_graph = (CUgraph)copy;
  return result;
}

SIM_PUBLIC CUresult cuGraphNodeFindInClone(CUgraphNode *ret_node, CUgraphNode original, CUgraph handle) {
  struct sim_graph *graph = sim_graph_find(handle);
  struct sim_node *node = sim_node_find(original);
  if (graph == NULL || node == NULL || ret_node == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < graph->count; i++) {
    if (graph->nodes[i]->original != node) continue;
    *ret_node = (CUgraphNode)graph->nodes[i];
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuGraphDestroyNode(CUgraphNode handle) {
  struct sim_node *node = sim_node_find(handle);
  if (node == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (sim_graph_has_memory(node->graph)) return CUDA_ERROR_NOT_SUPPORTED;
  sim_node_free(node);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *ret_type) {
  struct sim_node *node = sim_node_find(handle);
  if (node == NULL || ret_type == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ret_type = node->type;
  return CUDA_SUCCESS;
}

static CUresult add_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
                          size_t count) {
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || (count != 0 && (from == NULL || to == NULL))) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    struct sim_node *before = sim_node_find(from[i]), *after = sim_node_find(to[i]);
    if (before == NULL || after == NULL || before->graph != graph || after->graph != graph || before == after)
      return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_node_depend(after, before, data == NULL ? NULL : &data[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

/* An edge is named with its data: without any it is a plain one. */
static bool has_edge(const struct sim_node *node, const struct sim_node *on, const CUgraphEdgeData *data) {
  static const CUgraphEdgeData plain;
  for (uint32_t i = 0; i < node->dependency_count; i++)
    if (node->dependencies[i] == on) return memcmp(&node->edges[i], data == NULL ? &plain : data, sizeof plain) == 0;
  return false;
}

static CUresult remove_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                             const CUgraphEdgeData *data, size_t count) {
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || (count != 0 && (from == NULL || to == NULL))) return CUDA_ERROR_INVALID_VALUE;
  if (sim_graph_has_memory(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  for (size_t i = 0; i < count; i++) {
    struct sim_node *before = sim_node_find(from[i]), *after = sim_node_find(to[i]);
    if (before == NULL || after == NULL || before->graph != graph || after->graph != graph ||
        !has_edge(after, before, data == NULL ? NULL : &data[i]))
      return CUDA_ERROR_INVALID_VALUE;
    sim_node_forget(after, before);
  }
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                           size_t count) {
  return add_edges(graph, from, to, NULL, count);
}

SIM_PUBLIC CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                              const CUgraphEdgeData *data, size_t count) {
  return add_edges(graph, from, to, data, count);
}

SIM_PUBLIC CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                              size_t count) {
  return remove_edges(graph, from, to, NULL, count);
}

SIM_PUBLIC CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                                 const CUgraphEdgeData *data, size_t count) {
  return remove_edges(graph, from, to, data, count);
}

SIM_PUBLIC CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object, unsigned count, unsigned flags) {
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) != 0) return CUDA_ERROR_INVALID_VALUE;
  return sim_graph_hold(graph, object, count, (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0);
}

SIM_PUBLIC CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject object, unsigned count) {
  struct sim_graph *graph = sim_graph_find(handle);
  return graph == NULL ? CUDA_ERROR_INVALID_VALUE : sim_graph_release(graph, object, count);
}
