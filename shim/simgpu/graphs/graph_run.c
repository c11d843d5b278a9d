/*
 * graph_run.c - the order of a graph's nodes and their execution in a stream. Called by graph_exec.c and nodes that
 * hold graphs. The nodes run one after the other: branches do not overlap on the simulated device, which costs time and
 * changes no result.
 */
#include "simgpu/graphs/graph.h"
#include "simgpu/process/current.h"
#include <stdlib.h>
#include <string.h>

CUresult sim_graph_order(struct sim_graph *graph, struct sim_node ***ret_order) {
  uint32_t *waiting = calloc(graph->count + 1, sizeof *waiting);
  struct sim_node **order = calloc(graph->count + 1, sizeof *order);
  bool progress = true;
  uint32_t done = 0;
  if (waiting == NULL || order == NULL) {
    free(waiting);
    free(order);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  /* Passes over the nodes in the order of their making: one pass for every graph that was built front to back. */
  while (done < graph->count && progress) {
    progress = false;
    for (uint32_t i = 0; i < graph->count; i++) {
      struct sim_node *node = graph->nodes[i];
      bool ready = waiting[i] == 0;
      for (uint32_t j = 0; j < node->dependency_count && ready; j++) ready = waiting[node->dependencies[j]->index] != 0;
      if (!ready) continue;
      waiting[i] = 1; /* placed */
      order[done++] = node;
      progress = true;
    }
  }
  bool cycle = done < graph->count;
  free(waiting);
  if (cycle) {
    free(order);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *ret_order = order;
  return CUDA_SUCCESS;
}

CUresult sim_graph_run_inner(struct sim_graph *graph, struct sim_stream *stream) {
  struct sim_node **order;
  CUresult result = sim_graph_order(graph, &order);
  if (result != CUDA_SUCCESS) return result;
  result = sim_graph_run(order, graph->count, stream);
  free(order);
  return result;
}

static CUresult run_node(const struct sim_node *node, struct sim_stream *stream) {
  return node->work == NULL ? CUDA_SUCCESS : node->work->run(node, stream); /* NULL: an empty node */
}

CUresult sim_graph_run(struct sim_node *const *order, uint32_t count, struct sim_stream *stream) {
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++)
    if (order[i]->enabled) result = run_node(order[i], stream);
  return result;
}
