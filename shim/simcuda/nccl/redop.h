/*
 * redop.h - operators that programs make: ncclRedOpCreatePreMulSum (redop.c).
 */
#ifndef SC_NCCL_REDOP_H
#define SC_NCCL_REDOP_H
#include "simcuda/nccl/operation.h"

/* Puts a built-in operator in place of the operation's, and the factor that its elements are multiplied with. */
ncclResult_t sc_redop_resolve(struct sc_operation *operation, const char *function);

#endif
