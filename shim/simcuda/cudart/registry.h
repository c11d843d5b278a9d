/*
 * registry.h - the fat binaries that a program has registered, with their kernels and variables. A fat binary is loaded
 * into the driver when one of them is first used, since a program registers thousands of kernels at its start.
 */
#ifndef SC_CUDART_REGISTRY_H
#define SC_CUDART_REGISTRY_H
#include "simcuda/cudart/runtime.h"

/* The driver's kernel of what a program names one by: the host function that stands for it, or a handle of a kernel,
 * its own or the driver's. A context must be current. */
cudaError_t sc_find_kernel(const struct sc_driver *driver, const void *name, CUkernel *ret_kernel);
/* The same, as a function of the current context. */
cudaError_t sc_find_function(const struct sc_driver *driver, const void *name, CUfunction *ret_function);
/* Where a registered variable lies on the current device. */
cudaError_t sc_find_variable(const struct sc_driver *driver, const void *name, CUdeviceptr *ret_address,
                             size_t *ret_bytes);
/* Where bytes of it lie: with a context, and the error kept, as an entry point does. */
cudaError_t sc_locate_variable(const void *name, size_t offset, size_t bytes, void **ret_pointer);
/* The host function of a kernel; the kernel itself, if it has none. */
const void *sc_name_of_kernel(CUkernel kernel);
/* What was allocated for variables on a device is gone with its context. */
void sc_forget_variables(int device);

#endif
