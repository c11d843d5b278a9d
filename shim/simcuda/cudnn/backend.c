/*
 * backend.c - cuDNN's graph interface as programs call it: descriptors that are made, given attributes, finalized,
 * asked for attributes, executed and destroyed. nodes.h keeps them, finalize.c checks them and adds what they answer.
 */
#include "simcuda/common/public.h"
#include "simcuda/cudnn/finalize.h"
#include "simcuda/cudnn/nodes.h"
#include <stdlib.h>
#include <string.h>

#define DESCRIPTOR_MARK 0x6264646eu

/* cudnnBackendDescriptor_t */
struct descriptor {
  uint32_t mark;
  struct sc_dnn_node *node;
};

static bool is_descriptor(const struct descriptor *descriptor) {
  return descriptor != NULL && descriptor->mark == DESCRIPTOR_MARK;
}

SC_PUBLIC int cudnnBackendCreateDescriptor(int type, struct descriptor **ret_descriptor) {
  if (ret_descriptor == NULL)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "there is no place for the descriptor");
  if (type < 0 || type >= CUDNN_BACKEND_DESCRIPTOR_TYPES)
    return sc_dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "there is no such type of descriptor");
  struct descriptor *descriptor = malloc(sizeof *descriptor);
  struct sc_dnn_node *node = sc_dnn_create_node(type);
  if (descriptor == NULL || node == NULL) {
    free(descriptor);
    sc_dnn_release(node);
    return sc_dnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory for a descriptor");
  }
  *descriptor = (struct descriptor){DESCRIPTOR_MARK, node};
  *ret_descriptor = descriptor;
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnBackendDestroyDescriptor(struct descriptor *descriptor) {
  if (descriptor == NULL) return CUDNN_STATUS_SUCCESS;
  if (!is_descriptor(descriptor)) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "that is no descriptor of a graph");
  descriptor->mark = 0;
  sc_dnn_release(descriptor->node);
  free(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

/* Descriptors among the elements become their nodes. */
static int set_descriptors(struct sc_dnn_node *node, int attribute, int64_t count,
                           struct descriptor *const *descriptors) {
  struct sc_dnn_node *nodes[SC_DNN_ELEMENTS_MAX];
  for (int64_t i = 0; i < count; i++) {
    if (!is_descriptor(descriptors[i])) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "an attribute refers to nothing");
    if (!descriptors[i]->node->is_final)
      return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "an attribute refers to what is not finalized");
    nodes[i] = descriptors[i]->node;
  }
  return sc_dnn_set_value(node, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, nodes);
}

SC_PUBLIC int cudnnBackendSetAttribute(struct descriptor *descriptor, int attribute, int element_type, int64_t count,
                                       const void *elements) {
  if (!is_descriptor(descriptor) || (count > 0 && elements == NULL))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an attribute needs a descriptor and elements");
  if (descriptor->node->is_final)
    return sc_dnn_fail(CUDNN_STATUS_NOT_INITIALIZED, "a descriptor that is finalized takes no attributes");
  if (!sc_dnn_has_attribute(descriptor->node->type, attribute))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "descriptors of that type have no such attribute");
  if (sc_dnn_find_value_bytes(element_type) == 0)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "there is no such type of elements");
  if (count < 0 || (count > SC_DNN_ELEMENTS_MAX && element_type != CUDNN_TYPE_CHAR) || count > INT32_MAX)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "an attribute has at most 4096 elements");
  if (element_type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    return set_descriptors(descriptor->node, attribute, count, elements);
  return sc_dnn_set_value(descriptor->node, attribute, element_type, count, elements);
}

/* The program made the descriptors; they become references to the nodes. */
static int give_descriptors(const struct sc_dnn_value *value, int64_t count, struct descriptor *const *descriptors) {
  struct sc_dnn_node *const *nodes = value->elements;
  for (int64_t i = 0; i < count; i++) {
    if (!is_descriptor(descriptors[i]) || descriptors[i]->node->type != nodes[i]->type)
      return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "an attribute is asked for without descriptors of its type");
    struct sc_dnn_node *before = descriptors[i]->node;
    descriptors[i]->node = sc_dnn_refer(nodes[i]);
    sc_dnn_release(before);
  }
  return CUDNN_STATUS_SUCCESS;
}

/* ret_count: as many as there are, also where fewer were asked for. */
SC_PUBLIC int cudnnBackendGetAttribute(const struct descriptor *descriptor, int attribute, int element_type,
                                       int64_t requested, int64_t *ret_count, void *ret_elements) {
  if (!is_descriptor(descriptor) || (ret_count == NULL && ret_elements == NULL))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an attribute is asked for with a descriptor and a place");
  if (!descriptor->node->is_final)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor that is not finalized has no attributes");
  if (!sc_dnn_has_attribute(descriptor->node->type, attribute) || requested < 0)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "descriptors of that type have no such attribute");
  const struct sc_dnn_value *value = sc_dnn_find_value(descriptor->node, attribute);
  if (value == NULL) return sc_dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "the attribute was not set");
  if (value->element_type != element_type)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "the attribute's elements are of another type");
  if (ret_count != NULL) *ret_count = value->count;
  int64_t count = requested < value->count ? requested : value->count;
  if (ret_elements == NULL || count == 0) return CUDNN_STATUS_SUCCESS;
  if (element_type == CUDNN_TYPE_BACKEND_DESCRIPTOR) return give_descriptors(value, count, ret_elements);
  memcpy(ret_elements, value->elements, (size_t)count * sc_dnn_find_value_bytes(element_type));
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnBackendFinalize(struct descriptor *descriptor) {
  if (!is_descriptor(descriptor))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "there is no descriptor to finalize");
  if (descriptor->node->is_final) return CUDNN_STATUS_SUCCESS;
  int status = sc_dnn_finalize(descriptor->node);
  descriptor->node->is_final = status == CUDNN_STATUS_SUCCESS;
  return status;
}

SC_PUBLIC int cudnnBackendExecute(const struct sc_dnn_handle *handle, const struct descriptor *plan,
                                  const struct descriptor *pack) {
  if (!is_descriptor(plan) || !is_descriptor(pack))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "executing needs a plan and a variant pack");
  if (plan->node->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      pack->node->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "executing needs a plan and a variant pack");
  if (!plan->node->is_final || !pack->node->is_final)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "plan or variant pack is not finalized");
  const struct sc_dnn_work *work = &plan->node->work;
  return sc_dnn_launch(handle, work->kind, work->cost);
}
