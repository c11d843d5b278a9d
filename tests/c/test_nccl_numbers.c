/*
 * test_nccl_numbers.c - the narrow types of the simulated device's NCCL: each number of one comes back, what lies
 * between two goes to the nearest, and reductions of all types; and the names of kernels in a source.
 */
#include "check.h"
#include "simcuda/nccl/numbers.h"
#include "simcuda/nccl/reduce.h"
#include "simcuda/nvrtc/program.h"
#include <math.h>
#include <string.h>

#define EACH(bits, count, widen, narrow)                                                                               \
  for (uint32_t bits = 0; bits < (count); bits++) {                                                                    \
    float value = widen((__typeof__(narrow(0)))bits);                                                                  \
    CHECK(isnan(value) ? isnan(widen(narrow(value))) : narrow(value) == bits);                                         \
  }

static void test_each_number_comes_back(void) {
  EACH(bits, 65536, sc_half_to_float, sc_float_to_half)
  EACH(bits, 65536, sc_bfloat_to_float, sc_float_to_bfloat)
  EACH(bits, 256, sc_e4m3_to_float, sc_float_to_e4m3)
  /* Infinity is kept, and what is too large becomes the largest number. */
  EACH(bits, 256, sc_e5m2_to_float, sc_float_to_e5m2)
}

static void test_roundings(void) {
  CHECK(sc_float_to_half(1.0f + 1.0f / 2048) == 0x3c00); /* ties to even */
  CHECK(sc_float_to_half(1.0f + 3.0f / 2048) == 0x3c02);
  CHECK(sc_float_to_half(65519) == 0x7bff && sc_float_to_half(65520) == 0x7c00 && sc_float_to_half(-1e9f) == 0xfc00);
  CHECK(sc_float_to_half(1e-8f) == 0 && sc_float_to_half(-0.0f) == 0x8000);
  CHECK(sc_half_to_float(1) == 0x1p-24f && sc_float_to_half(0x1.8p-24f) == 2);
  CHECK(sc_float_to_bfloat(1.00390625f) == 0x3f80 && sc_float_to_bfloat(INFINITY) == 0x7f80);
  CHECK(sc_float_to_e4m3(1e9f) == 0x7e && sc_float_to_e4m3(-448) == 0xfe && sc_e4m3_to_float(0x7e) == 448);
  CHECK(sc_float_to_e5m2(1e9f) == 0x7b && sc_e5m2_to_float(0x7b) == 57344);
}

static void test_reductions(void) {
  const int8_t narrow[2][3] = {{127, -128, 5}, {1, -1, -7}};
  const int8_t *narrow_inputs[] = {narrow[0], narrow[1]};
  int8_t sums[3];
  sc_reduce(ncclInt8, ncclSum, sums, (const uint8_t *const *)narrow_inputs, 2, 3);
  CHECK(sums[0] == -128 && sums[1] == 127 && sums[2] == -2); /* wraps */
  double wide[3][2500];
  const uint8_t *wide_inputs[] = {(uint8_t *)wide[0], (uint8_t *)wide[1], (uint8_t *)wide[2]};
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 2500; j++) wide[i][j] = (i + 1) * j;
  sc_reduce(ncclFloat64, ncclAvg, wide[1], wide_inputs, 3, 2500); /* into one of the inputs */
  for (int j = 0; j < 2500; j++) CHECK(wide[1][j] == 2 * j);
  float values[] = {1, NAN, 3}, results[3];
  const uint8_t *inputs[] = {(uint8_t *)values, (uint8_t *)values};
  sc_reduce(ncclFloat32, ncclMax, results, inputs, 2, 3);
  CHECK(results[0] == 1 && isnan(results[1]) && results[2] == 3);
  uint16_t halves[] = {0x3c00, 0x4000}; /* 1, 2 */
  sc_multiply(ncclFloat16, halves, halves, 0x4200, 2);
  CHECK(halves[0] == 0x4200 && halves[1] == 0x4600); /* 3, 6 */
}

static void expect_kernels(const char *source, const char *entries) {
  const char *strange;
  char *image = sc_nvrtc_find_kernels(source, &strange);
  CHECK(image != NULL && (strange == NULL) == (entries != NULL));
  if (entries != NULL) CHECK(strcmp(strstr(image, ".visible"), entries) == 0);
  free(image);
}

static void test_kernels_of_a_source(void) {
  expect_kernels("extern \"C\" __global__ void a_kernel(int n) {}", ".visible .entry a_kernel() { ret; }\n");
  expect_kernels("int x; extern\n\"C\"\n__launch_bounds__(f(256), 4)\n__global__ void b (\nfloat *p) { x; }\n"
                 "extern \"C\" __global__ __launch_bounds__(384, 1) void c(){}",
                 ".visible .entry b() { ret; }\n.visible .entry c() { ret; }\n");
  expect_kernels("// __global__ void no()\n/* __global__ */ extern \"C\" __global__ void d(){}",
                 ".visible .entry d() { ret; }\n");
  expect_kernels("template <typename T> __global__ void mangled(T x) {}", NULL);
  expect_kernels("extern \"C\" void host(); __global__ void mangled() {}", NULL);
  expect_kernels("void host() {}", NULL);
  expect_kernels("", NULL);
  char many[4096]; /* marks that all find the one name, which is long */
  memset(many, 0, sizeof many);
  for (int i = 0; i < 200; i++) strcat(many, "__global__ ");
  memset(many + strlen(many), 'n', 1500);
  strcat(many, "(");
  expect_kernels(many, NULL);
  expect_kernels("/* no end", NULL);
  expect_kernels("/*/", NULL);
  expect_kernels("extern \"C\" __global__", NULL);
  expect_kernels("extern \"C\" __global__ (", NULL);
  expect_kernels("extern \"C\" __global__ __launch_bounds__((", NULL);
}

int main(void) {
  RUN(test_each_number_comes_back);
  RUN(test_roundings);
  RUN(test_reductions);
  RUN(test_kernels_of_a_source);
}
