/*
 * user_object.c - reference-counted things of the program that a graph keeps alive (cuUserObject*). Called by programs,
 * and by graph.c on request and when graphs are copied and freed. Must hold: the destructor runs once, when no
 * reference is left, outside of every lock.
 */
#include "simgpu/base/slab.h"
#include "simgpu/graphs/graph.h"
#include "simgpu/process/process.h"
#include <stdlib.h>

#define USER_MAGIC 0x55534552u

struct sim_user {
  struct sim_object object;
  void *argument;
  CUhostFn destroy;
  uint32_t references;
};

static struct sim_slab users = SIM_SLAB(sizeof(struct sim_user), 1 << 18);

static struct sim_user *user_find(CUuserObject handle) {
  return sim_slab_find(&users, handle, USER_MAGIC);
}

static void retain(struct sim_user *user, uint32_t count) {
  __atomic_add_fetch(&user->references, count, __ATOMIC_RELAXED);
}

static void release(struct sim_user *user, uint32_t count) {
  if (__atomic_sub_fetch(&user->references, count, __ATOMIC_ACQ_REL) != 0) return;
  CUhostFn destroy = user->destroy;
  void *argument = user->argument;
  sim_slab_put(&users, user);
  destroy(argument);
}

SIM_PUBLIC CUresult cuUserObjectCreate(CUuserObject *ret_object, void *argument, CUhostFn destroy, unsigned references,
                                       unsigned flags) {
  if (ret_object == NULL || destroy == NULL || references == 0 || references > INT32_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  struct sim_user *user = sim_slab_get(&users, USER_MAGIC);
  if (user == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  user->argument = argument;
  user->destroy = destroy;
  user->references = references;
  *ret_object = (CUuserObject)user;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuUserObjectRetain(CUuserObject handle, unsigned count) {
  struct sim_user *user = user_find(handle);
  if (user == NULL || count == 0 || count > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  retain(user, count);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuUserObjectRelease(CUuserObject handle, unsigned count) {
  struct sim_user *user = user_find(handle);
  if (user == NULL || count == 0 || count > VG_LOAD_RELAXED(&user->references)) return CUDA_ERROR_INVALID_VALUE;
  release(user, count);
  return CUDA_SUCCESS;
}

static CUresult hold(struct sim_graph *graph, struct sim_user *user, uint32_t count) {
  for (struct sim_held *held = graph->held; held != NULL; held = held->next) {
    if (held->user != user) continue;
    held->count += count;
    return CUDA_SUCCESS;
  }
  struct sim_held *held = malloc(sizeof *held);
  if (held == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *held = (struct sim_held){user, count, graph->held};
  graph->held = held;
  return CUDA_SUCCESS;
}

CUresult sim_graph_hold(struct sim_graph *graph, CUuserObject object, unsigned count, bool moves) {
  struct sim_user *user = user_find(object);
  if (user == NULL || count == 0 || count > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = hold(graph, user, count);
  if (result == CUDA_SUCCESS && !moves) retain(user, count);
  return result;
}

CUresult sim_graph_release(struct sim_graph *graph, CUuserObject object, unsigned count) {
  struct sim_user *user = user_find(object);
  if (user == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (struct sim_held **at = &graph->held; *at != NULL; at = &(*at)->next) {
    struct sim_held *held = *at;
    if (held->user != user) continue;
    if (held->count < count) return CUDA_ERROR_INVALID_VALUE;
    held->count -= count;
    if (held->count == 0) {
      *at = held->next;
      free(held);
    }
    release(user, count);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_graph_copy_held(struct sim_graph *graph, const struct sim_graph *from) {
  CUresult result = CUDA_SUCCESS;
  for (const struct sim_held *held = from->held; held != NULL && result == CUDA_SUCCESS; held = held->next) {
    result = hold(graph, held->user, held->count);
    if (result == CUDA_SUCCESS) retain(held->user, held->count);
  }
  return result;
}

void sim_graph_drop_held(struct sim_graph *graph) {
  while (graph->held != NULL) {
    struct sim_held *held = graph->held;
    graph->held = held->next;
    release(held->user, held->count);
    free(held);
  }
}
