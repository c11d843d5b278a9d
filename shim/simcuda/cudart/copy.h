/* copy.h - entry points that other files of the runtime call as well: copies of bytes. */
#ifndef SC_CUDART_COPY_H
#define SC_CUDART_COPY_H
#include "simcuda/cudart/cudart_abi.h"

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, CUstream stream);

#endif
