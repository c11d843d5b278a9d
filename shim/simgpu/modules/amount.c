/* amount.c - see amount.h. */
#include "simgpu/modules/amount.h"
#include "simgpu/modules/mangled.h"
#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 64
#define OFFSET_MAX 1024 /* bytes of a parameter; all of them have at most 4,096 */
#define AMOUNT_MAX 1e20

/* I.i32, I.i64, and @BYTES behind it. */
static bool read_param_factor(const char *word, struct sim_amount_factor *ret_factor) {
  char *end;
  long arg = strtol(word, &end, 10), offset_bytes = 0;
  bool is_wide = strncmp(end, ".i64", 4) == 0;
  if (end == word || arg < 0 || arg >= ARGS_MAX || (!is_wide && strncmp(end, ".i32", 4) != 0)) return false;
  word = end + 4;
  if (*word == '@') {
    offset_bytes = strtol(word + 1, &end, 10);
    if (end == word + 1 || offset_bytes < 0 || offset_bytes > OFFSET_MAX) return false;
    word = end;
  }
  *ret_factor = (struct sim_amount_factor){.kind = is_wide ? SIM_AMOUNT_I64 : SIM_AMOUNT_I32};
  ret_factor->arg = (int)arg;
  ret_factor->offset_bytes = (int)offset_bytes;
  return *word == 0;
}

static bool read_factor(char *word, struct sim_amount_factor *ret_factor) {
  static const struct {
    const char *word;
    struct sim_amount_factor factor;
  } words[] = {
      {"blocks", {.kind = SIM_AMOUNT_BLOCKS}},
      {"threads", {.kind = SIM_AMOUNT_THREADS}},
      {"reduced", {.kind = SIM_AMOUNT_REDUCED}},
      {"type", {.kind = SIM_AMOUNT_NAME, .name_bytes = sim_mangled_type_bytes}},
      {"tensors", {.kind = SIM_AMOUNT_NAME, .name_bytes = sim_mangled_tensor_bytes}},
      {"lists", {.kind = SIM_AMOUNT_NAME, .name_bytes = sim_mangled_list_bytes}},
  };
  for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(word, words[i].word) != 0) continue;
    *ret_factor = words[i].factor;
    return true;
  }
  if (strncmp(word, "arg", 3) == 0) return read_param_factor(word + 3, ret_factor);
  char *end;
  *ret_factor = (struct sim_amount_factor){.kind = SIM_AMOUNT_NUMBER, .number = strtod(word, &end)};
  return end != word && *end == 0 && ret_factor->number >= 0 && ret_factor->number < AMOUNT_MAX;
}

bool sim_amount_read(char *text, struct sim_amount *ret_amount) {
  char *state;
  ret_amount->count = 0;
  for (char *word = strtok_r(text, "*", &state); word != NULL; word = strtok_r(NULL, "*", &state)) {
    if (ret_amount->count == SIM_AMOUNT_FACTORS_MAX) return false;
    if (!read_factor(word, &ret_amount->factors[ret_amount->count])) return false;
    ret_amount->count++;
  }
  return ret_amount->count > 0;
}

double sim_amount_of_name(const struct sim_amount *amount, const char *kernel_name) {
  double product = 1;
  for (int i = 0; i < amount->count; i++)
    if (amount->factors[i].kind == SIM_AMOUNT_NAME) product *= amount->factors[i].name_bytes(kernel_name);
  return product;
}

static const uint8_t *find_param(const struct sim_shape *shape, int arg) {
  if (shape->params == NULL || (shape->param_count != 0 && (uint32_t)arg >= shape->param_count)) return NULL;
  return shape->params[arg];
}

static double read_param(const struct sim_amount_factor *factor, const struct sim_shape *shape) {
  const uint8_t *param = find_param(shape, factor->arg);
  int32_t narrow = 0;
  int64_t wide = 0;
  if (param == NULL) return 0;
  if (factor->kind == SIM_AMOUNT_I32) {
    memcpy(&narrow, param + factor->offset_bytes, sizeof narrow);
    wide = narrow;
  } else {
    memcpy(&wide, param + factor->offset_bytes, sizeof wide);
  }
  return wide > 0 ? (double)wide : 0;
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

static double read_value(const struct sim_amount_factor *factor, const struct sim_shape *shape) {
  switch (factor->kind) {
  case SIM_AMOUNT_NUMBER:
    return factor->number;
  case SIM_AMOUNT_I32:
  case SIM_AMOUNT_I64:
    return read_param(factor, shape);
  case SIM_AMOUNT_BLOCKS:
    return count_blocks(shape);
  case SIM_AMOUNT_THREADS:
    return count_blocks(shape) * shape->block[0] * shape->block[1] * shape->block[2];
  case SIM_AMOUNT_REDUCED:
    return read_reduced(shape);
  case SIM_AMOUNT_NAME: /* counted already */
    return 1;
  }
  return 1;
}

double sim_amount_of_launch(const struct sim_amount *amount, double name_amount, const struct sim_shape *shape) {
  double product = amount->count > 0 ? name_amount : 0;
  for (int i = 0; i < amount->count; i++) product *= read_value(&amount->factors[i], shape);
  return product < AMOUNT_MAX ? product : AMOUNT_MAX;
}
