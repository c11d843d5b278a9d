/*
 * library.c - context-independent code: cuLibraryLoad*, its kernels, and their functions in the current context.
 * Called by programs; builds upon module.c.
 */
#include "simgpu/base/slab.h"
#include "simgpu/images/image.h"
#include "simgpu/modules/module.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include <string.h>

static struct sim_slab libraries = SIM_SLAB(sizeof(struct sim_library), 65536);

static struct sim_library *library_find(CUlibrary handle) {
  return sim_slab_find(&libraries, handle, SIM_LIBRARY_MAGIC);
}

static struct sim_function *kernel_find(CUkernel handle) {
  struct sim_function *kernel = sim_function_find((CUfunction)handle);
  return kernel != NULL && kernel->module == NULL ? kernel : NULL;
}

static CUresult register_library(struct sim_image *image, CUlibrary *ret_library) {
  struct sim_library *library = sim_slab_get(&libraries, SIM_LIBRARY_MAGIC);
  if (library == NULL) {
    sim_image_free(image);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  library->image = image;
  *ret_library = (CUlibrary)library;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuLibraryLoadData(CUlibrary *ret_library, const void *code, CUjit_option *options, void **values,
                                      unsigned count, CUlibraryOption *library_options, void **library_values,
                                      unsigned library_count) {
  (void)options, (void)values, (void)count, (void)library_options, (void)library_values, (void)library_count;
  struct sim_image *image;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (ret_library == NULL || code == NULL) return CUDA_ERROR_INVALID_VALUE;
  result = sim_image_load(code, 0, &image);
  return result != CUDA_SUCCESS ? result : register_library(image, ret_library);
}

SIM_PUBLIC CUresult cuLibraryLoadFromFile(CUlibrary *ret_library, const char *path, CUjit_option *options,
                                          void **values, unsigned count, CUlibraryOption *library_options,
                                          void **library_values, unsigned library_count) {
  (void)options, (void)values, (void)count, (void)library_options, (void)library_values, (void)library_count;
  struct sim_image *image;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (ret_library == NULL || path == NULL) return CUDA_ERROR_INVALID_VALUE;
  result = sim_image_load_file(path, &image);
  return result != CUDA_SUCCESS ? result : register_library(image, ret_library);
}

SIM_PUBLIC CUresult cuLibraryUnload(CUlibrary handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  sim_module_lock();
  struct sim_library *library = library_find(handle);
  if (library == NULL) {
    sim_module_unlock();
    return CUDA_ERROR_INVALID_HANDLE;
  }
  while (library->modules != NULL) {
    struct sim_module *module = library->modules;
    sim_module_unlink(module);
    sim_module_free(module, true);
  }
  sim_function_free_list(&library->kernels);
  sim_image_free(library->image);
  sim_slab_put(&libraries, library);
  sim_module_unlock();
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuLibraryGetKernel(CUkernel *ret_kernel, CUlibrary handle, const char *name) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (ret_kernel == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct sim_function *kernel;
  sim_module_lock();
  struct sim_library *library = library_find(handle);
  result =
      library == NULL ? CUDA_ERROR_INVALID_HANDLE : sim_function_get(&library->kernels, library->image, name, &kernel);
  if (result == CUDA_SUCCESS) {
    kernel->library = library;
    *ret_kernel = (CUkernel)kernel;
  }
  sim_module_unlock();
  return result;
}

SIM_PUBLIC CUresult cuLibraryGetKernelCount(unsigned *ret_count, CUlibrary handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_library *library = library_find(handle);
  if (library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (ret_count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ret_count = library->image->kernel_count;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuLibraryEnumerateKernels(CUkernel *ret_kernels, unsigned count, CUlibrary handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_library *library = library_find(handle);
  if (library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (ret_kernels == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count && i < library->image->kernel_count && result == CUDA_SUCCESS; i++)
    result = cuLibraryGetKernel(&ret_kernels[i], handle, library->image->kernels[i].name);
  return result;
}

SIM_PUBLIC CUresult cuLibraryGetModule(CUmodule *ret_module, CUlibrary handle) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (ret_module == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct sim_module *module;
  sim_module_lock();
  struct sim_library *library = library_find(handle);
  result = library == NULL ? CUDA_ERROR_INVALID_HANDLE : sim_library_module(library, context, &module);
  if (result == CUDA_SUCCESS) *ret_module = (CUmodule)module;
  sim_module_unlock();
  return result;
}

SIM_PUBLIC CUresult cuLibraryGetGlobal(CUdeviceptr *ret_pointer, size_t *ret_bytes, CUlibrary handle,
                                       const char *name) {
  CUmodule module;
  if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuLibraryGetModule(&module, handle);
  if (result != CUDA_SUCCESS) return result;
  return sim_module_global((struct sim_module *)module, name, ret_pointer, ret_bytes);
}

SIM_PUBLIC CUresult cuLibraryGetManaged(CUdeviceptr *ret_pointer, size_t *ret_bytes, CUlibrary handle,
                                        const char *name) {
  (void)ret_pointer, (void)ret_bytes;
  if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
  return library_find(handle) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND; /* no image has any */
}

/* No image of the simulated device has one. */
SIM_PUBLIC CUresult cuLibraryGetUnifiedFunction(void **ret_function, CUlibrary handle, const char *name) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (library_find(handle) == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return ret_function == NULL || name == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
}

SIM_PUBLIC CUresult cuKernelGetFunction(CUfunction *ret_function, CUkernel handle) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (ret_function == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct sim_function *function;
  sim_module_lock();
  struct sim_function *kernel = kernel_find(handle);
  result = kernel == NULL ? CUDA_ERROR_INVALID_HANDLE : sim_library_function(kernel, context, &function);
  if (result == CUDA_SUCCESS) *ret_function = (CUfunction)function;
  sim_module_unlock();
  return result;
}

SIM_PUBLIC CUresult cuKernelGetLibrary(CUlibrary *ret_library, CUkernel handle) {
  struct sim_function *kernel = kernel_find(handle);
  if (kernel == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (ret_library == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ret_library = (CUlibrary)kernel->library;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuKernelGetName(const char **ret_name, CUkernel handle) {
  return cuFuncGetName(ret_name, (CUfunction)handle);
}

SIM_PUBLIC CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *ret_offset, size_t *ret_bytes) {
  return cuFuncGetParamInfo((CUfunction)handle, index, ret_offset, ret_bytes);
}

SIM_PUBLIC CUresult cuKernelGetAttribute(int *ret_value, CUfunction_attribute attribute, CUkernel handle,
                                         CUdevice device) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_function *kernel = kernel_find(handle);
  if (kernel == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (sim_device(device) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  return ret_value == NULL ? CUDA_ERROR_INVALID_VALUE : sim_function_attribute(kernel, attribute, ret_value);
}

SIM_PUBLIC CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_function *kernel = kernel_find(handle);
  if (kernel == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return sim_device(device) == NULL ? CUDA_ERROR_INVALID_DEVICE : sim_function_set_attribute(kernel, attribute, value);
}

SIM_PUBLIC CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device) {
  (void)config; /* a hint, and this device has no caches */
  if (kernel_find(handle) == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return sim_device(device) == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
