/*
 * image.h - what the simulated driver learns from a program image (PTX text, cubin, fatbin): the kernels with the
 * layout of their parameters, and the global variables with their first contents. No code is kept: nothing executes.
 * Called by module.c; every byte of an image is checked before it is used, since images come from files.
 */
#ifndef VG_SIM_IMAGE_H
#define VG_SIM_IMAGE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_IMAGE_PARAMS_MAX 4096
#define SIM_IMAGE_BYTES_MAX (1ull << 30)
#define SIM_IMAGE_ARCHITECTURE 90 /* of code that is read before code for others */

struct sim_image_param {
  uint32_t offset_bytes;
  uint32_t size_bytes;
};

struct sim_image_kernel {
  char *name;
  struct sim_image_param *params;
  uint32_t param_count;
  uint32_t param_bytes; /* what the parameter buffer holds */
  uint32_t registers;
  uint32_t shared_bytes; /* static */
  uint32_t max_threads;  /* of a block, as the image demands; 0: no demand */
};

struct sim_image_global {
  char *name;
  uint64_t bytes;
  uint8_t *contents; /* NULL: zeros */
  bool constant;
};

struct sim_image {
  struct sim_image_kernel *kernels;
  struct sim_image_global *globals;
  uint32_t kernel_count;
  uint32_t global_count;
  bool any_name; /* the image holds code that cannot be read (unknown compression, LTO-IR): accept every name */
};

/* Reads an image. bytes 0: as long as its own headers (or the terminating zero of PTX) say. Returns 0, -EINVAL for
 * something that is no image, -ENOMEM. The caller frees with sim_image_free. */
int sim_image_parse(const void *data, size_t bytes, struct sim_image **ret_image);
void sim_image_free(struct sim_image *image);
/* Joins two images (the linker): takes what from has and leaves it empty. Returns 0 or -ENOMEM. */
int sim_image_merge(struct sim_image *image, struct sim_image *from);
/* How many bytes an image with its own headers takes; 0 when it is none. Fatbin wrappers answer their container. */
size_t sim_image_measure(const void *data);

struct sim_image_kernel *sim_image_find_kernel(struct sim_image *image, const char *name);

/* For the readers of the formats. Both return NULL without memory. A name that is there already is answered again, with
 * ret_fresh false: fatbins hold the same kernel for several architectures. */
struct sim_image_kernel *sim_image_add_kernel(struct sim_image *image, const char *name, size_t length,
                                              bool *ret_fresh);
struct sim_image_global *sim_image_add_global(struct sim_image *image, const char *name, size_t length,
                                              bool *ret_fresh);
/* Places the next parameter, aligned. Returns 0, -EINVAL (too many), -ENOMEM. */
int sim_image_add_param(struct sim_image_kernel *kernel, uint32_t index, uint32_t offset_bytes, uint32_t size_bytes);

int sim_image_read_ptx(struct sim_image *image, const char *text, size_t bytes);
int sim_image_read_elf(struct sim_image *image, const uint8_t *data, size_t bytes);
int sim_image_read_fatbin(struct sim_image *image, const uint8_t *data, size_t bytes);
size_t sim_image_elf_bytes(const uint8_t *data, size_t limit_bytes);
/* LZ4 block format. Returns the bytes written or -EINVAL. */
int64_t sim_image_unpack_lz4(const uint8_t *in, size_t in_bytes, uint8_t *out, size_t out_bytes);

#endif
