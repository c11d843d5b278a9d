/*
 * graph_batch.c - nodes of memory operations (cuStreamBatchMemOp as a node) and of external semaphores: both hold lists
 * and do at a launch what the stream's own call does. Called by programs and graph_node_params.c.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/graphs/graph.h"
#include "simgpu/graphs/graph_node.h"
#include "simgpu/process/current.h"
#include "simgpu/streams/external_semaphore.h"
#include <stdlib.h>
#include <string.h>

#define BATCH_MAX 256 /* operations in one call */
#define SIGNAL CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
#define WAIT CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT
#define BATCH CU_GRAPH_NODE_TYPE_BATCH_MEM_OP

/* A copy of a list; NULL also when it is empty or there is no memory. */
static void *copy_of(const void *list, size_t count, size_t each_bytes) {
  void *copy = count == 0 ? NULL : malloc(count * each_bytes);
  if (copy != NULL) memcpy(copy, list, count * each_bytes);
  return copy;
}

static CUresult copy(struct sim_node *node, const struct sim_node *from);

static void drop(struct sim_node *node) {
  if (node->type == BATCH) {
    free(node->batch.paramArray);
    memset(&node->batch, 0, sizeof node->batch);
  } else {
    free(node->semaphores.handles);
    free(node->semaphores.params);
    memset(&node->semaphores, 0, sizeof node->semaphores);
  }
}

static CUresult run(const struct sim_node *node, struct sim_stream *stream) {
  CUstream handle = stream == &stream->context->legacy ? CU_STREAM_LEGACY : (CUstream)stream;
  const struct sim_semaphores *list = &node->semaphores;
  CUresult result;
  switch (node->type) {
  case SIGNAL:
    result = sim_semaphores_check_signal(list->handles, list->params, list->count);
    return result == CUDA_SUCCESS ? sim_semaphores_signal(stream, list->handles, list->params, list->count) : result;
  case WAIT:
    result = sim_semaphores_check_wait(list->handles, list->params, list->count);
    return result == CUDA_SUCCESS ? sim_semaphores_wait(stream, list->handles, list->params, list->count) : result;
  default:
    return cuStreamBatchMemOp_v2(handle, node->batch.count, node->batch.paramArray, node->batch.flags);
  }
}

static const struct sim_node_work batch_work = {copy, drop, run};

CUresult sim_node_set_batch(struct sim_node *node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
  struct sim_context *context;
  if (params == NULL || params->count == 0 || params->count > BATCH_MAX || params->paramArray == NULL ||
      params->flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = sim_node_context(params->ctx, &context);
  if (result != CUDA_SUCCESS) return result;
  for (unsigned i = 0; i < params->count; i++) {
    unsigned operation = params->paramArray[i].operation;
    bool has_address = operation != CU_STREAM_MEM_OP_BARRIER && operation != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
    struct sim_allocation allocation;
    if (has_address && !sim_memory_find(params->paramArray[i].waitValue.address, &allocation))
      return CUDA_ERROR_INVALID_VALUE;
  }
  void *ops = copy_of(params->paramArray, params->count, sizeof *params->paramArray);
  if (ops == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  sim_node_drop_work(node);
  node->work = &batch_work;
  node->batch = *params;
  node->batch.paramArray = ops;
  node->context = context;
  return CUDA_SUCCESS;
}

/* Signals and waits differ in the type of their parameters only. */
static CUresult set_semaphores(struct sim_node *node, CUexternalSemaphore *handles, const void *params, unsigned count,
                               size_t each_bytes) {
  if (count == 0 || handles == NULL || params == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct sim_semaphores list = {.handles = copy_of(handles, count, sizeof *handles),
                                .params = copy_of(params, count, each_bytes),
                                .count = count};
  if (list.handles == NULL || list.params == NULL) {
    free(list.handles);
    free(list.params);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  sim_node_drop_work(node);
  node->work = &batch_work;
  node->semaphores = list;
  return CUDA_SUCCESS;
}

CUresult sim_node_set_signal(struct sim_node *node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  return set_semaphores(node, params->extSemArray, params->paramsArray, params->numExtSems,
                        sizeof *params->paramsArray);
}

CUresult sim_node_set_wait(struct sim_node *node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  return set_semaphores(node, params->extSemArray, params->paramsArray, params->numExtSems,
                        sizeof *params->paramsArray);
}

static CUDA_EXT_SEM_SIGNAL_NODE_PARAMS read_signal(const struct sim_node *node) {
  const struct sim_semaphores *list = &node->semaphores;
  return (CUDA_EXT_SEM_SIGNAL_NODE_PARAMS){list->handles, list->params, list->count};
}

static CUDA_EXT_SEM_WAIT_NODE_PARAMS read_wait(const struct sim_node *node) {
  const struct sim_semaphores *list = &node->semaphores;
  return (CUDA_EXT_SEM_WAIT_NODE_PARAMS){list->handles, list->params, list->count};
}

static CUresult copy(struct sim_node *node, const struct sim_node *from) {
  CUDA_EXT_SEM_SIGNAL_NODE_PARAMS signal;
  CUDA_EXT_SEM_WAIT_NODE_PARAMS wait;
  switch (from->type) {
  case SIGNAL:
    signal = read_signal(from);
    return sim_node_set_signal(node, &signal);
  case WAIT:
    wait = read_wait(from);
    return sim_node_set_wait(node, &wait);
  default:
    return sim_node_set_batch(node, &from->batch);
  }
}

SIM_NODE_ADD(cuGraphAddBatchMemOpNode, BATCH, sim_node_set_batch(node, params),
             const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
SIM_NODE_GET(cuGraphBatchMemOpNodeGetParams, BATCH, CUDA_BATCH_MEM_OP_NODE_PARAMS, node->batch)
SIM_NODE_SET(cuGraphBatchMemOpNodeSetParams, BATCH, const CUDA_BATCH_MEM_OP_NODE_PARAMS *,
             sim_node_set_batch(node, value))
SIM_NODE_SET_EXEC(cuGraphExecBatchMemOpNodeSetParams, BATCH, const CUDA_BATCH_MEM_OP_NODE_PARAMS *,
                  sim_node_set_batch(node, value))

/* Signals and waits: the same entry points. An executable keeps the number of semaphores. */
#define SEMAPHORES(name, type, params_type, set, read)                                                                 \
  SIM_NODE_ADD(cuGraphAddExternalSemaphores##name##Node, type, set(node, params), const params_type *params)           \
  SIM_NODE_GET(cuGraphExternalSemaphores##name##NodeGetParams, type, params_type, read(node))                          \
  SIM_NODE_SET(cuGraphExternalSemaphores##name##NodeSetParams, type, const params_type *, set(node, value))            \
  SIM_NODE_SET_EXEC(cuGraphExecExternalSemaphores##name##NodeSetParams, type, const params_type *,                     \
                    value == NULL || value->numExtSems != node->semaphores.count ? CUDA_ERROR_INVALID_VALUE            \
                                                                                 : set(node, value))
SEMAPHORES(Signal, SIGNAL, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, sim_node_set_signal, read_signal)
SEMAPHORES(Wait, WAIT, CUDA_EXT_SEM_WAIT_NODE_PARAMS, sim_node_set_wait, read_wait)
