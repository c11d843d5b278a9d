/*
 * image_parse.c - recognises the format of a program image, and has it read (image_ptx.c, image_elf.c,
 * image_fatbin.c). Called by module.c and linker.c.
 */
#define _GNU_SOURCE /* memmem */
#include "simgpu/images/image.h"
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
