/* graph_node.h - parameters of kernel nodes, from the runtime's form to the driver's. Called by the graph_node files.
 */
#ifndef SC_CUDART_GRAPH_NODE_H
#define SC_CUDART_GRAPH_NODE_H
#include "simcuda/cudart/registry.h"

cudaError_t sc_read_kernel_node(const struct sc_driver *driver, const struct cudaKernelNodeParams *from,
                                CUDA_KERNEL_NODE_PARAMS_v3 *ret_params);

#endif
