/* kernels.c - PyTorch's own kernels on the simulated device, an H200: as long as what they move and compute (bytes= and
 * flops= of kernels.model). */
#include "program.h"

#define ADD "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"
#define REDUCE                                                                                                         \
  "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIN3c108BFloat16ENS0_7MeanOpsIS4_fffEEjS4_Li4ELi4EEEEEvT1_"
#define FLASH                                                                                                          \
  "_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi64ELi128ELi64ELi4ELb0ELb0EN7cutlass10bfloat16_tE1" \
  "9Flash_kernel_traitsILi64ELi128ELi64ELi4ES3_EELb0ELb1ELb0ELb0ELb1ELb1ELb0ELb0EEEvNS_16Flash_fwd_paramsE"

/* A kernel with a parameter of the type that PTX has for it. */
static CUfunction load(const char *name, const char *param) {
  char image[1000];
  CUmodule module;
  CUfunction function;
  snprintf(image, sizeof image,
           ".version 8.0\n.target sm_50\n.address_size 64\n.visible .entry %s(\n.param %s\n)\n{\nret;\n}\n", name,
           param);
  CHECK(cuModuleLoadData(&module, image));
  CHECK(cuModuleGetFunction(&function, module, name));
  return function;
}

static double measure_us(CUfunction function, void *param) {
  void *params[] = {param};
  begin_work();
  CHECK(cuLaunchKernel(function, 64, 1, 1, 32, 16, 1, 0, stream, params, NULL));
  return end_work_us();
}

int main(void) {
  int count = 1 << 24, none = 0, below = -5;
  int reduction[100] = {0}, attention[100] = {0};
  begin();
  CUfunction add = load(ADD, ".u32 n");
  TRUE(is_about(measure_us(add, &count), 3.0 * 4 * count / (4800e3 * 0.8) + 2));
  TRUE(is_about(measure_us(add, &none), 2) && is_about(measure_us(add, &below), 2));
  CUfunction reduce = load(REDUCE, ".align 8 .b8 op[400]");
  int config[] = {4, 1 << 20, 64, 1, 1, 1, 0, 0, 0, 0, 0, 32, 16};
  TRUE(is_about(measure_us(reduce, reduction), 3)); /* says nothing that makes sense */
  memcpy(reduction + 5, config, sizeof config);
  TRUE(is_about(measure_us(reduce, reduction), 2.0 * (64 << 20) / (4800e3 * 0.8) + 3));
  CUfunction flash = load(FLASH, ".align 8 .b8 params[400]");
  attention[24] = 16, attention[44] = 8, attention[45] = attention[46] = 2048, attention[48] = 64;
  TRUE(is_about(measure_us(flash, attention), 2.0 * 16 * 8 * 2048 * 2048 * 64 / (989.5e6 * 0.7) + 3));
  return 0;
}
