/*
 * graph_conditional.c - conditional handles and nodes: IF, WHILE and SWITCH over a value that a kernel sets. Called by
 * programs, graph_node_params.c and graph_exec.c.
 *
 * The value belongs to the handle, whichever executable runs. On a real device a kernel sets it with
 * cudaGraphSetConditional(); here a kernel whose rule in kernels.model has host=condition does (handle, value). As
 * with all effects on memory that happens at submission, so a loop runs while its graph is launched: one that no kernel
 * ends keeps the launching thread for ever, where it would keep a real device.
 */
#include "simgpu/graphs/graph.h"
#include "simgpu/graphs/graph_node.h"
#include "simgpu/modules/condition.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include <stdlib.h>

SIM_PUBLIC CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *ret_handle, CUgraph graph_handle,
                                                   CUcontext context, unsigned default_value, unsigned flags) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_graph *graph = sim_graph_find(graph_handle);
  if (graph == NULL || ret_handle == NULL || (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (sim_context_find(context) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  struct sim_condition *condition = sim_condition_make(&graph->conditions);
  if (condition == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  condition->assigns_default = flags != 0;
  condition->default_value = default_value;
  *ret_handle = (CUgraphConditionalHandle)(uintptr_t)condition;
  return CUDA_SUCCESS;
}

static CUresult copy(struct sim_node *node, const struct sim_node *from);

static void drop(struct sim_node *node) {
  struct sim_condition *condition = node->conditional.condition;
  if (condition == NULL) return;
  for (uint32_t i = 0; i < node->conditional.size; i++) sim_graph_free(node->conditional.bodies[i]);
  free(node->conditional.bodies);
  condition->nodes--;
  sim_condition_release(condition);
  node->conditional.condition = NULL;
  node->conditional.bodies = NULL;
  node->conditional.size = 0;
}

static uint32_t value_of(const struct sim_node *node) {
  return VG_LOAD(&node->conditional.condition->value);
}

static CUresult run(const struct sim_node *node, struct sim_stream *stream) {
  uint32_t value = value_of(node), size = node->conditional.size;
  struct sim_graph *const *bodies = node->conditional.bodies;
  if (node->conditional.type == CU_GRAPH_COND_TYPE_IF) value = value != 0 ? 0 : 1;
  if (node->conditional.type != CU_GRAPH_COND_TYPE_WHILE)
    return value < size ? sim_graph_run_inner(bodies[value], stream) : CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (; value != 0 && result == CUDA_SUCCESS; value = value_of(node)) result = sim_graph_run_inner(bodies[0], stream);
  return result;
}

static const struct sim_node_work conditional_work = {copy, drop, run};

static void attach(struct sim_node *node, struct sim_condition *condition) {
  __atomic_add_fetch(&condition->references, 1, __ATOMIC_RELAXED);
  condition->nodes++;
  node->work = &conditional_work;
  node->conditional.condition = condition;
}

static CUresult copy(struct sim_node *node, const struct sim_node *from) {
  struct sim_graph **bodies = calloc(from->conditional.size, sizeof *bodies);
  uint32_t size = 0;
  CUresult result = bodies == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  for (; size < from->conditional.size && result == CUDA_SUCCESS; size++) {
    result = sim_graph_copy(from->conditional.bodies[size], &bodies[size]);
    if (result != CUDA_SUCCESS) break;
    bodies[size]->object.inner = true;
  }
  if (result != CUDA_SUCCESS) {
    while (size > 0) sim_graph_free(bodies[--size]);
    free(bodies);
    return result;
  }
  sim_node_drop_work(node);
  attach(node, from->conditional.condition);
  node->conditional.type = from->conditional.type;
  node->conditional.size = size;
  node->conditional.bodies = bodies;
  return CUDA_SUCCESS;
}

/* How many bodies a node may have: an IF with two has an else. */
static bool size_fits(CUgraphConditionalNodeType type, unsigned size) {
  if (type == CU_GRAPH_COND_TYPE_IF) return size == 1 || size == 2;
  return size >= 1 && (size == 1 || type == CU_GRAPH_COND_TYPE_SWITCH);
}

CUresult sim_node_set_conditional(struct sim_node *node, CUDA_CONDITIONAL_NODE_PARAMS *params) {
  struct sim_condition *condition = params == NULL ? NULL : sim_condition_find(params->handle);
  if (node->conditional.condition != NULL) return CUDA_ERROR_NOT_SUPPORTED; /* cannot be changed */
  if (condition == NULL || condition->nodes != 0 || (unsigned)params->type > CU_GRAPH_COND_TYPE_SWITCH ||
      !size_fits(params->type, params->size))
    return CUDA_ERROR_INVALID_VALUE;
  struct sim_context *context;
  CUresult result = sim_node_context(params->ctx, &context);
  if (result != CUDA_SUCCESS) return result;
  struct sim_graph **bodies = calloc(params->size, sizeof *bodies);
  if (bodies == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  node->context = context;
  node->conditional.type = params->type;
  node->conditional.bodies = bodies;
  attach(node, condition);
  for (; node->conditional.size < params->size; node->conditional.size++) {
    struct sim_graph *body = sim_graph_make();
    if (body == NULL) return CUDA_ERROR_OUT_OF_MEMORY; /* the node is dropped with what it has */
    body->object.inner = true;
    bodies[node->conditional.size] = body;
  }
  params->phGraph_out = (CUgraph *)bodies;
  return CUDA_SUCCESS;
}

static bool bodies_allowed(const struct sim_node *node);

/* A body holds nothing but kernels, copies, memsets, empty nodes, child graphs and conditionals, and so on downwards.
 */
static bool body_allowed(const struct sim_graph *body) {
  for (uint32_t i = 0; i < body->count; i++) {
    const struct sim_node *node = body->nodes[i];
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_EMPTY:
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      if (!body_allowed(node->child)) return false;
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      if (!bodies_allowed(node)) return false;
      break;
    default:
      return false;
    }
  }
  return true;
}

static bool bodies_allowed(const struct sim_node *node) {
  bool allowed = true;
  for (uint32_t i = 0; i < node->conditional.size; i++) allowed = allowed && body_allowed(node->conditional.bodies[i]);
  return allowed;
}

bool sim_graph_bodies_allowed(const struct sim_graph *graph, struct sim_node **ret_node) {
  for (uint32_t i = 0; i < graph->count; i++) {
    if (graph->nodes[i]->type != CU_GRAPH_NODE_TYPE_CONDITIONAL || bodies_allowed(graph->nodes[i])) continue;
    *ret_node = graph->nodes[i];
    return false;
  }
  return true;
}

static void reset(const struct sim_node *node) {
  struct sim_condition *condition = node->conditional.condition;
  if (condition->assigns_default) VG_STORE(&condition->value, condition->default_value);
  for (uint32_t i = 0; i < node->conditional.size; i++) sim_graph_reset_conditions(node->conditional.bodies[i]);
}

void sim_graph_reset_conditions(const struct sim_graph *graph) {
  for (uint32_t i = 0; i < graph->count; i++) {
    const struct sim_node *node = graph->nodes[i];
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) reset(node);
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) sim_graph_reset_conditions(node->child);
  }
}
