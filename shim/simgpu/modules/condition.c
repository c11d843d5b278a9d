/*
 * condition.c - handles of conditions: made for a graph, set by a kernel, gone with the graph and the nodes that name
 * them. Called by graph.c, graph_conditional.c and host_kernels.c.
 */
#include "simgpu/modules/condition.h"
#include "simgpu/base/slab.h"
#include "simgpu/process/process.h"

static struct sim_slab conditions = SIM_SLAB(sizeof(struct sim_condition), 1 << 18);

struct sim_condition *sim_condition_find(uint64_t handle) {
  return sim_slab_find(&conditions, (void *)(uintptr_t)handle, SIM_CONDITION_MAGIC);
}

struct sim_condition *sim_condition_make(struct sim_condition **list) {
  struct sim_condition *condition = sim_slab_get(&conditions, SIM_CONDITION_MAGIC);
  if (condition == NULL) return NULL;
  condition->references = 1;
  condition->next = *list;
  *list = condition;
  return condition;
}

void sim_condition_release(struct sim_condition *condition) {
  if (__atomic_sub_fetch(&condition->references, 1, __ATOMIC_ACQ_REL) == 0) sim_slab_put(&conditions, condition);
}

bool sim_condition_set(uint64_t handle, uint32_t value) {
  struct sim_condition *condition = sim_condition_find(handle);
  if (condition != NULL) VG_STORE(&condition->value, value);
  return condition != NULL;
}

void sim_conditions_drop(struct sim_condition **list) {
  while (*list != NULL) {
    struct sim_condition *condition = *list;
    *list = condition->next;
    sim_condition_release(condition);
  }
}

bool sim_conditions_used(const struct sim_condition *list) {
  bool used = true;
  for (const struct sim_condition *c = list; c != NULL; c = c->next) used = used && c->nodes != 0;
  return used;
}
