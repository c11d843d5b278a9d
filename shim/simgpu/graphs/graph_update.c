/*
 * graph_update.c - cuGraphExecUpdate: may the nodes of another graph be loaded into an executable, and if not, why?
 * Called by programs. Nodes are paired in the order in which they were made, as the driver documents it.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/graphs/graph.h"
#include "simgpu/modules/module.h"
#include "simgpu/process/process.h"
#include <string.h>

struct difference {
  CUgraphExecUpdateResult result;
  struct sim_node *node, *from; /* of the new graph; from: of an edge that differs */
};

static bool differs(struct difference *found, CUgraphExecUpdateResult result, struct sim_node *node) {
  *found = (struct difference){.result = result, .node = node};
  return true;
}

static bool edges_differ(struct difference *found, const struct sim_node *now, struct sim_node *then) {
  if (now->dependency_count != then->dependency_count)
    return differs(found, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, then);
  for (uint32_t i = 0; i < now->dependency_count; i++) {
    bool same_end = now->dependencies[i]->index == then->dependencies[i]->index;
    if (same_end && memcmp(&now->edges[i], &then->edges[i], sizeof now->edges[i]) == 0) continue;
    differs(found, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, then);
    found->from = then->dependencies[i];
    return true;
  }
  return false;
}

/* The device of an operand may not change, nor may what it is. */
static bool operand_differs(CUmemorytype now_type, CUdeviceptr now, CUmemorytype then_type, CUdeviceptr then) {
  struct sim_allocation a = {.device = -1}, b = {.device = -1};
  if (now_type != then_type) return true;
  if (now_type == CU_MEMORYTYPE_HOST || now_type == CU_MEMORYTYPE_ARRAY) return false;
  sim_memory_find(now, &a);
  sim_memory_find(then, &b);
  return a.device != b.device;
}

static bool copies_differ(const CUDA_MEMCPY3D *now, const CUDA_MEMCPY3D *then) {
  return operand_differs(now->srcMemoryType, now->srcDevice, then->srcMemoryType, then->srcDevice) ||
         operand_differs(now->dstMemoryType, now->dstDevice, then->dstMemoryType, then->dstDevice);
}

/* Only memsets of one row can be changed. */
static bool memsets_differ(const CUDA_MEMSET_NODE_PARAMS *now, const CUDA_MEMSET_NODE_PARAMS *then) {
  if (operand_differs(CU_MEMORYTYPE_DEVICE, now->dst, CU_MEMORYTYPE_DEVICE, then->dst)) return true;
  return (now->height > 1 || then->height > 1) && memcmp(now, then, sizeof *now) != 0;
}

static bool graphs_differ(struct difference *found, const struct sim_graph *now, const struct sim_graph *then);

static bool bodies_differ(struct difference *found, const struct sim_node *now, struct sim_node *then) {
  if (now->conditional.type != then->conditional.type || now->conditional.size != then->conditional.size)
    return differs(found, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, then);
  for (uint32_t i = 0; i < now->conditional.size; i++)
    if (graphs_differ(found, now->conditional.bodies[i], then->conditional.bodies[i])) return true;
  return false;
}

static bool work_differs(struct difference *found, const struct sim_node *now, struct sim_node *then) {
  bool changed = false;
  switch (now->type) {
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return graphs_differ(found, now->child, then->child);
  case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    return bodies_differ(found, now, then);
  case CU_GRAPH_NODE_TYPE_KERNEL:
    if (sim_function_find((CUfunction)then->kernel.launch.function) == NULL)
      return differs(found, CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, then);
    break;
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    changed = copies_differ(&now->copy, &then->copy);
    break;
  case CU_GRAPH_NODE_TYPE_MEMSET:
    changed = memsets_differ(&now->set, &then->set);
    break;
  case CU_GRAPH_NODE_TYPE_MEM_ALLOC: /* its address is its own */
    if (now->memory.block != then->memory.block) return differs(found, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, then);
    break;
  case CU_GRAPH_NODE_TYPE_MEM_FREE:
    changed = now->address != then->address;
    break;
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    changed = now->semaphores.count != then->semaphores.count;
    break;
  default:
    break;
  }
  return changed && differs(found, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, then);
}

static bool graphs_differ(struct difference *found, const struct sim_graph *now, const struct sim_graph *then) {
  if (now->count != then->count) return differs(found, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL);
  for (uint32_t i = 0; i < then->count; i++) {
    const struct sim_node *node = now->nodes[i];
    struct sim_node *other = then->nodes[i];
    if (node->type != other->type) return differs(found, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, other);
    if (edges_differ(found, node, other)) return true;
    if (node->context != other->context) return differs(found, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, other);
    if (work_differs(found, node, other)) return true;
  }
  return false;
}

SIM_PUBLIC CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle,
                                         CUgraphExecUpdateResultInfo *ret_info) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_exec *exec = sim_exec_find(handle);
  struct sim_graph *graph = sim_graph_find(graph_handle);
  struct difference found = {.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
  if (exec == NULL || graph == NULL || ret_info == NULL) return CUDA_ERROR_INVALID_VALUE;
  bool refused = graphs_differ(&found, exec->graph, graph);
  *ret_info = (CUgraphExecUpdateResultInfo){found.result, (CUgraphNode)found.node, (CUgraphNode)found.from};
  if (refused) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
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
