/*
 * resolve_ml.h - the real NVML behind libvgpu-ml.so: which file it is and its functions.
 */
#ifndef VG_RESOLVE_ML_H
#define VG_RESOLVE_ML_H
#include "abi/nvml_abi.h"

#include <stddef.h>

/* The real library's function of that name; NULL when it has none or there is no real library. */
void *vg_ml_symbol(const char *name);

/* VG_ML_HOOK nvmlReturn_t nvmlFoo(...): a function that the shim defines (generate_ml.py finds them by this word). */
#define VG_ML_HOOK NVML_EXPORT
/* Calls the real function, or answers that there is none. */
#define VG_ML_REAL(name, ...)                                                                                          \
  ({                                                                                                                   \
    __typeof__(&name) real_function = (__typeof__(&name))vg_ml_symbol(#name);                                          \
    real_function == NULL ? vg_ml_missing() : real_function(__VA_ARGS__);                                              \
  })
nvmlReturn_t vg_ml_missing(void); /* FUNCTION_NOT_FOUND, or LIBRARY_NOT_FOUND without a real library */

#endif
