/* error.c - the last error of each thread; names and texts of errors. */
#include "simcuda/cudart/runtime.h"

static __thread cudaError_t last_error;

cudaError_t sc_end(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

SC_PUBLIC cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

SC_PUBLIC cudaError_t cudaPeekAtLastError(void) {
  return last_error;
}

SC_PUBLIC const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define SC_ERROR(number, name, text)                                                                                   \
  case number:                                                                                                         \
    return #name;
    SC_ERRORS(SC_ERROR)
#undef SC_ERROR
  default:
    return "unrecognized error code";
  }
}

SC_PUBLIC const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define SC_ERROR(number, name, text)                                                                                   \
  case number:                                                                                                         \
    return text;
    SC_ERRORS(SC_ERROR)
#undef SC_ERROR
  default:
    return "unrecognized error code";
  }
}
