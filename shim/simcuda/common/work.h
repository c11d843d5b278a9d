/*
 * work.h - device work of a known length, as the libraries of the simulated device start it: a kernel that computes
 * nothing, takes the time that its first parameter says, and counts as so many operations as the second one says
 * (kernels.model, ns= and flops=).
 */
#ifndef SC_WORK_H
#define SC_WORK_H
#include "gen/abi/cuda_abi.h"
#include <stdint.h>

enum sc_work {
  SC_WORK_GEMM,
  SC_WORK_CONVOLUTION,
  SC_WORK_ATTENTION,
  SC_WORK_NORMALIZATION,
  SC_WORK_ELEMENTWISE,
  SC_WORK_RECURRENT,
  SC_WORK_FFT,
  SC_WORK_SOLVER,
  SC_WORK_SPARSE,
  SC_WORK_KINDS
};

/* Puts a kernel of that kind and length into the stream, in the current context; captured where the stream is.
 * flops: its operations, which are only counted. */
CUresult sc_launch_work(enum sc_work kind, CUstream stream, uint64_t duration_ns, double flops);

#endif
