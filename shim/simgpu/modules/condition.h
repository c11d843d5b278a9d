/*
 * condition.h - the values that conditional nodes of graphs look at. The value belongs to the handle, whichever
 * executable runs.
 */
#ifndef VG_SIM_CONDITION_H
#define VG_SIM_CONDITION_H
#include "simgpu/base/slab.h"

#define SIM_CONDITION_MAGIC 0x434f4e44u

struct sim_condition {
  struct sim_object object;
  uint32_t references; /* the graph that it was made for, nodes */
  uint32_t nodes;
  uint32_t value, default_value;
  bool assigns_default;
  struct sim_condition *next; /* of the graph */
};

struct sim_condition *sim_condition_find(uint64_t handle);             /* NULL: no live one */
struct sim_condition *sim_condition_make(struct sim_condition **list); /* NULL: none left */
void sim_condition_release(struct sim_condition *condition);           /* a reference less */
bool sim_condition_set(uint64_t handle, uint32_t value);               /* false: there is no such handle */
void sim_conditions_drop(struct sim_condition **list);                 /* of a graph that is gone */
bool sim_conditions_used(const struct sim_condition *list);            /* every handle has a node */

#endif
