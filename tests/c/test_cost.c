/* test_cost.c - the roofline of the simulated device's CUDA libraries: GPUs by name, and times by hand. */
#include "simcuda/common/cost.h"

#include <math.h>
#include <string.h>

#include "check.h"
#include "simcuda/common/driver.h"
#include "simcuda/common/numbers.h"

/* No driver: estimates are for the default model. */
const struct sc_driver *sc_driver(void) {
  return NULL;
}

static void names_choose_models(void) {
  static const char *const pairs[][2] = {
      {"SIMULATED H200", "H200"},
      {"NVIDIA H200", "H200"},
      {"SIMULATED NVIDIA H100 80GB HBM3", "H100"},
      {"SIMULATED H100 PCIe", "H100 PCIe"},
      {"NVIDIA H100 NVL", "H100 NVL"},
      {"NVIDIA A100-SXM4-80GB", "A100"},
      {"NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"},
      {"SIMULATED L40S", "L40S"},
      {"NVIDIA GeForce RTX 4090", "RTX 4090"},
      {"Tesla T4", "T4"},
      {"NVIDIA H200 MIG 1g.18gb", "H200"},
      {"SIMULATED T400", "H200"}, /* not a T4 */
      {"", "H200"},
  };
  for (unsigned i = 0; i < sizeof pairs / sizeof *pairs; i++)
    CHECK(strcmp(sc_find_device_model(pairs[i][0])->name, pairs[i][1]) == 0);
  CHECK(strcmp(sc_find_device_model(NULL)->name, "H200") == 0);
}

static bool is_about(double value, double wanted) {
  return fabs(value - wanted) <= 0.001 * wanted + 1;
}

static void products_take_what_arithmetic_takes(void) {
  struct sc_cost cost = sc_cost_gemm(4096, 4096, 4096, 1, 4, 4, false, SC_MATH_FP32);
  const struct sc_device_model *model = sc_find_device_model("SIMULATED H200");
  double flops = 2.0 * 4096 * 4096 * 4096;
  CHECK(cost.flops == flops && cost.bytes == 3.0 * 4096 * 4096 * 4);
  CHECK(is_about(sc_estimate_on_ns(model, 0, &cost), 2000 + flops / (67e3 * 0.7)));
  CHECK(sc_estimate_ns(&cost) == sc_estimate_on_ns(model, 0, &cost));                    /* the default */
  CHECK(is_about(sc_estimate_on_ns(model, 66, &cost), 2000 + 2 * flops / (67e3 * 0.7))); /* half of the SMs */
  cost.math = SC_MATH_HALF;
  CHECK(is_about(sc_estimate_on_ns(model, 132, &cost), 2000 + flops / (989.5e3 * 0.7)));
}

static void thin_products_take_what_memory_takes(void) {
  struct sc_cost cost = sc_cost_gemm(1, 4096, 4096, 8, 2, 4, true, SC_MATH_HALF);
  const struct sc_device_model *model = sc_find_device_model("L40S");
  double bytes = 8 * ((1 + 4096) * 4096 * 2.0 + 4096 * 4.0 * 2);
  CHECK(cost.bytes == bytes && is_about(sc_estimate_on_ns(model, 0, &cost), 2000 + bytes / (864 * 0.8)));
}

static void nothing_takes_the_shortest_kernel(void) {
  struct sc_cost cost = sc_cost_gemm(-1, 5, 5, 1, 4, 4, false, SC_MATH_FP32);
  CHECK(sc_estimate_ns(&cost) == 2000);
  cost = (struct sc_cost){NAN, NAN, SC_MATH_FP32};
  CHECK(sc_estimate_ns(&cost) == 2000);
  cost = (struct sc_cost){1e300, INFINITY, (enum sc_math)77};
  CHECK(sc_estimate_ns(&cost) == 1000000002000);
  cost = sc_cost_bytes(4800 * 0.8 * 1e6);
  CHECK(is_about(sc_estimate_ns(&cost), 1002000));
}

static void convolutions_and_attention_are_counted(void) {
  struct sc_convolution shape = {2, 1, 3, 64, 100, 100, 9};
  struct sc_cost cost = sc_cost_convolution(&shape, 4, SC_MATH_FP32);
  CHECK(cost.flops == 2.0 * 2 * 64 * 100 * 3 * 9 && cost.bytes == 4.0 * (2 * 3 * 100 + 2 * 64 * 100 + 64 * 3 * 9));
  struct sc_convolution depthwise = {1, 64, 64, 64, 100, 100, 9};
  CHECK(sc_cost_convolution(&depthwise, 4, SC_MATH_FP32).flops == 2.0 * 64 * 100 * 9);
  struct sc_attention attention = {2, 8, 2, 1000, 500, 64, 64, false, false};
  cost = sc_cost_attention(&attention, 2, SC_MATH_HALF);
  CHECK(cost.flops == 2.0 * 16 * 1000 * 500 * 128 && cost.bytes == 2.0 * (16 * 1000 + 4 * 500) * 128);
  attention.is_causal = attention.is_backward = true;
  CHECK(sc_cost_attention(&attention, 2, SC_MATH_HALF).flops == cost.flops * 0.5 * 2.5);
}

static void products_know_their_arithmetic(void) {
  enum sc_math math;
  CHECK(sc_find_product_math(SC_COMPUTE_32F, SC_R_16BF, &math) && math == SC_MATH_HALF);
  CHECK(sc_find_product_math(SC_COMPUTE_32F, SC_R_32F, &math) && math == SC_MATH_FP32);
  CHECK(sc_find_product_math(SC_COMPUTE_32F_FAST_TF32, SC_R_32F, &math) && math == SC_MATH_TF32);
  CHECK(sc_find_product_math(SC_COMPUTE_32F, SC_R_8F_E4M3, &math) && math == SC_MATH_FP8);
  CHECK(sc_find_product_math(SC_COMPUTE_32I, SC_R_8I, &math) && math == SC_MATH_INT8);
  CHECK(sc_find_product_math(SC_COMPUTE_64F, SC_C_64F, &math) && math == SC_MATH_FP64);
  CHECK(!sc_find_product_math(SC_COMPUTE_64F, SC_R_32F, &math) && !sc_find_product_math(SC_COMPUTE_32F, 99, &math));
  CHECK(!sc_find_product_math(0, SC_R_32F, &math) && sc_find_number(-1) == NULL && sc_find_number(7) == NULL);
}

int main(void) {
  RUN(names_choose_models);
  RUN(products_take_what_arithmetic_takes);
  RUN(thin_products_take_what_memory_takes);
  RUN(nothing_takes_the_shortest_kernel);
  RUN(convolutions_and_attention_are_counted);
  RUN(products_know_their_arithmetic);
  return 0;
}
