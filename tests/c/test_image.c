/*
 * test_image.c - the parser of program images (PTX, ELF, fatbin) takes bytes from files: whatever they say, it answers
 * 0 or an error, stays inside them and gives everything back.
 */
#include <elf.h>
#include <string.h>

#include "check.h"
#include "simgpu/images/image.h"

#define EM_CUDA_MACHINE 190
#define FATBIN_MAGIC 0xba55ed50

static const char ptx[] =
    ".version 8.4\n.target sm_90\n.address_size 64\n"
    ".global .align 4 .b8 table[16] = {1, 2, 3, 4};\n"
    ".visible .entry saxpy(\n\t.param .u32 saxpy_param_0,\n\t.param .f32 saxpy_param_1,\n"
    "\t.param .u64 saxpy_param_2,\n\t.param .u64 saxpy_param_3\n)\n.maxntid 256, 1, 1\n"
    "{\n\t.reg .b32 %r<3>;\n\tret;\n}\n"
    ".visible .entry structured(\n\t.param .align 8 .b8 structured_param_0[40]\n)\n{\n\tret;\n}\n";

static void parse(const void *data, size_t bytes) {
  struct sim_image *image = NULL;
  if (sim_image_parse(data, bytes, &image) == 0) {
    CHECK(image);
    for (uint32_t i = 0; i < image->kernel_count; i++) CHECK(sim_image_find_kernel(image, image->kernels[i].name));
    sim_image_free(image);
  }
}

static void reads_ptx(void) {
  struct sim_image *image = NULL;
  CHECK(sim_image_parse(ptx, sizeof ptx, &image) == 0);
  CHECK(image->kernel_count == 2);
  struct sim_image_kernel *saxpy = sim_image_find_kernel(image, "saxpy");
  CHECK(saxpy);
  CHECK(saxpy->param_count == 4);
  CHECK(saxpy->params[2].offset_bytes == 8 && saxpy->params[2].size_bytes == 8);
  CHECK(saxpy->param_bytes == 24);
  CHECK(saxpy->max_threads == 256);
  struct sim_image_kernel *structured = sim_image_find_kernel(image, "structured");
  CHECK(structured);
  CHECK(structured->param_count == 1 && structured->params[0].size_bytes == 40);
  CHECK(!sim_image_find_kernel(image, "nobody"));
  CHECK(image->global_count == 1 && image->globals[0].bytes == 16);
  sim_image_free(image);
}

/* Every prefix, in a block of exactly its size: reading past the end is seen by AddressSanitizer. */
static void every_prefix(const uint8_t *data, size_t bytes) {
  for (size_t length = 1; length < bytes; length += bytes > 4096 ? 97 : 1) {
    uint8_t *copy = malloc(length);
    CHECK(copy);
    memcpy(copy, data, length);
    parse(copy, length);
    free(copy);
  }
}

static void flipped(const uint8_t *data, size_t bytes, int rounds, uint64_t seed) {
  struct check_random random = {seed};
  uint8_t *copy = malloc(bytes);
  CHECK(copy);
  for (int i = 0; i < rounds; i++) {
    memcpy(copy, data, bytes);
    for (uint64_t flips = 1 + check_below(&random, 8); flips; flips--)
      copy[check_below(&random, check_below(&random, 2) ? bytes : 256)] = (uint8_t)check_random(&random);
    parse(copy, bytes);
  }
  free(copy);
}

static void broken_ptx(void) {
  every_prefix((const uint8_t *)ptx, sizeof ptx);
  flipped((const uint8_t *)ptx, sizeof ptx, 3000, 11);
}

/* A real ELF file with sections, symbols and strings, called a cubin: this program itself. */
static uint8_t *read_self(size_t *ret_bytes) {
  FILE *file = fopen("/proc/self/exe", "rb");
  CHECK(file);
  uint8_t *data = malloc(8u << 20);
  CHECK(data);
  *ret_bytes = fread(data, 1, 8u << 20, file);
  fclose(file);
  CHECK(*ret_bytes > sizeof(Elf64_Ehdr));
  ((Elf64_Ehdr *)data)->e_machine = EM_CUDA_MACHINE;
  return data;
}

static void broken_elf(void) {
  size_t bytes;
  uint8_t *data = read_self(&bytes);
  parse(data, bytes);
  every_prefix(data, bytes < 4096 ? bytes : 4096);
  flipped(data, bytes, 60, 13);
  /* the header alone is aimed at: offsets, counts and sizes of the section table */
  struct check_random random = {17};
  uint8_t header[sizeof(Elf64_Ehdr)];
  memcpy(header, data, sizeof header);
  for (int i = 0; i < 500; i++) {
    memcpy(data, header, sizeof header);
    for (int flips = 0; flips < 3; flips++) data[16 + check_below(&random, sizeof header - 16)] = check_random(&random);
    parse(data, bytes);
  }
  free(data);
}

static void broken_fatbin(void) {
  struct check_random random = {19};
  uint8_t data[512];
  for (int i = 0; i < 4000; i++) {
    for (size_t j = 0; j < sizeof data; j++) data[j] = check_below(&random, 3) ? 0 : (uint8_t)check_random(&random);
    uint32_t magic = FATBIN_MAGIC, version = 0x00100001;
    memcpy(data, &magic, sizeof magic);
    memcpy(data + 4, &version, sizeof version);
    uint64_t payload = check_below(&random, 2) ? sizeof data - 16 : check_random(&random);
    memcpy(data + 8, &payload, sizeof payload);
    parse(data, sizeof data);
  }
}

static void broken_lz4(void) {
  struct check_random random = {23};
  uint8_t in[256], out[512];
  for (int i = 0; i < 20000; i++) {
    size_t bytes = 1 + check_below(&random, sizeof in);
    for (size_t j = 0; j < bytes; j++) in[j] = (uint8_t)check_random(&random);
    int64_t got = sim_image_unpack_lz4(in, bytes, out, check_below(&random, sizeof out));
    CHECK(got <= (int64_t)sizeof out);
  }
}

int main(void) {
  RUN(reads_ptx);
  RUN(broken_ptx);
  RUN(broken_elf);
  RUN(broken_fatbin);
  RUN(broken_lz4);
  return 0;
}
