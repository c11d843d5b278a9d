/*
 * failure.h - what went wrong last, in words: ncclGetLastError. Everything here that fails says why through this.
 */
#ifndef SC_NCCL_FAILURE_H
#define SC_NCCL_FAILURE_H
#include "simcuda/nccl/nccl_abi.h"

/* Keeps the words for ncclGetLastError and returns the result; NCCL_DEBUG (any value but "VERSION") says them on
 * standard error as well. */
ncclResult_t sc_nccl_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a call of the driver; CUDA_SUCCESS is ncclSuccess. */
ncclResult_t sc_nccl_check(CUresult result, const char *call);

#endif
