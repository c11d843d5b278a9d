/* nodes.c - see nodes.h. */
#include "simcuda/cudnn/nodes.h"
#include <stdlib.h>
#include <string.h>

struct sc_dnn_node *sc_dnn_create_node(int type) {
  struct sc_dnn_node *node = calloc(1, sizeof *node);
  if (node == NULL) return NULL;
  node->reference_count = 1;
  node->type = type;
  return node;
}

struct sc_dnn_node *sc_dnn_refer(struct sc_dnn_node *node) {
  __atomic_fetch_add(&node->reference_count, 1, __ATOMIC_RELAXED);
  return node;
}

static void clear_value(struct sc_dnn_value *value) {
  struct sc_dnn_node **nodes = value->elements;
  if (value->element_type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < value->count; i++) sc_dnn_release(nodes[i]);
  free(value->elements);
}

/* As deep as operations, graph, engine, configuration and plan refer to each other. */
void sc_dnn_release(struct sc_dnn_node *node) {
  if (node == NULL || __atomic_sub_fetch(&node->reference_count, 1, __ATOMIC_ACQ_REL) > 0) return;
  for (int i = 0; i < node->value_count; i++) clear_value(&node->values[i]);
  free(node->values);
  free(node);
}

size_t sc_dnn_find_value_bytes(int element_type) {
  switch (element_type) {
  case CUDNN_TYPE_BOOLEAN:
    return sizeof(bool);
  case CUDNN_TYPE_CHAR:
    return sizeof(char);
  case CUDNN_TYPE_INT64:
    return sizeof(int64_t);
  case CUDNN_TYPE_DOUBLE:
    return sizeof(double);
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    return sizeof(void *);
  case CUDNN_TYPE_FRACTION:
    return 2 * sizeof(int64_t);
  default:
    return element_type >= 0 && element_type <= CUDNN_TYPE_CUDA_GRAPH_RETENTION ? sizeof(int32_t) : 0;
  }
}

bool sc_dnn_has_attribute(int type, int attribute) {
  static const struct {
    short first;
    short last;
  } ranges[CUDNN_BACKEND_DESCRIPTOR_TYPES] = {
      {0, 9},       {100, 106},   {1300, 1309}, {300, 304},   {200, 205},   {400, 408},   {500, 503},   {600, 601},
      {1200, 1203}, {1100, 1101}, {700, 705},   {712, 717},   {706, 711},   {750, 758},   {770, 774},   {800, 806},
      {1000, 1012}, {900, 914},   {1500, 1503}, {1520, 1527}, {780, 796},   {1600, 1602}, {1610, 1646}, {1620, 1630},
      {1700, 1708}, {1710, 1716}, {1720, 1727}, {1800, 1803}, {1900, 1904}, {2000, 2014}, {2100, 2110}, {2200, 2202},
      {2300, 2305}, {2310, 2313}, {2400, 2404}, {1950, 1953}, {2500, 2504}, {2600, 2605}, {2700, 2702}, {2250, 2257},
      {2270, 2276}, {2800, 2829}, {2900, 2908}, {2851, 2875}, {3000, 3009}, {3100, 3106}, {3200, 3202}, {3300, 3304},
      {2951, 2955}, {3400, 3404}, {3410, 3414},
  };
  return attribute >= ranges[type].first && attribute <= ranges[type].last;
}

static struct sc_dnn_value *find_place(struct sc_dnn_node *node, int attribute) {
  for (int i = 0; i < node->value_count; i++)
    if (node->values[i].attribute == attribute) return &node->values[i];
  size_t bytes = ((size_t)node->value_count + 1) * sizeof *node->values;
  struct sc_dnn_value *values = realloc(node->values, bytes);
  if (values == NULL) return NULL;
  node->values = values;
  values[node->value_count] = (struct sc_dnn_value){.attribute = attribute};
  return &values[node->value_count++];
}

int sc_dnn_set_value(struct sc_dnn_node *node, int attribute, int element_type, int64_t count, const void *elements) {
  size_t bytes = (size_t)count * sc_dnn_find_value_bytes(element_type);
  void *copy = malloc(bytes + 1); /* never of no bytes */
  struct sc_dnn_value *value = copy == NULL ? NULL : find_place(node, attribute);
  if (value == NULL) {
    free(copy);
    return sc_dnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory for an attribute");
  }
  if (bytes > 0) memcpy(copy, elements, bytes);
  if (element_type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < count; i++) sc_dnn_refer(((struct sc_dnn_node **)copy)[i]);
  clear_value(value);
  *value = (struct sc_dnn_value){attribute, element_type, count, copy};
  return CUDNN_STATUS_SUCCESS;
}

const struct sc_dnn_value *sc_dnn_find_value(const struct sc_dnn_node *node, int attribute) {
  for (int i = 0; node != NULL && i < node->value_count; i++)
    if (node->values[i].attribute == attribute) return &node->values[i];
  return NULL;
}

struct sc_dnn_node *sc_dnn_find_node(const struct sc_dnn_node *node, int attribute, int type) {
  const struct sc_dnn_value *value = sc_dnn_find_value(node, attribute);
  if (value == NULL || value->element_type != CUDNN_TYPE_BACKEND_DESCRIPTOR || value->count == 0) return NULL;
  struct sc_dnn_node *first = *(struct sc_dnn_node **)value->elements;
  return first->type == type ? first : NULL;
}

int64_t sc_dnn_find_integer(const struct sc_dnn_node *node, int attribute, int64_t otherwise) {
  const struct sc_dnn_value *value = sc_dnn_find_value(node, attribute);
  if (value == NULL || value->count != 1) return otherwise;
  switch (value->element_type) {
  case CUDNN_TYPE_INT64:
    return *(int64_t *)value->elements;
  case CUDNN_TYPE_BOOLEAN:
    return *(bool *)value->elements;
  case CUDNN_TYPE_FLOAT:
  case CUDNN_TYPE_DOUBLE:
  case CUDNN_TYPE_CHAR:
  case CUDNN_TYPE_FRACTION:
    return otherwise;
  default:
    return sc_dnn_find_value_bytes(value->element_type) == sizeof(int32_t) ? *(int32_t *)value->elements : otherwise;
  }
}
