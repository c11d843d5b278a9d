/* finalize.h - descriptors of the graph interface that are complete: what they are checked for, what they answer. */
#ifndef SC_CUDNN_FINALIZE_H
#define SC_CUDNN_FINALIZE_H
#include "simcuda/cudnn/nodes.h"

/* Checks a node's attributes and adds those that it answers, such as the engines of a graph. Returns a status. */
int sc_dnn_finalize(struct sc_dnn_node *node);

#endif
