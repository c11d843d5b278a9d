/*
 * handle.c - handles of the simulated cuBLASLt, for programs that have none of cuBLAS, which serves as well. They hold
 * nothing: products only look whether there is one.
 */
#include "simcuda/cublaslt/attributes.h"
#include <stdlib.h>

struct sc_lt_handle {
  char reserved;
};

SC_PUBLIC enum sc_lt_status cublasLtCreate(struct sc_lt_handle **ret_handle) {
  if (ret_handle == NULL) return SC_LT_INVALID_VALUE;
  *ret_handle = calloc(1, sizeof **ret_handle);
  return *ret_handle == NULL ? SC_LT_ALLOC_FAILED : SC_LT_SUCCESS;
}

SC_PUBLIC enum sc_lt_status cublasLtDestroy(struct sc_lt_handle *handle) {
  if (handle == NULL) return SC_LT_NOT_INITIALIZED;
  free(handle);
  return SC_LT_SUCCESS;
}
