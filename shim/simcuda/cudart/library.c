/* library.c - code that the program loads itself, and entry points of the driver. */
#include "simcuda/cudart/runtime.h"

SC_PUBLIC cudaError_t cudaLibraryLoadData(CUlibrary *ret_library, const void *code, CUjit_option *options,
                                          void **values, unsigned count, CUlibraryOption *library_options,
                                          void **library_values, unsigned library_count) {
  return SC_CALL(cuLibraryLoadData, ret_library, code, options, values, count, library_options, library_values,
                 library_count);
}

SC_PUBLIC cudaError_t cudaLibraryLoadFromFile(CUlibrary *ret_library, const char *path, CUjit_option *options,
                                              void **values, unsigned count, CUlibraryOption *library_options,
                                              void **library_values, unsigned library_count) {
  return SC_CALL(cuLibraryLoadFromFile, ret_library, path, options, values, count, library_options, library_values,
                 library_count);
}

SC_PUBLIC cudaError_t cudaLibraryUnload(CUlibrary library) {
  return SC_CALL(cuLibraryUnload, library);
}

SC_PUBLIC cudaError_t cudaLibraryGetKernel(CUkernel *ret_kernel, CUlibrary library, const char *name) {
  return SC_CALL(cuLibraryGetKernel, ret_kernel, library, name);
}

SC_PUBLIC cudaError_t cudaLibraryGetKernelCount(unsigned *ret_count, CUlibrary library) {
  return SC_CALL(cuLibraryGetKernelCount, ret_count, library);
}

SC_PUBLIC cudaError_t cudaLibraryEnumerateKernels(CUkernel *ret_kernels, unsigned count, CUlibrary library) {
  return SC_CALL(cuLibraryEnumerateKernels, ret_kernels, count, library);
}

SC_PUBLIC cudaError_t cudaLibraryGetGlobal(void **ret_pointer, size_t *ret_bytes, CUlibrary library, const char *name) {
  return SC_CALL(cuLibraryGetGlobal, (CUdeviceptr *)ret_pointer, ret_bytes, library, name);
}

SC_PUBLIC cudaError_t cudaLibraryGetManaged(void **ret_pointer, size_t *ret_bytes, CUlibrary library,
                                            const char *name) {
  return SC_CALL(cuLibraryGetManaged, (CUdeviceptr *)ret_pointer, ret_bytes, library, name);
}

/* A name that the driver does not have is no error to who asks for the reason; else it is. */
cudaError_t sc_find_entry_point(const char *name, void **ret_function, unsigned version, unsigned long long flags,
                                CUdriverProcAddressQueryResult *ret_status) {
  const struct sc_driver *driver;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  cudaError_t error = sc_start(&driver);
  if (error == cudaSuccess && (name == NULL || ret_function == NULL)) error = cudaErrorInvalidValue;
  if (error != cudaSuccess) return sc_end(error);
  *ret_function = NULL;
  error = (cudaError_t)driver->cuGetProcAddress_v2(name, ret_function, (int)version, flags, &status);
  bool lacks_it = error == cudaErrorSymbolNotFound || (error == cudaSuccess && status != CU_GET_PROC_ADDRESS_SUCCESS);
  if (ret_status != NULL) *ret_status = status;
  if (lacks_it) error = ret_status != NULL ? cudaSuccess : cudaErrorSymbolNotFound;
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **ret_function, unsigned version,
                                                       unsigned long long flags,
                                                       CUdriverProcAddressQueryResult *ret_status) {
  return sc_find_entry_point(name, ret_function, version, flags, ret_status);
}
