/*
 * graph_drawing.c - the drawing of a graph, in the language of Graphviz. Called by programs.
 */
#include "simgpu/graphs/graph.h"
#include "simgpu/modules/module.h"
#include "simgpu/process/process.h"
#include <stdio.h>

static const char *label_of(const struct sim_node *node) {
  static const char *const labels[] = {"KERNEL", "MEMCPY", "MEMSET", "HOST", "GRAPH", "EMPTY", "WAIT", "RECORD"};
  if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
    struct sim_function *function = sim_function_find((CUfunction)node->kernel.launch.function);
    return function == NULL ? "KERNEL" : function->kernel.name;
  }
  return (size_t)node->type < sizeof labels / sizeof labels[0] ? labels[node->type] : "OTHER";
}

SIM_PUBLIC CUresult cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned flags) {
  (void)flags; /* how much is printed of each node: always its name */
  struct sim_graph *graph = sim_graph_find(handle);
  if (graph == NULL || path == NULL) return CUDA_ERROR_INVALID_VALUE;
  FILE *file = fopen(path, "we");
  if (file == NULL) return CUDA_ERROR_OPERATING_SYSTEM;
  fprintf(file, "digraph dot {\n");
  for (uint32_t i = 0; i < graph->count; i++) {
    const struct sim_node *node = graph->nodes[i];
    fprintf(file, "  node_%u [label=\"%u %s\"];\n", i, i, label_of(node));
    for (uint32_t j = 0; j < node->dependency_count; j++)
      fprintf(file, "  node_%u -> node_%u;\n", node->dependencies[j]->index, i);
  }
  fprintf(file, "}\n");
  return fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
