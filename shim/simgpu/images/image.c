/*
 * image.c - the lists of a program image: kernels with their parameters, variables. Filled by the readers of the
 * formats (image_ptx.c, image_elf.c, image_fatbin.c). Under no lock: an image belongs to its caller.
 */
#include "simgpu/images/image.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void sim_image_free(struct sim_image *image) {
  if (image == NULL) return;
  for (uint32_t i = 0; i < image->kernel_count; i++) {
    free(image->kernels[i].name);
    free(image->kernels[i].params);
  }
  for (uint32_t i = 0; i < image->global_count; i++) {
    free(image->globals[i].name);
    free(image->globals[i].contents);
  }
  free(image->kernels);
  free(image->globals);
  free(image);
}

int sim_image_merge(struct sim_image *image, struct sim_image *from) {
  bool fresh;
  for (uint32_t i = 0; i < from->kernel_count; i++) {
    struct sim_image_kernel *source = &from->kernels[i];
    struct sim_image_kernel *kernel = sim_image_add_kernel(image, source->name, strlen(source->name), &fresh);
    if (kernel == NULL) return -ENOMEM;
    if (!fresh) continue;
    char *name = kernel->name;
    *kernel = *source;
    kernel->name = name;
    source->params = NULL;
    source->param_count = 0;
  }
  for (uint32_t i = 0; i < from->global_count; i++) {
    struct sim_image_global *source = &from->globals[i];
    struct sim_image_global *global = sim_image_add_global(image, source->name, strlen(source->name), &fresh);
    if (global == NULL) return -ENOMEM;
    if (!fresh) continue;
    char *name = global->name;
    *global = *source;
    global->name = name;
    source->contents = NULL;
  }
  image->any_name |= from->any_name;
  return 0;
}

struct sim_image_kernel *sim_image_find_kernel(struct sim_image *image, const char *name) {
  for (uint32_t i = 0; i < image->kernel_count; i++)
    if (strcmp(image->kernels[i].name, name) == 0) return &image->kernels[i];
  return NULL;
}

static bool same_name(const char *known, const char *name, size_t length) {
  return strncmp(known, name, length) == 0 && known[length] == 0;
}

/* Makes space for one more entry; capacities are powers of two, so the count alone tells when it is needed. */
static void *grow(void *list, uint32_t count, size_t entry_bytes) {
  if (count != 0 && (count & (count - 1)) != 0) return list;
  return realloc(list, (count == 0 ? 1 : 2 * (size_t)count) * entry_bytes);
}

struct sim_image_kernel *sim_image_add_kernel(struct sim_image *image, const char *name, size_t length,
                                              bool *ret_fresh) {
  for (uint32_t i = 0; i < image->kernel_count; i++) {
    *ret_fresh = false;
    if (same_name(image->kernels[i].name, name, length)) return &image->kernels[i];
  }
  struct sim_image_kernel *list = grow(image->kernels, image->kernel_count, sizeof *list);
  if (list == NULL) return NULL;
  image->kernels = list;
  char *copy = strndup(name, length);
  if (copy == NULL) return NULL;
  struct sim_image_kernel *kernel = &list[image->kernel_count++];
  *kernel = (struct sim_image_kernel){.name = copy, .registers = 32};
  *ret_fresh = true;
  return kernel;
}

struct sim_image_global *sim_image_add_global(struct sim_image *image, const char *name, size_t length,
                                              bool *ret_fresh) {
  for (uint32_t i = 0; i < image->global_count; i++) {
    *ret_fresh = false;
    if (same_name(image->globals[i].name, name, length)) return &image->globals[i];
  }
  struct sim_image_global *list = grow(image->globals, image->global_count, sizeof *list);
  if (list == NULL) return NULL;
  image->globals = list;
  char *copy = strndup(name, length);
  if (copy == NULL) return NULL;
  struct sim_image_global *global = &list[image->global_count++];
  *global = (struct sim_image_global){.name = copy};
  *ret_fresh = true;
  return global;
}

int sim_image_add_param(struct sim_image_kernel *kernel, uint32_t index, uint32_t offset_bytes, uint32_t size_bytes) {
  if (index >= SIM_IMAGE_PARAMS_MAX) return -EINVAL;
  if (index >= kernel->param_count) {
    struct sim_image_param *params = realloc(kernel->params, (index + 1) * sizeof *params);
    if (params == NULL) return -ENOMEM;
    memset(params + kernel->param_count, 0, (index + 1 - kernel->param_count) * sizeof *params);
    kernel->params = params;
    kernel->param_count = index + 1;
  }
  kernel->params[index] = (struct sim_image_param){offset_bytes, size_bytes};
  if (offset_bytes + size_bytes > kernel->param_bytes) kernel->param_bytes = offset_bytes + size_bytes;
  return 0;
}
