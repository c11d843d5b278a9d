/*
 * linker.c - cuLink*: collects the inputs and answers a fatbin that holds all of them, which the module loader reads.
 * Nothing is linked, since nothing executes. Called by programs that link at run time.
 */
#include "simgpu/base/slab.h"
#include "simgpu/images/image.h"
#include "simgpu/modules/module.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINK_MAGIC 0x4c494e4bu
#define FATBIN_MAGIC 0xba55ed50u
#define FATBIN_HEADER_BYTES 16
#define ENTRY_HEADER_BYTES 64

struct link {
  struct sim_object object;
  uint8_t *fatbin; /* header, then one entry for each input; grows */
  size_t bytes;
};

static struct sim_slab links = SIM_SLAB(sizeof(struct link), 4096);

static CUresult find(CUlinkState handle, struct link **ret_link) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  *ret_link = sim_slab_find(&links, handle, LINK_MAGIC);
  return *ret_link == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static void write_header(struct link *link) {
  uint32_t magic = FATBIN_MAGIC;
  uint16_t version = 1, header_bytes = FATBIN_HEADER_BYTES;
  uint64_t body_bytes = link->bytes - FATBIN_HEADER_BYTES;
  memcpy(link->fatbin, &magic, 4);
  memcpy(link->fatbin + 4, &version, 2);
  memcpy(link->fatbin + 6, &header_bytes, 2);
  memcpy(link->fatbin + 8, &body_bytes, 8);
}

static CUresult append(struct link *link, uint16_t kind, const void *data, uint64_t data_bytes) {
  uint64_t padded_bytes = (data_bytes + 7) / 8 * 8;
  uint8_t *grown = realloc(link->fatbin, link->bytes + ENTRY_HEADER_BYTES + padded_bytes);
  if (grown == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  link->fatbin = grown;
  uint8_t *at = grown + link->bytes;
  memset(at, 0, ENTRY_HEADER_BYTES + padded_bytes);
  uint16_t version = 0x101;
  uint32_t header_bytes = ENTRY_HEADER_BYTES, architecture = SIM_ARCHITECTURE;
  memcpy(at, &kind, 2);
  memcpy(at + 2, &version, 2);
  memcpy(at + 4, &header_bytes, 4);
  memcpy(at + 8, &padded_bytes, 8);
  memcpy(at + 28, &architecture, 4);
  memcpy(at + ENTRY_HEADER_BYTES, data, data_bytes);
  link->bytes += ENTRY_HEADER_BYTES + padded_bytes;
  write_header(link);
  return CUDA_SUCCESS;
}

static CUresult add(struct link *link, CUjitInputType type, const void *data, size_t bytes) {
  struct sim_image *image;
  if (data == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  switch (type) {
  case CU_JIT_INPUT_PTX:
  case CU_JIT_INPUT_CUBIN:
  case CU_JIT_INPUT_OBJECT:
  case CU_JIT_INPUT_FATBINARY:
    break;
  case CU_JIT_INPUT_LIBRARY: /* device code of a host archive: helpers without kernels, nothing to keep */
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult result = sim_image_load(data, bytes, &image);
  if (result != CUDA_SUCCESS) return type == CU_JIT_INPUT_PTX ? CUDA_ERROR_INVALID_PTX : result;
  sim_image_free(image);
  if (type != CU_JIT_INPUT_FATBINARY) return append(link, type == CU_JIT_INPUT_PTX ? 1 : 2, data, bytes);
  return append(link, 3, data, bytes);
}

SIM_PUBLIC CUresult cuLinkCreate_v2(unsigned count, CUjit_option *options, void **values, CUlinkState *ret_link) {
  (void)count, (void)options, (void)values; /* logs stay empty, nothing is optimised */
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (ret_link == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct link *link = sim_slab_get(&links, LINK_MAGIC);
  if (link == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  link->fatbin = calloc(1, FATBIN_HEADER_BYTES);
  link->bytes = FATBIN_HEADER_BYTES;
  if (link->fatbin == NULL) {
    sim_slab_put(&links, link);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  write_header(link);
  *ret_link = (CUlinkState)link;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void *data, size_t bytes,
                                     const char *name, unsigned count, CUjit_option *options, void **values) {
  (void)name, (void)count, (void)options, (void)values;
  struct link *link;
  CUresult result = find(handle, &link);
  return result != CUDA_SUCCESS ? result : add(link, type, data, bytes);
}

SIM_PUBLIC CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char *path, unsigned count,
                                     CUjit_option *options, void **values) {
  (void)count, (void)options, (void)values;
  struct link *link;
  CUresult result = find(handle, &link);
  if (result != CUDA_SUCCESS) return result;
  if (path == NULL) return CUDA_ERROR_INVALID_VALUE;
  FILE *file = fopen(path, "re");
  if (file == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
  fseek(file, 0, SEEK_END);
  long bytes = ftell(file);
  rewind(file);
  void *data = bytes > 0 ? malloc(bytes) : NULL;
  result = CUDA_ERROR_INVALID_IMAGE;
  if (data != NULL && fread(data, 1, bytes, file) == (size_t)bytes) result = add(link, type, data, bytes);
  free(data);
  fclose(file);
  return result;
}

SIM_PUBLIC CUresult cuLinkComplete(CUlinkState handle, void **ret_image, size_t *ret_bytes) {
  struct link *link;
  CUresult result = find(handle, &link);
  if (result != CUDA_SUCCESS) return result;
  if (ret_image == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (link->bytes == FATBIN_HEADER_BYTES) return CUDA_ERROR_INVALID_VALUE; /* nothing was added */
  *ret_image = link->fatbin;
  if (ret_bytes != NULL) *ret_bytes = link->bytes;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuLinkDestroy(CUlinkState handle) {
  struct link *link;
  CUresult result = find(handle, &link);
  if (result != CUDA_SUCCESS) return result;
  free(link->fatbin);
  sim_slab_put(&links, link);
  return CUDA_SUCCESS;
}

/* The first interface differs in its headers alone. */
SIM_PUBLIC CUresult cuLinkCreate(unsigned count, CUjit_option *options, void **values, CUlinkState *ret_link) {
  return cuLinkCreate_v2(count, options, values, ret_link);
}

SIM_PUBLIC CUresult cuLinkAddData(CUlinkState handle, CUjitInputType type, void *data, size_t bytes, const char *name,
                                  unsigned count, CUjit_option *options, void **values) {
  return cuLinkAddData_v2(handle, type, data, bytes, name, count, options, values);
}

SIM_PUBLIC CUresult cuLinkAddFile(CUlinkState handle, CUjitInputType type, const char *path, unsigned count,
                                  CUjit_option *options, void **values) {
  return cuLinkAddFile_v2(handle, type, path, count, options, values);
}
