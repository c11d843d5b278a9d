/*
 * nodes.h - descriptors of the graph interface: nodes with attributes. What a program holds is a reference to a node; a
 * node does not change any more once it is finalized, so others refer to it, and copies (which cudnnBackendGetAttribute
 * makes) are references to the same one.
 */
#ifndef SC_CUDNN_NODES_H
#define SC_CUDNN_NODES_H
#include "simcuda/cudnn/graph_abi.h"
#include "simcuda/cudnn/handle.h"

struct sc_dnn_value {
  int attribute;
  int element_type;
  int64_t count;
  void *elements; /* of CUDNN_TYPE_BACKEND_DESCRIPTOR: nodes, each referred to */
};

/* What running a plan takes. */
struct sc_dnn_work {
  enum sc_work kind;
  struct sc_cost cost;
};

struct sc_dnn_node {
  int reference_count;
  int type; /* enum cudnn_backend_descriptor_type */
  bool is_final;
  int value_count;
  struct sc_dnn_value *values;
  struct sc_dnn_work work; /* of an execution plan */
};

#define SC_DNN_ELEMENTS_MAX 4096 /* of an attribute */

/* NULL: no memory. The caller has the only reference. */
struct sc_dnn_node *sc_dnn_create_node(int type);
struct sc_dnn_node *sc_dnn_refer(struct sc_dnn_node *node);
void sc_dnn_release(struct sc_dnn_node *node);

/* Bytes of an element of an attribute; 0: there is no such type. */
size_t sc_dnn_find_value_bytes(int element_type);

/* Whether descriptors of that type have the attribute. */
bool sc_dnn_has_attribute(int type, int attribute);

/* Sets an attribute, in place of what it was. elements: copied; of CUDNN_TYPE_BACKEND_DESCRIPTOR nodes, which get a
 * reference each. Returns a status. */
int sc_dnn_set_value(struct sc_dnn_node *node, int attribute, int element_type, int64_t count, const void *elements);

/* NULL: it is not set. */
const struct sc_dnn_value *sc_dnn_find_value(const struct sc_dnn_node *node, int attribute);

/* The first node of an attribute, which has to be of that type; NULL: there is none. */
struct sc_dnn_node *sc_dnn_find_node(const struct sc_dnn_node *node, int attribute, int type);

/* The only integer, enumeration value or boolean of an attribute; otherwise what is given in its place. */
int64_t sc_dnn_find_integer(const struct sc_dnn_node *node, int attribute, int64_t otherwise);

#endif
