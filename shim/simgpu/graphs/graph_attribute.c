/*
 * graph_attribute.c - attributes of kernel nodes: kept and answered; none changes what the simulated device does.
 * Called by graph.c and graph_node_params.c.
 */
#include "simgpu/graphs/graph.h"
#include <stdlib.h>

struct sim_attribute {
  CUlaunchAttributeID id;
  CUlaunchAttributeValue value;
  struct sim_attribute *next;
};

void sim_node_drop_attributes(struct sim_node *node) {
  while (node->attributes != NULL) {
    struct sim_attribute *attribute = node->attributes;
    node->attributes = attribute->next;
    free(attribute);
  }
}

static struct sim_attribute *find(const struct sim_node *node, CUlaunchAttributeID id) {
  struct sim_attribute *attribute = node->attributes;
  while (attribute != NULL && attribute->id != id) attribute = attribute->next;
  return attribute;
}

CUresult sim_node_set_attribute(struct sim_node *node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value) {
  struct sim_attribute *attribute = find(node, id);
  if (attribute == NULL) {
    attribute = calloc(1, sizeof *attribute);
    if (attribute == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    attribute->id = id;
    attribute->next = node->attributes;
    node->attributes = attribute;
  }
  attribute->value = *value;
  return CUDA_SUCCESS;
}

CUresult sim_node_copy_attributes(struct sim_node *node, const struct sim_node *from) {
  CUresult result = CUDA_SUCCESS;
  sim_node_drop_attributes(node);
  for (const struct sim_attribute *a = from->attributes; a != NULL && result == CUDA_SUCCESS; a = a->next)
    result = sim_node_set_attribute(node, a->id, &a->value);
  return result;
}

CUlaunchAttributeValue sim_node_attribute(const struct sim_node *node, CUlaunchAttributeID id) {
  const struct sim_attribute *attribute = find(node, id);
  return attribute == NULL ? (CUlaunchAttributeValue){0} : attribute->value;
}
