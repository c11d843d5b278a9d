/*
 * devices.c - see devices.h. All figures are published peaks of dense matrices at boost clock, in FLOP per nanosecond
 * (67e3: 67 TFLOP/s) and bytes per nanosecond (GB/s); where a data sheet has them for sparse matrices, half of that.
 */
#include "simcuda/common/devices.h"
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* A model comes before those whose name is a part of its own. FLOPs in the order of enum sc_math. */
static const struct sc_device_model models[] = {
    /* NVIDIA H200 data sheet, SXM; 132 SMs as the H100's. FP64 is that of its matrix units. */
    {"H200", 132, 4800, {67e3, 67e3, 494.5e3, 989.5e3, 1979e3, 1979e3}},
    /* NVIDIA H100 data sheet, column H100 NVL; SMs: the H100 NVL product brief. */
    {"H100 NVL", 132, 3900, {60e3, 60e3, 417.5e3, 835.5e3, 1670.5e3, 1670.5e3}},
    /* NVIDIA H100 PCIe data sheet and product brief. */
    {"H100 PCIe", 114, 2000, {51e3, 51e3, 378e3, 756.5e3, 1513e3, 1513e3}},
    /* NVIDIA H100 data sheet, column H100 SXM; SMs: "NVIDIA H100 Tensor Core GPU Architecture". */
    {"H100", 132, 3350, {67e3, 67e3, 494.5e3, 989.5e3, 1979e3, 1979e3}},
    /* NVIDIA A100 data sheets of both sizes of memory; SMs: "NVIDIA A100 Tensor Core GPU Architecture". It has no FP8:
     * libraries compute in 16 bits. */
    {"A100-SXM4-40GB", 108, 1555, {19.5e3, 19.5e3, 156e3, 312e3, 312e3, 624e3}},
    {"A100-PCIE-40GB", 108, 1555, {19.5e3, 19.5e3, 156e3, 312e3, 312e3, 624e3}},
    {"A100 80GB PCIe", 108, 1935, {19.5e3, 19.5e3, 156e3, 312e3, 312e3, 624e3}},
    {"A100", 108, 2039, {19.5e3, 19.5e3, 156e3, 312e3, 312e3, 624e3}},
    /* NVIDIA L40S data sheet; FP64 is a 64th of FP32 ("NVIDIA Ada GPU Architecture", of the AD102). */
    {"L40S", 142, 864, {1.43e3, 91.6e3, 183e3, 362e3, 733e3, 733e3}},
    /* "NVIDIA Ada GPU Architecture", table of the GeForce RTX 4090: 16 and 8 bits with sums of FP32. */
    {"RTX 4090", 128, 1008, {1.29e3, 82.6e3, 82.6e3, 165.2e3, 330.3e3, 660.6e3}},
    /* NVIDIA T4 data sheet; FP64 is a 32nd of FP32 ("NVIDIA Turing GPU Architecture"). It has neither TF32 nor FP8. */
    {"T4", 40, 320, {0.25e3, 8.1e3, 8.1e3, 65e3, 65e3, 130e3}},
};

static bool is_word_end(char character) {
  return !isalnum((unsigned char)character);
}

/* Whether the words stand in the text, neither within a longer word. */
static bool has_words(const char *text, const char *words) {
  size_t length = strlen(words);
  for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words))
    if ((at == text || is_word_end(at[-1])) && is_word_end(at[length])) return true;
  return false;
}

const struct sc_device_model *sc_find_device_model(const char *device_name) {
  for (unsigned i = 0; device_name != NULL && i < sizeof models / sizeof *models; i++)
    if (has_words(device_name, models[i].name)) return &models[i];
  return &models[0];
}

double sc_find_work_ns(const struct sc_device_model *model, int sm_count, double flops, enum sc_math math,
                       double bytes) {
  double part = sm_count > 0 ? (double)sm_count / model->sm_count : 1;
  double memory_part = part < 1 ? part : 1; /* no device has more memory than its model */
  if ((unsigned)math >= SC_MATH_KINDS) math = SC_MATH_FP32;
  double flops_ns = flops / (model->flops_per_ns[math] * part * SC_FLOPS_PART);
  double bytes_ns = bytes / (model->bytes_per_ns * memory_part * SC_BYTES_PART);
  double longer_ns = flops_ns > bytes_ns ? flops_ns : bytes_ns;
  return longer_ns > 0 ? longer_ns : 0; /* also for what is no number */
}
