/*
 * graph_extra.c - the entry points of attributes of kernel nodes, and the drawing of a graph. Called by programs.
 */
#include "simgpu/cuda/graph.h"
#include "simgpu/cuda/module.h"
#include "simgpu/process/process.h"
#include <stdio.h>

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
