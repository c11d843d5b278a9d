/*
 * graph_node.h - parameters of nodes, from the runtime's form to the driver's. Called by the graph_node files and by
 * those of the major versions.
 */
#ifndef SC_CUDART_GRAPH_NODE_H
#define SC_CUDART_GRAPH_NODE_H
#include "simcuda/cudart/registry.h"

cudaError_t sc_read_kernel_node(const struct sc_driver *driver, const struct cudaKernelNodeParams *from,
                                CUDA_KERNEL_NODE_PARAMS_v3 *ret_params);

/* cudaGraphAddNode, whose form has changed between versions. edges may be NULL. */
cudaError_t sc_add_node(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                        const CUgraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *params);

#endif
