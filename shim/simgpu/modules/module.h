/*
 * module.h - modules, libraries, kernels and functions of the simulated driver, and how a launch is made from them.
 * Used by graphs/ as well. A CUkernel is a struct sim_function without a module (it belongs to a library and
 * to no context); so handles of both types may be launched, as with the real driver.
 */
#ifndef VG_SIM_MODULE_H
#define VG_SIM_MODULE_H
#include "simgpu/images/image.h"
#include "simgpu/modules/model.h"
#include "simgpu/process/current.h"
#include "simgpu/streams/stream.h"

/* Compute capability 9.0 (H100, H200): CUDA C++ Programming Guide, "Compute Capabilities", technical specifications. */
#define SIM_BLOCK_THREADS_MAX 1024
#define SIM_SM_THREADS 2048
#define SIM_SM_BLOCKS 32
#define SIM_SM_REGISTERS 65536
#define SIM_SM_SHARED_BYTES 233472
#define SIM_BLOCK_SHARED_BYTES 49152        /* without opting in */
#define SIM_BLOCK_SHARED_OPTIN_BYTES 232448 /* cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES) up to here */
#define SIM_BLOCK_SHARED_RESERVED_BYTES 1024
#define SIM_ARCHITECTURE 90

#define SIM_MODULE_MAGIC 0x4d4f4455u
#define SIM_LIBRARY_MAGIC 0x4c494252u
#define SIM_FUNCTION_MAGIC 0x46554e43u

struct sim_library {
  struct sim_object object;
  struct sim_image *image;
  struct sim_function *kernels;
  struct sim_module *modules; /* at most one per context, made when asked for */
};

struct sim_module {
  struct sim_object object;
  struct sim_context *context;
  struct sim_library *library; /* NULL: loaded by cuModuleLoad*, the image is its own */
  struct sim_image *image;
  struct sim_function *functions;
  CUdeviceptr *globals;            /* one for each of image->globals, 0: not yet allocated */
  struct sim_module *next;         /* of the context */
  struct sim_module *library_next; /* of the library */
};

/* What cuFuncSetAttribute and cuKernelSetAttribute change. */
struct sim_settings {
  int dynamic_shared_bytes;
  int carveout;
  int cluster[3];
  int nonportable_cluster;
  int cluster_policy;
};

struct sim_function {
  struct sim_object object;
  struct sim_module *module;   /* NULL: a CUkernel */
  struct sim_library *library; /* NULL: of a plain module */
  struct sim_function *next;
  struct sim_image_kernel kernel; /* name and params belong to the image */
  bool known_params;              /* the layout is known from the image */
  const struct sim_model_rule *rule;
  double name_bytes, name_flops; /* what its name says of the rule's amounts */
  struct sim_settings own_settings;
  struct sim_settings *settings; /* own_settings, or those of the CUkernel that it was made from */

  struct sim_first_launch *first; /* malloc'ed; NULL: not used in the first interface (modules/launch_first.c) */
};

struct sim_launch {
  struct sim_function *function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  uint8_t *params; /* malloc'ed; NULL when there are none or the layout is unknown */
  uint32_t param_bytes;
  double bytes, flops;  /* what it moves and computes, where the rule knows */
  uint64_t unlisted_ns; /* what a parameter adds, where the image lists none */
};

/* The lock of modules, libraries and their lists; short. */
void sim_module_lock(void);
void sim_module_unlock(void);

CUresult sim_image_load(const void *data, size_t bytes, struct sim_image **ret_image);
CUresult sim_image_load_file(const char *path, struct sim_image **ret_image);
struct sim_module *sim_module_find(CUmodule handle);
struct sim_function *sim_function_find(CUfunction handle); /* CUkernel handles too */
/* Makes a module of an image, with its variables in device memory when it has any. Takes the image unless it is a
 * library's. */
CUresult sim_module_make(struct sim_context *context, struct sim_image *image, struct sim_library *library,
                         struct sim_module **ret_module);
/* All three under the lock: out of the lists of its context and library; then free it. */
void sim_module_unlink(struct sim_module *module);
void sim_module_free(struct sim_module *module, bool with_memory);
void sim_function_free_list(struct sim_function **list);
/* The function of that name in the list, made from the image when it is asked for the first time; under the lock. */
CUresult sim_function_get(struct sim_function **list, struct sim_image *image, const char *name,
                          struct sim_function **ret_function);
/* The function of a library's kernel in a context; under the lock. */
CUresult sim_library_function(struct sim_function *kernel, struct sim_context *context,
                              struct sim_function **ret_function);
CUresult sim_library_module(struct sim_library *library, struct sim_context *context, struct sim_module **ret_module);
void sim_modules_destroy(struct sim_context *context); /* frees what is in context->wide */
CUresult sim_module_global(struct sim_module *module, const char *name, CUdeviceptr *ret_pointer, size_t *ret_bytes);

/* Reads attributes in the form of cuFuncGetAttribute and cuKernelGetAttribute. */
CUresult sim_function_attribute(const struct sim_function *function, CUfunction_attribute attribute, int *ret_value);
CUresult sim_function_set_attribute(struct sim_function *function, CUfunction_attribute attribute, int value);
int sim_function_max_threads(const struct sim_function *function);

/* Checks the launch, copies its parameters. ret_launch->params is the caller's to free. */
CUresult sim_launch_make(CUfunction handle, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                         void **params, void **extra, struct sim_launch *ret_launch);
struct sim_work sim_launch_work_of(const struct sim_launch *launch, const struct sim_context *context);
struct sim_meeting sim_launch_meeting(const struct sim_launch *launch);
void sim_launch_use(const struct sim_launch *launch, struct sim_stream *stream); /* before it: its managed memory */
CUresult sim_launch_compute(const struct sim_launch *launch); /* the host implementation, if the rule has one */

#endif
