/*
 * reduce.h - the arithmetic of reductions, on the host (reduce.c).
 */
#ifndef SC_NCCL_REDUCE_H
#define SC_NCCL_REDUCE_H
#include "simcuda/nccl/nccl_abi.h"

/* result[i] = the inputs' [i] reduced in the order of the ranks; result may be one of the inputs. Narrow floats are
 * added in single precision and rounded once, integers wrap. */
void sc_reduce(ncclDataType_t type, ncclRedOp_t redop, void *result, const uint8_t *const *inputs, uint32_t input_count,
               uint64_t count);
/* result[i] = input[i] times the factor, whose bytes are given. */
void sc_multiply(ncclDataType_t type, void *result, const void *input, uint64_t factor, uint64_t count);

#endif
