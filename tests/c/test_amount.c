/* test_amount.c - what names of PyTorch's kernels say, as libtorch_cuda 2.13 registers them; bytes= and flops= of
 * rules. */
#include <string.h>

#include "check.h"
#include "simgpu/modules/amount.h"
#include "simgpu/modules/mangled.h"

#define NATIVE "_ZN2at6native"
#define VECTORIZED NATIVE "29vectorized_elementwise_kernelI"
#define ITERATOR "ERNS_18TensorIteratorBase"
#define CAST "LoadWithCastILi1EEENSC_13StoreWithCastILi1EEEEEviT_T0_T2_T3_T4_T5_"

static void names_of_elementwise_kernels_tell_their_tensors(void) {
  static const struct {
    double bytes;
    const char *name;
  } cases[] = {
      /* one type for all tensors */
      {4, VECTORIZED "Li4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"},
      {8, VECTORIZED "Li2ENS0_11FillFunctorIlEESt5arrayIPcLm1EEEEviT0_T1_"},
      {2, VECTORIZED "Li8ENS0_11FillFunctorIN3c108BFloat16EEESt5arrayIPcLm1EEEEviT0_T1_"},
      {8, VECTORIZED "Li2ENS0_11FillFunctorIN3c107complexIfEEEESt5arrayIPcLm1EEEEviT0_T1_"},
      {12, VECTORIZED "Li4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"},
      {8, VECTORIZED "Li4ENS0_21CUDAFunctorOnSelf_addIfEESt5arrayIPcLm2EEEEviT0_T1_"},
      {12, VECTORIZED "Li4ENS0_15CUDAFunctor_addIfEENS_6detail5ArrayIPcLi3EEEEEviT0_T1_"}, /* of older versions */
      {12, NATIVE "18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastINS0_15CUDAFunctor_addIfEEEEvRNS_18Tens"
                  "orIteratorBaseERKT_EUliE_EEviT1_"},
      /* types of both sides and of the result */
      {6, VECTORIZED "Li8ENS0_13BinaryFunctorIN3c108BFloat16ES4_S4_NS0_15binary_internal10MulFunctorIfEEEESt5arrayIPcL"
                     "m3EEEEviT0_T1_"},
      {9, NATIVE "27unrolled_elementwise_kernelINS0_13BinaryFunctorIffbNS0_51_GLOBAL__N__68c48bfe_18_CompareEQKernel_"
                 "cu_d8008c9616CompareEqFunctorIfEEEESt5arrayIPcLm3EELi4E23TrivialOffsetCalculatorILi2EjESA_"},
      {8, VECTORIZED "Li4ENS0_13AUnaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEESt5arrayIPcLm2EEEEviT0_T1_"},
      {8, NATIVE "18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastINS0_13BUnaryFunctorIfffNS0_15binary_int"
                 "ernal10MulFunctorIfEEEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_"},
      /* the parameters of a lambda */
      {6, VECTORIZED "Li8EZNS0_25bfloat16_copy_kernel_cuda" ITERATOR "EEUlfE_St5arrayIPcLm2EEEEviT0_T1_"},
      {4, VECTORIZED "Li8EZZZNS0_18GeluCUDAKernelImpl" ITERATOR "ENS0_8GeluTypeEENKUlvE0_clEvENKUlvE2_clEvEUlN3c108BFl"
                     "oat16EE_St5arrayIPcLm2EEEEviT0_T1_"},
      {6, VECTORIZED "Li8EZZZNS0_26GeluBackwardCUDAKernelImpl" ITERATOR "ENS0_8GeluTypeEENKUlvE0_clEvENKUlvE2_clEvEUlN"
                     "3c108BFloat16ES8_E_St5arrayIPcLm3EEEEviT0_T1_"},
      {5, VECTORIZED "Li8EZNS0_43_GLOBAL__N__1131530d_10_Dropout_cu_0e96ed3819masked_scale_kernelIbN3c108BFloat16EfEEv"
                     "RNS_6TensorERKS6_S9_T1_EUlS5_bE_St5arrayIPcLm3EEEEviT0_SA_"},
      {13, VECTORIZED "Li4EZZZNS0_49_GLOBAL__N__037c6ad9_16_TensorCompare_cu_71e06f4e17where_kernel_implERNS_14TensorIt"
                      "eratorEENKUlvE_clEvENKUlvE1_clEvEUlbjjE_St5arrayIPcLm4EEEEviT0_T1_"},
      {16,
       VECTORIZED "Li4EZZZNS0_19addcmul_cuda_kernel" ITERATOR "ERKN3c106ScalarEENKUlvE0_clEvENKUlvE5_clEvEUlfffE_St5"
                  "arrayIPcLm4EEEEviT0_T1_"},
      {5,
       VECTORIZED "Li8EZNS0_21compare_scalar_kernelIfEEv" ITERATOR "ENS0_50_GLOBAL__N__30bf7ff7_17_CompareKernels_cu_"
                  "8f1b29aa6OpTypeET_EUlfE_St5arrayIPcLm2EEEEviT0_T1_"},
      {8, NATIVE "27unrolled_elementwise_kernelIZZZNS0_23direct_copy_kernel_cuda" ITERATOR "EENKUlvE1_clEvENKUlvE5_clEv"
                 "EUlfE_St5arrayIPcLm2EELi4E23TrivialOffsetCalculatorILi1EjESB_NS0_6memory12" CAST},
      {8,
       NATIVE "18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastIZZZNS0_23direct_copy_kernel_cuda" ITERATOR
              "EENKUlvE1_clEvENKUlvE5_clEvEUlfE_EEvS4_RKT_EUliE_EEviT1_"},
      {28,
       NATIVE "49_GLOBAL__N__df1a5ba1_16_Normalization_cu_5c38458745unrolled_elementwise_kernel_for_multi_outputsILi"
              "3EZZZNS1_34batch_norm_update_stats_and_invertERKNS_6TensorES5_S5_S5_ddlENKUlvE_clEvENKUlvE0_clEvEUlfff"
              "fE_St5arrayIPcLm7EE23TrivialOffsetCalculatorILi4EjESC_ILi3EjEEEviT0_T1_T2_T3_"},
      /* nothing to read */
      {8, "elementwise"},
      {8, ""},
      {12, "unctor5arrayIPcLm3E"},
      {8, "5arrayIPcLm99999999999999999999E"},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    double bytes = sim_mangled_tensor_bytes(cases[i].name);
    if (bytes != cases[i].bytes) fprintf(stderr, "%g instead of %g: %s\n", bytes, cases[i].bytes, cases[i].name);
    CHECK(bytes == cases[i].bytes);
  }
}

static void names_tell_a_type(void) {
  CHECK(sim_mangled_type_bytes(NATIVE "53_GLOBAL__N__4da244e1_20_layer_norm_kernel_cu_9c5ada8a28vectorized_layer_norm_k"
                                      "ernelIN3c108BFloat16EfLb1EEEviT0_PKT_S8_S8_PS5_S9_PS6_") == 2);
  CHECK(sim_mangled_type_bytes(NATIVE
                               "43_GLOBAL__N__f71e7945_10_SoftMax_cu_9f978f6320cunn_SoftMaxBackwardILi8EN3c104Hal"
                               "fEfS4_NS1_26LogSoftMaxBackwardEpilogueEEEvPT0_PKT2_SA_l") == 2);
  CHECK(sim_mangled_type_bytes(NATIVE
                               "13reduce_kernelILi128ELi4ENS0_8ReduceOpIN3c108BFloat16ENS0_14func_wrapper_tIS4_ZN"
                               "S0_11sum_functorIS4_fS4_EclERNS_14TensorIteratorEEUlffE_EEjS4_Li4ELi8EEEEEvT1_") == 2);
  CHECK(sim_mangled_type_bytes(NATIVE
                               "13reduce_kernelILi512ELi1ENS0_8ReduceOpIdNS0_9ArgMaxOpsIdEEjlLi4ELi4EEEEEvT1_") == 8);
  CHECK(sim_mangled_type_bytes(NATIVE "6mbtopk4fillIjjEEvPT_S3_T0_") == 4);
  CHECK(sim_mangled_type_bytes("saxpy") == 4 && sim_mangled_type_bytes("") == 4);
}

static void names_tell_what_lists_have(void) {
#define LISTS NATIVE "57_GLOBAL__N__7e105b8f_24_ForeachBinaryOpScalar_cu_86b9896c25multi_tensor_apply_kernelI"
  CHECK(sim_mangled_list_bytes(LISTS
                               "NS1_18TensorListMetadataILi1EEENS1_21BinaryOpScalarFunctorIfLi1ELi1ELi0EEEJSt4plus"
                               "IfEfEEEvT_T0_DpT1_") == 8);
  CHECK(sim_mangled_list_bytes(LISTS
                               "NS1_18TensorListMetadataILi2EEENS1_24BinaryOpListAlphaFunctorIN3c104HalfELi2ELi2ELi"
                               "0EEEJSt4plusIfEfEEEvT_T0_DpT1_") == 6);
  CHECK(sim_mangled_list_bytes(LISTS
                               "NS1_32FusedOptimizerTensorListMetadataILi4EEENS1_20FusedAdamMathFunctorIfLi4ELNS0_9A"
                               "DAM_MODEE1ELb0EEEJPKfdddddbS9_S9_EEEvT_T0_DpT1_") == 28);
  CHECK(sim_mangled_list_bytes(LISTS
                               "NS1_18TensorListMetadataILi1EEENS0_13LpNormFunctorIfLNS0_8NormTypeE2EfLi1ELi1ELi0E"
                               "EEJPfiEEEvT_T0_DpT1_") == 4);
  CHECK(sim_mangled_list_bytes(LISTS) == 8 && sim_mangled_list_bytes("FunctorIf") == 8);
}

static const unsigned grid[3] = {10, 2, 1}, block[3] = {32, 16, 1};

static double count(const char *rule, const char *name, void **params) {
  char text[100];
  struct sim_amount amount;
  struct sim_shape shape = {grid, block, params, 0};
  snprintf(text, sizeof text, "%s", rule);
  CHECK(sim_amount_read(text, &amount));
  return sim_amount_of_launch(&amount, sim_amount_of_name(&amount, name), &shape);
}

static void rules_multiply_their_factors(void) {
  int32_t number = 1000, below = -1, fields[] = {0, 0, 3, 5};
  int64_t wide = 5000000000;
  void *params[] = {&number, &wide, &below, fields};
  CHECK(count("arg0.i32*tensors", "NS0_11FillFunctorIlEESt5arrayIPcLm1EEEEviT0_T1_", params) == 8000);
  CHECK(count("arg1.i64*2.5", "", params) == 12.5e9);
  CHECK(count("arg2.i32*4", "", params) == 0);
  CHECK(count("blocks*65536", "", NULL) == 20 * 65536 && count("threads*2", "", NULL) == 20 * 512 * 2);
  CHECK(count("arg0.i32*4", "", NULL) == 0);
  CHECK(count("arg3.i32@8*arg3.i32@12*2", "", params) == 30 && count("arg3.i64@8", "", params) == 3 + 5 * 0x1p32);
  CHECK(count("arg1.i64*arg1.i64*arg1.i64", "", params) == 1e20);
}

static void senseless_rules_are_refused(void) {
  static const char *const rules[] = {
      "",     "arg",      "arg0",      "arg-1.i32",   "arg64.i32",     "arg0.i16",
      "word", "blocks*x", "-4",        "inf",         "nan",           "1*2*3*4*5*6*7*8*9",
      "*",    "4 ",       "arg0.i32@", "arg0.i32@-4", "arg0.i32@4096", "arg0.i32x"};
  for (unsigned i = 0; i < sizeof rules / sizeof *rules; i++) {
    char text[100];
    struct sim_amount amount;
    snprintf(text, sizeof text, "%s", rules[i]);
    if (sim_amount_read(text, &amount)) fprintf(stderr, "read: %s\n", rules[i]);
    snprintf(text, sizeof text, "%s", rules[i]);
    CHECK(!sim_amount_read(text, &amount));
  }
}

/* The configuration stands behind an operation of any size. */
static void reductions_say_what_they_take(void) {
  for (int begin = 0; begin < 24; begin += 3) {
    int32_t words[64] = {0};
    const int32_t config[] = {4, 4096, 100, 1, 1, 1, 0, 0, 0, 0, 0, 32, 16, 512};
    void *params[] = {words};
    memcpy(words + begin, config, sizeof config);
    CHECK(count("reduced*2", "", params) == 4096 * 100 * 2);
    words[begin + 1] = 0;
    CHECK(count("reduced*2", "", params) == 0);
  }
  CHECK(count("reduced*2", "", NULL) == 0);
}

int main(void) {
  RUN(names_of_elementwise_kernels_tell_their_tensors);
  RUN(names_tell_a_type);
  RUN(names_tell_what_lists_have);
  RUN(rules_multiply_their_factors);
  RUN(senseless_rules_are_refused);
  RUN(reductions_say_what_they_take);
  return 0;
}
