/*
 * graph_query.c - lists of a graph's nodes and edges. Called by programs. All follow one rule: without an array only
 * the number is answered; with one, the array is filled up to the number that was given and the rest of it is emptied.
 */
#include "simgpu/graphs/graph.h"
#include "simgpu/process/process.h"
#include <string.h>

struct list {
  CUgraphNode *first;
  CUgraphNode *second; /* of edges */
  CUgraphEdgeData *data;
  size_t room;
  size_t found;
  bool lossy; /* an edge has data that was not asked for */
};

static void add(struct list *list, struct sim_node *first, struct sim_node *second, const CUgraphEdgeData *edge) {
  static const CUgraphEdgeData plain;
  if (edge == NULL) edge = &plain;
  if (list->found < list->room) {
    if (list->first != NULL) list->first[list->found] = (CUgraphNode)first;
    if (list->second != NULL) list->second[list->found] = (CUgraphNode)second;
    if (list->data != NULL) list->data[list->found] = *edge;
    if (list->first != NULL && list->data == NULL && memcmp(edge, &plain, sizeof plain) != 0) list->lossy = true;
  }
  list->found++;
}

static CUresult answer(struct list *list, size_t *ret_count) {
  if (list->lossy) return CUDA_ERROR_LOSSY_QUERY;
  bool wanted = list->first != NULL || list->second != NULL;
  for (size_t i = list->found; wanted && i < list->room; i++) {
    if (list->first != NULL) list->first[i] = NULL;
    if (list->second != NULL) list->second[i] = NULL;
  }
  *ret_count = wanted && list->found > list->room ? list->room : list->found;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *ret_nodes, size_t *count) {
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || count == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct list list = {.first = ret_nodes, .room = *count};
  for (uint32_t i = 0; i < graph->count; i++) add(&list, graph->nodes[i], NULL, NULL);
  return answer(&list, count);
}

SIM_PUBLIC CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode *ret_nodes, size_t *count) {
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || count == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct list list = {.first = ret_nodes, .room = *count};
  for (uint32_t i = 0; i < graph->count; i++)
    if (graph->nodes[i]->dependency_count == 0) add(&list, graph->nodes[i], NULL, NULL);
  return answer(&list, count);
}

SIM_PUBLIC CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *ret_from, CUgraphNode *ret_to,
                                       CUgraphEdgeData *ret_data, size_t *count) {
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || count == NULL || (ret_from == NULL) != (ret_to == NULL)) return CUDA_ERROR_INVALID_VALUE;
  struct list list = {.first = ret_from, .second = ret_to, .data = ret_data, .room = *count};
  for (uint32_t i = 0; i < graph->count; i++)
    for (uint32_t j = 0; j < graph->nodes[i]->dependency_count; j++)
      add(&list, graph->nodes[i]->dependencies[j], graph->nodes[i], &graph->nodes[i]->edges[j]);
  return answer(&list, count);
}

SIM_PUBLIC CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode *ret_from, CUgraphNode *ret_to, size_t *count) {
  return cuGraphGetEdges_v2(handle, ret_from, ret_to, NULL, count);
}

SIM_PUBLIC CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode *ret_nodes, CUgraphEdgeData *ret_data,
                                                  size_t *count) {
  struct sim_node *node = sim_node_find(handle);
  if (node == NULL || count == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct list list = {.first = ret_nodes, .data = ret_data, .room = *count};
  for (uint32_t i = 0; i < node->dependency_count; i++) add(&list, node->dependencies[i], NULL, &node->edges[i]);
  return answer(&list, count);
}

SIM_PUBLIC CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode *ret_nodes, size_t *count) {
  return cuGraphNodeGetDependencies_v2(handle, ret_nodes, NULL, count);
}

SIM_PUBLIC CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode *ret_nodes,
                                                    CUgraphEdgeData *ret_data, size_t *count) {
  struct sim_node *node = sim_node_find(handle);
  if (node == NULL || count == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct list list = {.first = ret_nodes, .data = ret_data, .room = *count};
  for (uint32_t i = 0; i < node->graph->count; i++) {
    struct sim_node *other = node->graph->nodes[i];
    for (uint32_t j = 0; j < other->dependency_count; j++)
      if (other->dependencies[j] == node) add(&list, other, NULL, &other->edges[j]);
  }
  return answer(&list, count);
}

SIM_PUBLIC CUresult cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode *ret_nodes, size_t *count) {
  return cuGraphNodeGetDependentNodes_v2(handle, ret_nodes, NULL, count);
}
