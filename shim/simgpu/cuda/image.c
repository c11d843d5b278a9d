/*
 * image.c - recognises the format of a program image and keeps the lists that its readers fill (image_ptx.c,
 * image_elf.c, image_fatbin.c). Called by module.c and linker.c under no lock: an image belongs to its caller.
 */
#define _GNU_SOURCE /* memmem */
#include "simgpu/cuda/image.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC_ELF 0x464c457fu
#define MAGIC_FATBIN 0xba55ed50u
#define MAGIC_WRAPPER 0x466243b1u

struct fatbin_wrapper {
  uint32_t magic;
  uint32_t version;
  const uint8_t *data;
  const void *unused;
};

static uint32_t read_magic(const void *data) {
  uint32_t magic;
  memcpy(&magic, data, sizeof magic);
  return magic;
}

static const uint8_t *unwrap(const void *data) {
  struct fatbin_wrapper wrapper;
  memcpy(&wrapper, data, sizeof wrapper);
  return wrapper.data;
}

static size_t fatbin_bytes(const uint8_t *data) {
  uint16_t header_bytes;
  uint64_t body_bytes;
  memcpy(&header_bytes, data + 6, sizeof header_bytes);
  memcpy(&body_bytes, data + 8, sizeof body_bytes);
  return body_bytes > SIM_IMAGE_BYTES_MAX ? 0 : header_bytes + (size_t)body_bytes;
}

size_t sim_image_measure(const void *data) {
  if (read_magic(data) == MAGIC_WRAPPER) data = unwrap(data);
  if (data == NULL) return 0;
  switch (read_magic(data)) {
  case MAGIC_ELF:
    return sim_image_elf_bytes(data, SIM_IMAGE_BYTES_MAX);
  case MAGIC_FATBIN:
    return fatbin_bytes(data);
  default:
    return strlen(data) + 1;
  }
}

/* PTX text opens with directives, comments or blanks, never with a control character. */
static bool looks_like_text(const uint8_t *data, size_t bytes) {
  size_t i;
  for (i = 0; i < bytes && i < 64 && data[i] != 0; i++)
    if (data[i] < 0x20 && data[i] != '\n' && data[i] != '\t' && data[i] != '\r') return false;
  return i > 0;
}

static int read_any(struct sim_image *image, const uint8_t *data, size_t bytes) {
  uint32_t magic = bytes >= 4 ? read_magic(data) : 0;
  if (magic == MAGIC_ELF) return sim_image_read_elf(image, data, bytes);
  if (magic == MAGIC_FATBIN) return sim_image_read_fatbin(image, data, bytes);
  if (looks_like_text(data, bytes) && memmem(data, bytes, ".version", 8) != NULL)
    return sim_image_read_ptx(image, (const char *)data, bytes);
  return -EINVAL;
}

int sim_image_parse(const void *data, size_t bytes, struct sim_image **ret_image) {
  if (data == NULL) return -EINVAL;
  if (strnlen(data, bytes == 0 || bytes > 4 ? 4 : bytes) < 4) return -EINVAL; /* no magic number has a zero byte */
  if ((bytes == 0 || bytes >= sizeof(struct fatbin_wrapper)) && read_magic(data) == MAGIC_WRAPPER) {
    data = unwrap(data);
    bytes = 0;
    if (data == NULL) return -EINVAL;
  }
  if (bytes == 0) bytes = sim_image_measure(data);
  if (bytes == 0) return -EINVAL;
  struct sim_image *image = calloc(1, sizeof *image);
  if (image == NULL) return -ENOMEM;
  int result = read_any(image, data, bytes);
  if (result != 0) {
    sim_image_free(image);
    return result;
  }
  *ret_image = image;
  return 0;
}

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

/* Makes room for one more entry; capacities are powers of two, so the count alone tells when it is needed. */
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
