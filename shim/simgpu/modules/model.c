/*
 * model.c - reads kernels.model: one rule a line, `REGEX us=N wave_us=N [ns=I] [bytes=A*B*...] [flops=A*B*...]
 * [math=TYPE] [meet=N|argI] [fault=CODE] [host=NAME.TYPE] [args=I,J,...]`, the word `default` for the rule of all other
 * kernels. Read once per process, at the first look-up of a kernel. A line that cannot be understood is said on stderr
 * and left out: this is a simulator's input, and the program should continue.
 */
#define _GNU_SOURCE /* secure_getenv, dladdr */
#include "simgpu/modules/model.h"
#include "simgpu/modules/host_kernels.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include <dlfcn.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULES_MAX 256

struct entry {
  regex_t pattern;
  struct sim_model_rule rule;
};

static struct entry entries[RULES_MAX];
static uint32_t entry_count;
static struct sim_model_rule fallback = {
    .base_us = 2.0, .wave_us = 2.0, .ns_arg = -1, .math = SC_MATH_FP32, .product_count = 1, .meet_arg = -1};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool read_host(char *value, struct sim_model_rule *rule) {
  char *type = strchr(value, '.');
  if (type != NULL) *type++ = 0;
  rule->host = sim_host_find(value);
  if (type == NULL || strcmp(type, "f32") == 0)
    rule->type = SIM_HOST_F32;
  else if (strcmp(type, "f64") == 0)
    rule->type = SIM_HOST_F64;
  else if (strcmp(type, "i32") == 0)
    rule->type = SIM_HOST_I32;
  else if (strcmp(type, "byte") == 0)
    rule->type = SIM_HOST_BYTE;
  else if (strcmp(type, "any") == 0)
    rule->type = SIM_HOST_ANY;
  else
    return false;
  return rule->host != NULL;
}

static bool read_list(char *value, uint8_t ret_list[SIM_HOST_ARGS_MAX]) {
  for (int i = 0; i < SIM_HOST_ARGS_MAX; i++) {
    char *end;
    unsigned long index = strtoul(value, &end, 10);
    if (end == value || index > UINT8_MAX || (*end != ',' && *end != 0)) return false;
    ret_list[i] = (uint8_t)index;
    if (*end == 0) return true;
    value = end + 1;
  }
  return false;
}

static bool read_number(const char *text, double *ret_us) {
  char *end;
  *ret_us = strtod(text, &end);
  return end != text && *end == 0 && *ret_us >= 0 && *ret_us < 1e9;
}

static bool read_index(const char *text, int16_t *ret_index) {
  double index;
  if (!read_number(text, &index) || index > UINT8_MAX) return false;
  *ret_index = (int16_t)index;
  return true;
}

static bool read_meet(const char *text, struct sim_model_rule *rule) {
  double devices;
  if (strncmp(text, "arg", 3) == 0) return read_index(text + 3, &rule->meet_arg);
  if (!read_number(text, &devices) || devices < 2 || devices > SIM_MEET_MAX) return false;
  rule->meet = (uint16_t)devices;
  return true;
}

static bool read_math(const char *text, struct sim_model_rule *rule) {
  static const char *const names[SC_MATH_KINDS] = {
      [SC_MATH_FP64] = "fp64", [SC_MATH_FP32] = "fp32", [SC_MATH_TF32] = "tf32",
      [SC_MATH_HALF] = "half", [SC_MATH_FP8] = "fp8",   [SC_MATH_INT8] = "int8",
  };
  rule->product_count = strcmp(text, "tf32x3") == 0 ? 3 : 1;
  if (rule->product_count > 1) text = "tf32";
  for (int math = 0; math < SC_MATH_KINDS; math++) {
    if (strcmp(text, names[math]) != 0) continue;
    rule->math = (enum sc_math)math;
    return true;
  }
  return false;
}

static bool read_fault(const char *text, struct sim_model_rule *rule) {
  char *end;
  rule->fault = (CUresult)strtol(text, &end, 10);
  return *end == 0 && sim_is_sticky(rule->fault);
}

/* Returns what is wrong with the line, or NULL. */
static const char *read_line(char *line) {
  char *state, *pattern = strtok_r(line, " \t\n", &state);
  struct sim_model_rule rule = fallback;
  for (int i = 0; i < SIM_HOST_ARGS_MAX; i++) rule.args[i] = i;
  for (char *word = strtok_r(NULL, " \t\n", &state); word != NULL; word = strtok_r(NULL, " \t\n", &state)) {
    bool good = false;
    if (strncmp(word, "us=", 3) == 0) good = read_number(word + 3, &rule.base_us);
    if (strncmp(word, "wave_us=", 8) == 0) good = read_number(word + 8, &rule.wave_us);
    if (strncmp(word, "ns=", 3) == 0) good = read_index(word + 3, &rule.ns_arg);
    if (strncmp(word, "bytes=", 6) == 0) good = sim_amount_read(word + 6, &rule.bytes);
    if (strncmp(word, "flops=", 6) == 0) good = sim_amount_read(word + 6, &rule.flops);
    if (strncmp(word, "math=", 5) == 0) good = read_math(word + 5, &rule);
    if (strncmp(word, "meet=", 5) == 0) good = read_meet(word + 5, &rule);
    if (strncmp(word, "fault=", 6) == 0) good = read_fault(word + 6, &rule);
    if (strncmp(word, "host=", 5) == 0) good = read_host(word + 5, &rule);
    if (strncmp(word, "args=", 5) == 0) good = read_list(word + 5, rule.args);
    if (strncmp(word, "sizes=", 6) == 0) good = read_list(word + 6, rule.sizes);
    if (!good) return word;
  }
  if (strcmp(pattern, "default") == 0) {
    fallback = rule;
    return NULL;
  }
  if (entry_count == RULES_MAX) return "too many rules";
  struct entry *entry = &entries[entry_count];
  if (regcomp(&entry->pattern, pattern, REG_EXTENDED | REG_NOSUB) != 0) return pattern;
  entry->rule = rule;
  entry_count++;
  return NULL;
}

/* The file named by the environment, by the server's configuration, else the one beside this library. */
static FILE *open_file(char *ret_path, size_t path_bytes) {
  const char *named = secure_getenv("VGPU_SIM_KERNELS");
  if (named == NULL && sim_model_path()[0] != 0) named = sim_model_path();
  Dl_info self;
  ret_path[0] = 0;
  if (named != NULL) {
    snprintf(ret_path, path_bytes, "%s", named);
  } else if (dladdr((void *)&once, &self) != 0 && strrchr(self.dli_fname, '/') != NULL) {
    int directory = strrchr(self.dli_fname, '/') - self.dli_fname;
    snprintf(ret_path, path_bytes, "%.*s/kernels.model", directory, self.dli_fname);
  }
  FILE *file = fopen(ret_path, "re");
  if (file == NULL && named != NULL)
    fprintf(stderr, "vgpu-sim: cannot read the kernel model %s, all kernels cost the default\n", named);
  return file;
}

static void read_file(void) {
  char path[4096], line[1024], copy[1024];
  FILE *file = open_file(path, sizeof path);
  if (file == NULL) return;
  for (int number = 1; fgets(line, sizeof line, file) != NULL; number++) {
    if (line[strspn(line, " \t\n")] == 0 || line[strspn(line, " \t")] == '#') continue;
    snprintf(copy, sizeof copy, "%s", line);
    const char *wrong = read_line(copy);
    if (wrong != NULL) fprintf(stderr, "vgpu-sim: %s:%d: cannot use '%s', line left out\n", path, number, wrong);
  }
  fclose(file);
}

const struct sim_model_rule *sim_model_find(const char *kernel_name) {
  pthread_once(&once, read_file);
  for (uint32_t i = 0; i < entry_count; i++)
    if (regexec(&entries[i].pattern, kernel_name, 0, NULL, 0) == 0) return &entries[i].rule;
  return &fallback;
}

bool sim_model_should_compute(const struct sim_model_rule *rule) {
  bool has_work = rule->ns_arg >= 0 || rule->bytes.count > 0 || rule->flops.count > 0;
  return rule == &fallback || rule->host != NULL || has_work;
}

uint64_t sim_model_cost_ns(const struct sim_model_rule *rule, uint64_t blocks, uint64_t block_threads,
                           uint64_t device_threads) {
  uint64_t waves = (blocks * block_threads + device_threads - 1) / device_threads;
  return (uint64_t)((rule->base_us + rule->wave_us * (double)waves) * 1e3);
}
