/*
 * module.c - program images in contexts: cuModuleLoad*, their functions and global variables. Called by programs, and
 * by library.c, which makes modules of libraries. Must hold: lists are changed under sim_module_lock() only; handles
 * are checked by their slab, so a stale one is refused and never followed.
 */
#include "simgpu/modules/module.h"
#include "simgpu/base/slab.h"
#include "simgpu/images/image.h"
#include "simgpu/memory/alloc.h"
#include "simgpu/memory/alloc_first.h"
#include "simgpu/modules/model.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/process/values.h"
#include "simgpu/streams/stream.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct sim_slab modules = SIM_SLAB(sizeof(struct sim_module), 65536);
static struct sim_slab functions = SIM_SLAB(sizeof(struct sim_function), 262144);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void sim_module_lock(void) {
  pthread_mutex_lock(&lock);
}
void sim_module_unlock(void) {
  pthread_mutex_unlock(&lock);
}

struct sim_module *sim_module_find(CUmodule handle) {
  return sim_slab_find(&modules, handle, SIM_MODULE_MAGIC);
}
struct sim_function *sim_function_find(CUfunction handle) {
  return sim_slab_find(&functions, handle, SIM_FUNCTION_MAGIC);
}

CUresult sim_image_load(const void *data, size_t bytes, struct sim_image **ret_image) {
  if (data == NULL) return CUDA_ERROR_INVALID_VALUE;
  int result = sim_image_parse(data, bytes, ret_image);
  if (result == -ENOMEM) return CUDA_ERROR_OUT_OF_MEMORY;
  return result == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

CUresult sim_image_load_file(const char *path, struct sim_image **ret_image) {
  struct stat status;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_FILE_NOT_FOUND;
  CUresult result = CUDA_ERROR_INVALID_IMAGE;
  if (vg_prim_fstat(fd, &status) == 0 && status.st_size > 0) {
    void *data = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data != MAP_FAILED) {
      result = sim_image_load(data, status.st_size, ret_image);
      munmap(data, status.st_size);
    }
  }
  close(fd);
  return result;
}

/* Variables get device memory when the module is loaded, so that running out of memory shows where it does really. */
static CUresult place_globals(struct sim_module *module) {
  struct sim_image *image = module->image;
  module->globals = calloc(image->global_count + 1, sizeof *module->globals);
  if (module->globals == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < image->global_count; i++) {
    struct sim_image_global *global = &image->globals[i];
    if (global->bytes == 0) continue;
    CUresult result = sim_memory_alloc(module->context, global->bytes, &module->globals[i]);
    if (result != CUDA_SUCCESS) return result;
    sim_values_write(module->globals[i], global->bytes);
    if (global->contents != NULL) memcpy((void *)(uintptr_t)module->globals[i], global->contents, global->bytes);
  }
  return CUDA_SUCCESS;
}

CUresult sim_module_make(struct sim_context *context, struct sim_image *image, struct sim_library *library,
                         struct sim_module **ret_module) {
  struct sim_module *module = sim_slab_get(&modules, SIM_MODULE_MAGIC);
  if (module == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  module->context = context;
  module->library = library;
  module->image = image;
  CUresult result = place_globals(module);
  if (result != CUDA_SUCCESS) {
    if (library == NULL) module->image = NULL; /* stays the caller's */
    sim_module_free(module, true);
    return result;
  }
  module->next = context->wide;
  context->wide = module;
  *ret_module = module;
  return CUDA_SUCCESS;
}

void sim_function_free_list(struct sim_function **list) {
  while (*list != NULL) {
    struct sim_function *function = *list;
    *list = function->next;
    free(function->first);
    sim_slab_put(&functions, function);
  }
}

void sim_module_free(struct sim_module *module, bool with_memory) {
  sim_function_free_list(&module->functions);
  for (uint32_t i = 0; with_memory && module->image != NULL && i < module->image->global_count; i++)
    if (module->globals != NULL && module->globals[i] != 0) sim_memory_free(module->context, module->globals[i]);
  free(module->globals);
  if (module->library == NULL) sim_image_free(module->image);
  sim_slab_put(&modules, module);
}

void sim_module_unlink(struct sim_module *module) {
  struct sim_module **at = (struct sim_module **)&module->context->wide;
  while (*at != NULL && *at != module) at = &(*at)->next;
  if (*at != NULL) *at = module->next;
  if (module->library == NULL) return;
  at = &module->library->modules;
  while (*at != NULL && *at != module) at = &(*at)->library_next;
  if (*at != NULL) *at = module->library_next;
}

void sim_modules_destroy(struct sim_context *context) {
  sim_module_lock();
  while (context->wide != NULL) {
    struct sim_module *module = context->wide;
    sim_module_unlink(module);
    sim_module_free(module, false); /* the context takes its memory with it */
  }
  sim_module_unlock();
}

/* As the rule says it of a kernel whose image cannot be read. Returns whether it does; they lie as C places them. */
static bool add_params(struct sim_image_kernel *kernel, const struct sim_model_rule *rule) {
  uint32_t offset_bytes = 0, count = 0;
  for (; count < SIM_HOST_ARGS_MAX && rule->sizes[count] != 0; count++) {
    uint32_t size_bytes = rule->sizes[count];
    offset_bytes = (uint32_t)sim_round_up(offset_bytes, size_bytes);
    if (sim_image_add_param(kernel, count, offset_bytes, size_bytes) != 0) return false;
    offset_bytes += size_bytes;
  }
  return count > 0;
}

CUresult sim_function_get(struct sim_function **list, struct sim_image *image, const char *name,
                          struct sim_function **ret_function) {
  for (struct sim_function *f = *list; f != NULL; f = f->next) {
    if (strcmp(f->kernel.name, name) != 0) continue;
    *ret_function = f;
    return CUDA_SUCCESS;
  }
  struct sim_image_kernel *kernel = sim_image_find_kernel(image, name);
  bool known = kernel != NULL, fresh;
  if (kernel == NULL && image->any_name) kernel = sim_image_add_kernel(image, name, strlen(name), &fresh);
  if (kernel == NULL) return image->any_name ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_FOUND;
  const struct sim_model_rule *rule = sim_model_find(name);
  if (!known) known = add_params(kernel, rule);
  struct sim_function *function = sim_slab_get(&functions, SIM_FUNCTION_MAGIC);
  if (function == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  function->kernel = *kernel;
  function->known_params = known;
  function->rule = rule;
  function->name_bytes = sim_amount_of_name(&function->rule->bytes, name);
  function->name_flops = sim_amount_of_name(&function->rule->flops, name);
  int free_shared = SIM_BLOCK_SHARED_BYTES - (int)kernel->shared_bytes;
  function->own_settings.dynamic_shared_bytes = free_shared > 0 ? free_shared : 0;
  function->own_settings.carveout = -1;
  function->settings = &function->own_settings;
  function->next = *list;
  *list = function;
  *ret_function = function;
  return CUDA_SUCCESS;
}

CUresult sim_library_module(struct sim_library *library, struct sim_context *context, struct sim_module **ret_module) {
  for (struct sim_module *m = library->modules; m != NULL; m = m->library_next) {
    if (m->context != context) continue;
    *ret_module = m;
    return CUDA_SUCCESS;
  }
  CUresult result = sim_module_make(context, library->image, library, ret_module);
  if (result != CUDA_SUCCESS) return result;
  (*ret_module)->library_next = library->modules;
  library->modules = *ret_module;
  return CUDA_SUCCESS;
}

CUresult sim_library_function(struct sim_function *kernel, struct sim_context *context,
                              struct sim_function **ret_function) {
  struct sim_module *module;
  CUresult result = sim_library_module(kernel->library, context, &module);
  if (result != CUDA_SUCCESS) return result;
  result = sim_function_get(&module->functions, module->image, kernel->kernel.name, ret_function);
  if (result != CUDA_SUCCESS) return result;
  (*ret_function)->module = module;
  (*ret_function)->library = kernel->library;
  (*ret_function)->settings = kernel->settings;
  return CUDA_SUCCESS;
}

/* The JIT's logs are empty: says so in the options that carry their sizes. */
static void answer_options(unsigned count, const CUjit_option *options, void **values) {
  for (unsigned i = 0; options != NULL && values != NULL && i < count; i++)
    if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      values[i] = NULL;
}

static CUresult load(struct sim_image *image, struct sim_context *context, CUmodule *ret_module) {
  struct sim_module *module;
  sim_module_lock();
  CUresult result = sim_module_make(context, image, NULL, &module);
  sim_module_unlock();
  if (result != CUDA_SUCCESS)
    sim_image_free(image);
  else
    *ret_module = (CUmodule)module;
  return result;
}

SIM_PUBLIC CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                                       void **values) {
  struct sim_context *context;
  struct sim_image *parsed;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (module == NULL || image == NULL) return CUDA_ERROR_INVALID_VALUE;
  answer_options(count, options, values);
  result = sim_image_load(image, 0, &parsed);
  return result != CUDA_SUCCESS ? result : load(parsed, context, module);
}

SIM_PUBLIC CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

SIM_PUBLIC CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
  return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

SIM_PUBLIC CUresult cuModuleLoad(CUmodule *module, const char *path) {
  struct sim_context *context;
  struct sim_image *parsed;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (module == NULL || path == NULL) return CUDA_ERROR_INVALID_VALUE;
  result = sim_image_load_file(path, &parsed);
  return result != CUDA_SUCCESS ? result : load(parsed, context, module);
}

SIM_PUBLIC CUresult cuModuleUnload(CUmodule handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  sim_module_lock();
  struct sim_module *module = sim_module_find(handle);
  bool own = module != NULL && module->library == NULL; /* a library's module goes with the library */
  if (own) sim_module_unlink(module);
  sim_module_unlock();
  if (!own) return CUDA_ERROR_INVALID_HANDLE;
  sim_context_wait(module->context); /* its kernels may still run */
  sim_module_lock();
  sim_module_free(module, true);
  sim_module_unlock();
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuModuleGetFunction(CUfunction *ret_handle, CUmodule handle, const char *name) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (ret_handle == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct sim_function *function = NULL;
  sim_module_lock();
  struct sim_module *module = sim_module_find(handle);
  if (module == NULL) {
    result = CUDA_ERROR_INVALID_HANDLE;
  } else if (module->library != NULL) {
    struct sim_function *kernel;
    result = sim_function_get(&module->library->kernels, module->image, name, &kernel);
    if (result == CUDA_SUCCESS) {
      kernel->library = module->library;
      result = sim_library_function(kernel, module->context, &function);
    }
  } else {
    result = sim_function_get(&module->functions, module->image, name, &function);
  }
  if (result == CUDA_SUCCESS) {
    function->module = module;
    *ret_handle = (CUfunction)function;
  }
  sim_module_unlock();
  return result;
}

SIM_PUBLIC CUresult cuModuleGetFunctionCount(unsigned *ret_count, CUmodule handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_module *module = sim_module_find(handle);
  if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (ret_count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ret_count = module->image->kernel_count;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuModuleEnumerateFunctions(CUfunction *ret_handles, unsigned count, CUmodule handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_module *module = sim_module_find(handle);
  if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (ret_handles == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count && i < module->image->kernel_count && result == CUDA_SUCCESS; i++)
    result = cuModuleGetFunction(&ret_handles[i], handle, module->image->kernels[i].name);
  return result;
}

CUresult sim_module_global(struct sim_module *module, const char *name, CUdeviceptr *ret_pointer, size_t *ret_bytes) {
  for (uint32_t i = 0; i < module->image->global_count; i++) {
    if (strcmp(module->image->globals[i].name, name) != 0) continue;
    if (ret_pointer != NULL) *ret_pointer = module->globals[i];
    if (ret_bytes != NULL) *ret_bytes = module->image->globals[i].bytes;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

SIM_PUBLIC CUresult cuModuleGetGlobal_v2(CUdeviceptr *ret_pointer, size_t *ret_bytes, CUmodule handle,
                                         const char *name) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_module *module = sim_module_find(handle);
  if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
  return sim_module_global(module, name, ret_pointer, ret_bytes);
}

SIM_PUBLIC CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *ret_mode) {
  if (ret_mode == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ret_mode = CU_MODULE_LAZY_LOADING; /* the driver's default since 12.2 */
  return CUDA_SUCCESS;
}

/* The first interface. */
SIM_PUBLIC CUresult cuModuleGetGlobal(CUdeviceptr_v1 *ret_pointer, unsigned *ret_bytes, CUmodule module,
                                      const char *name) {
  CUdeviceptr pointer = 0;
  size_t bytes = 0;
  CUresult result = sim_first_address(cuModuleGetGlobal_v2(&pointer, &bytes, module, name), &pointer, ret_pointer);
  if (result == CUDA_SUCCESS && ret_bytes) *ret_bytes = sim_first_bytes(bytes);
  return result;
}

/* ---- texture and surface references: compilers since CUDA 12 put none into an image ---- */

static CUresult missing(CUmodule module, const void *ret_reference, const char *name) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_reference || !name) return CUDA_ERROR_INVALID_VALUE;
  return sim_module_find(module) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

SIM_PUBLIC CUresult cuModuleGetTexRef(CUtexref *ret_reference, CUmodule module, const char *name) {
  return missing(module, ret_reference, name);
}

SIM_PUBLIC CUresult cuModuleGetSurfRef(CUsurfref *ret_reference, CUmodule module, const char *name) {
  return missing(module, ret_reference, name);
}
