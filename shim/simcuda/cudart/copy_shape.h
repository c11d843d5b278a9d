/* copy_shape.h - copies of boxes, from the runtime's form to the driver's. Called by nodes of graphs as well. */
#ifndef SC_CUDART_COPY_SHAPE_H
#define SC_CUDART_COPY_SHAPE_H
#include "simcuda/cudart/runtime.h"

/* Of one channel; 0: none of the formats that the runtime describes. */
size_t sc_format_bytes(CUarray_format format);
cudaError_t sc_read_copy(const struct sc_driver *driver, const struct cudaMemcpy3DParms *from, CUDA_MEMCPY3D *ret_copy);

#endif
