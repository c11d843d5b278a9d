/*
 * nvrtc.c - the run-time compiler of the simulated device: nothing is compiled. As kernels compute nothing there, a
 * program becomes an image with the names of its kernels, which the simulated driver loads and gives its time. Only C
 * names: what C++ would make of others is not known here, so such programs do not compile, and the log says so.
 */
#define _GNU_SOURCE
#include "simcuda/common/public.h"
#include "simcuda/nvrtc/program.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_OUT_OF_MEMORY = 1,
  NVRTC_ERROR_INVALID_INPUT = 3,
  NVRTC_ERROR_INVALID_PROGRAM = 4,
  NVRTC_ERROR_COMPILATION = 6,
  NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10
} nvrtcResult;

/* PyTorch keeps compiled kernels in files that it names by this version: no real compiler's may be this one, or a real
 * device would be given kernels that compute nothing. */
#define MAJOR 13
#define MINOR 999
#define MAGIC 0x4352564eu

struct program {
  uint32_t magic;
  char *source;
  char *image; /* NULL: not compiled */
  char log[256];
};

typedef struct program *nvrtcProgram;

const char *nvrtcGetErrorString(nvrtcResult result);
SC_PUBLIC const char *nvrtcGetErrorString(nvrtcResult result) {
  static const char *const names[] = {
      "NVRTC_SUCCESS",
      "NVRTC_ERROR_OUT_OF_MEMORY",
      "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
      "NVRTC_ERROR_INVALID_INPUT",
      "NVRTC_ERROR_INVALID_PROGRAM",
      "NVRTC_ERROR_INVALID_OPTION",
      "NVRTC_ERROR_COMPILATION",
      "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
      "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
      "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
      "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
      "NVRTC_ERROR_INTERNAL_ERROR",
  };
  return (unsigned)result < sizeof names / sizeof *names ? names[result] : "NVRTC_ERROR unknown";
}

nvrtcResult nvrtcVersion(int *ret_major, int *ret_minor);
SC_PUBLIC nvrtcResult nvrtcVersion(int *ret_major, int *ret_minor) {
  if (ret_major == NULL || ret_minor == NULL) return NVRTC_ERROR_INVALID_INPUT;
  *ret_major = MAJOR;
  *ret_minor = MINOR;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *ret_program, const char *source, const char *name, int header_count,
                               const char *const *headers, const char *const *include_names);
SC_PUBLIC nvrtcResult nvrtcCreateProgram(nvrtcProgram *ret_program, const char *source, const char *name,
                                         int header_count, const char *const *headers,
                                         const char *const *include_names) {
  (void)name, (void)headers, (void)include_names;
  if (ret_program == NULL || source == NULL || header_count < 0) return NVRTC_ERROR_INVALID_INPUT;
  struct program *program = calloc(1, sizeof *program);
  char *copy = strdup(source);
  if (program == NULL || copy == NULL) {
    free(program);
    free(copy);
    return NVRTC_ERROR_OUT_OF_MEMORY;
  }
  program->magic = MAGIC;
  program->source = copy;
  *ret_program = program;
  return NVRTC_SUCCESS;
}

static struct program *find(nvrtcProgram program) {
  return program != NULL && program->magic == MAGIC ? program : NULL;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program);
SC_PUBLIC nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
  struct program *one = program == NULL ? NULL : find(*program);
  if (one == NULL) return NVRTC_ERROR_INVALID_PROGRAM;
  one->magic = 0;
  free(one->source);
  free(one->image);
  free(one);
  *program = NULL;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int option_count, const char *const *options);
SC_PUBLIC nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int option_count, const char *const *options) {
  struct program *one = find(program);
  const char *strange;
  (void)option_count, (void)options;
  if (one == NULL) return NVRTC_ERROR_INVALID_PROGRAM;
  char *image = sc_nvrtc_find_kernels(one->source, &strange);
  if (image == NULL) return NVRTC_ERROR_OUT_OF_MEMORY;
  free(one->image);
  one->image = strange == NULL ? image : NULL;
  snprintf(one->log, sizeof one->log, "SIMULATED: nothing is compiled, and kernels compute nothing%s%s\n",
           strange == NULL ? "" : "; error: ", strange == NULL ? "" : strange);
  if (strange == NULL) return NVRTC_SUCCESS;
  free(image);
  return NVRTC_ERROR_COMPILATION;
}

static nvrtcResult give_size(const char *text, size_t *ret_bytes) {
  if (ret_bytes == NULL) return NVRTC_ERROR_INVALID_INPUT;
  if (text == NULL) return NVRTC_ERROR_INVALID_PROGRAM;
  *ret_bytes = strlen(text) + 1;
  return NVRTC_SUCCESS;
}

static nvrtcResult give_text(const char *text, char *ret_text) {
  if (ret_text == NULL) return NVRTC_ERROR_INVALID_INPUT;
  if (text == NULL) return NVRTC_ERROR_INVALID_PROGRAM;
  strcpy(ret_text, text);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *ret_bytes);
SC_PUBLIC nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *ret_bytes) {
  return give_size(find(program) == NULL ? NULL : program->log, ret_bytes);
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *ret_log);
SC_PUBLIC nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *ret_log) {
  return give_text(find(program) == NULL ? NULL : program->log, ret_log);
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *ret_bytes);
SC_PUBLIC nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *ret_bytes) {
  return give_size(find(program) == NULL ? NULL : program->image, ret_bytes);
}

nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *ret_ptx);
SC_PUBLIC nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *ret_ptx) {
  return give_text(find(program) == NULL ? NULL : program->image, ret_ptx);
}

/* There is no machine code: the image is the same text, which the driver loads as well. */
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *ret_bytes);
SC_PUBLIC nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *ret_bytes) {
  return nvrtcGetPTXSize(program, ret_bytes);
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *ret_image);
SC_PUBLIC nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *ret_image) {
  return nvrtcGetPTX(program, ret_image);
}

nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char *expression);
SC_PUBLIC nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char *expression) {
  if (find(program) == NULL) return NVRTC_ERROR_INVALID_PROGRAM;
  return expression == NULL ? NVRTC_ERROR_INVALID_INPUT : NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
}

nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char *expression, const char **ret_name);
SC_PUBLIC nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char *expression, const char **ret_name) {
  if (find(program) == NULL) return NVRTC_ERROR_INVALID_PROGRAM;
  return expression == NULL || ret_name == NULL ? NVRTC_ERROR_INVALID_INPUT : NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
}
