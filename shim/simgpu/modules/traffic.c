/* traffic.c - see traffic.h. */
#include "simgpu/modules/traffic.h"
#include "simgpu/modules/mangled.h"
#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 64
#define BYTES_MAX 1e15

static bool read_factor(char *word, struct sim_traffic_factor *ret_factor) {
  static const struct {
    const char *word;
    struct sim_traffic_factor factor;
  } words[] = {
      {"blocks", {.kind = SIM_TRAFFIC_BLOCKS}},
      {"threads", {.kind = SIM_TRAFFIC_THREADS}},
      {"reduced", {.kind = SIM_TRAFFIC_REDUCED}},
      {"type", {.kind = SIM_TRAFFIC_NAME, .name_bytes = sim_mangled_type_bytes}},
      {"tensors", {.kind = SIM_TRAFFIC_NAME, .name_bytes = sim_mangled_tensor_bytes}},
      {"lists", {.kind = SIM_TRAFFIC_NAME, .name_bytes = sim_mangled_list_bytes}},
  };
  for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(word, words[i].word) != 0) continue;
    *ret_factor = words[i].factor;
    return true;
  }
  char *end;
  if (strncmp(word, "arg", 3) == 0) {
    long arg = strtol(word + 3, &end, 10);
    bool is_wide = strcmp(end, ".i64") == 0;
    *ret_factor = (struct sim_traffic_factor){.kind = is_wide ? SIM_TRAFFIC_I64 : SIM_TRAFFIC_I32, .arg = (int)arg};
    return end != word + 3 && arg >= 0 && arg < ARGS_MAX && (is_wide || strcmp(end, ".i32") == 0);
  }
  *ret_factor = (struct sim_traffic_factor){.kind = SIM_TRAFFIC_NUMBER, .number = strtod(word, &end)};
  return end != word && *end == 0 && ret_factor->number >= 0 && ret_factor->number < BYTES_MAX;
}

bool sim_traffic_read(char *text, struct sim_traffic *ret_traffic) {
  char *state;
  ret_traffic->count = 0;
  for (char *word = strtok_r(text, "*", &state); word != NULL; word = strtok_r(NULL, "*", &state)) {
    if (ret_traffic->count == SIM_TRAFFIC_FACTORS_MAX) return false;
    if (!read_factor(word, &ret_traffic->factors[ret_traffic->count])) return false;
    ret_traffic->count++;
  }
  return ret_traffic->count > 0;
}

double sim_traffic_name_bytes(const struct sim_traffic *traffic, const char *kernel_name) {
  double bytes = 1;
  for (int i = 0; i < traffic->count; i++)
    if (traffic->factors[i].kind == SIM_TRAFFIC_NAME) bytes *= traffic->factors[i].name_bytes(kernel_name);
  return bytes;
}

static const void *find_param(const struct sim_shape *shape, int arg) {
  return shape->params != NULL ? shape->params[arg] : NULL;
}

static double read_i32(const void *param) {
  int32_t value = 0;
  if (param != NULL) memcpy(&value, param, sizeof value);
  return value > 0 ? value : 0;
}

static double read_i64(const void *param) {
  int64_t value = 0;
  if (param != NULL) memcpy(&value, param, sizeof value);
  return value > 0 ? (double)value : 0;
}

/*
 * The parameter of PyTorch's reduce_kernel is a structure that begins with the operation, of a few words, and its
 * configuration (aten/src/ATen/native/cuda/Reduce.cuh, ReduceConfig): the size of an element, inputs for an output,
 * outputs, ..., the block's width and height. Where it begins depends on the operation, so it is looked for by the
 * block, which the launch has, too.
 */
static double read_reduced(const struct sim_shape *shape) {
  enum { ELEMENT_BYTES, INPUTS, OUTPUTS, WIDTH = 11, HEIGHT, WORDS, BEGIN_MAX = 24 };
  const uint8_t *param = find_param(shape, 0);
  for (int begin = 0; param != NULL && begin < BEGIN_MAX; begin++) {
    int32_t words[WORDS];
    memcpy(words, param + 4 * begin, sizeof words);
    if (words[WIDTH] != (int32_t)shape->block[0] || words[HEIGHT] != (int32_t)shape->block[1]) continue;
    if (words[ELEMENT_BYTES] < 1 || words[ELEMENT_BYTES] > 64 || words[INPUTS] < 1 || words[OUTPUTS] < 1) continue;
    return (double)words[INPUTS] * words[OUTPUTS];
  }
  return 0;
}

static double count_blocks(const struct sim_shape *shape) {
  return (double)shape->grid[0] * shape->grid[1] * shape->grid[2];
}

static double read_value(const struct sim_traffic_factor *factor, const struct sim_shape *shape) {
  switch (factor->kind) {
  case SIM_TRAFFIC_NUMBER:
    return factor->number;
  case SIM_TRAFFIC_I32:
    return read_i32(find_param(shape, factor->arg));
  case SIM_TRAFFIC_I64:
    return read_i64(find_param(shape, factor->arg));
  case SIM_TRAFFIC_BLOCKS:
    return count_blocks(shape);
  case SIM_TRAFFIC_THREADS:
    return count_blocks(shape) * shape->block[0] * shape->block[1] * shape->block[2];
  case SIM_TRAFFIC_REDUCED:
    return read_reduced(shape);
  case SIM_TRAFFIC_NAME: /* counted already */
    return 1;
  }
  return 1;
}

double sim_traffic_bytes(const struct sim_traffic *traffic, double name_bytes, const struct sim_shape *shape) {
  double bytes = traffic->count > 0 ? name_bytes : 0;
  for (int i = 0; i < traffic->count; i++) bytes *= read_value(&traffic->factors[i], shape);
  return bytes < BYTES_MAX ? bytes : BYTES_MAX;
}
