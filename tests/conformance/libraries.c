/*
 * libraries: cuLibrary*, kernels and modules: what is found in an image, by which call. The kernels compute nothing.
 */
#include "row.h"

static const char image[] = ".version 7.0\n"
                            ".target sm_75\n"
                            ".address_size 64\n"
                            ".visible .global .align 4 .u32 numbers[4];\n"
                            ".visible .entry nothing()\n{\nret;\n}\n"
                            ".visible .entry two(.param .u64 two_0, .param .u32 two_1)\n{\nret;\n}\n";
static CUlibrary library;

static void load(void) {
  CODE("load", cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
}

static void library_kernels(void) {
  CUkernel kernel = NULL, all[2] = {0};
  CUlibrary of = NULL;
  CUfunction function = NULL;
  const char *name = "";
  unsigned count = 0;
  size_t offset = 99, bytes = 99;
  begin();
  load();
  CODE("count", cuLibraryGetKernelCount(&count, library));
  fact("is", count);
  CODE("all", cuLibraryEnumerateKernels(all, 2, library));
  CODE("kernel", cuLibraryGetKernel(&kernel, library, "two"));
  fact("listed", kernel != NULL && (kernel == all[0] || kernel == all[1]));
  CODE("name", cuKernelGetName(&name, kernel));
  fact("is", strcmp(name, "two") == 0);
  CODE("library", cuKernelGetLibrary(&of, kernel));
  fact("same", of == library);
  CODE("param", cuKernelGetParamInfo(kernel, 1, &offset, &bytes));
  fact("offset", (long long)offset);
  fact("bytes", (long long)bytes);
  CODE("param_beyond", cuKernelGetParamInfo(kernel, 2, &offset, &bytes));
  CODE("function", cuKernelGetFunction(&function, kernel));
  CODE("unload", cuLibraryUnload(library));
}

static void library_launch(void) {
  CUkernel kernel;
  CUfunction function;
  CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};
  begin();
  load();
  NEED(cuLibraryGetKernel(&kernel, library, "nothing"));
  NEED(cuKernelGetFunction(&function, kernel));
  CODE("function", cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
  CODE("kernel", cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
  CODE("config", cuLaunchKernelEx(&config, (CUfunction)kernel, NULL, NULL));
  CODE("wait", cuCtxSynchronize());
}

static void library_globals(void) {
  CUdeviceptr numbers = 0;
  size_t bytes = 0;
  unsigned out[4] = {1, 2, 3, 4}, in[4] = {9, 9, 9, 9};
  begin();
  load();
  CODE("global", cuLibraryGetGlobal(&numbers, &bytes, library, "numbers"));
  fact("bytes", (long long)bytes);
  NEED(cuMemcpyDtoH_v2(in, numbers, sizeof in));
  fact("zero", (in[0] | in[1] | in[2] | in[3]) == 0);
  CODE("write", cuMemcpyHtoD_v2(numbers, out, sizeof out));
  CODE("read", cuMemcpyDtoH_v2(in, numbers, sizeof in));
  fact("same", memcmp(in, out, sizeof in) == 0);
  CODE("unknown", cuLibraryGetGlobal(&numbers, &bytes, library, "letters"));
}

/* A library belongs to no context; its globals and its module are those of the current one. */
static void library_without_context(void) {
  CUkernel kernel;
  CUmodule module;
  CUdeviceptr numbers;
  size_t bytes;
  NEED(cuInit(0));
  load();
  CODE("kernel", cuLibraryGetKernel(&kernel, library, "nothing"));
  fact("global_refused", cuLibraryGetGlobal(&numbers, &bytes, library, "numbers") != CUDA_SUCCESS);
  fact("module_refused", cuLibraryGetModule(&module, library) != CUDA_SUCCESS);
  begin();
  CODE("global", cuLibraryGetGlobal(&numbers, &bytes, library, "numbers"));
  CODE("module", cuLibraryGetModule(&module, library));
}

static void library_refused(void) {
  CUkernel kernel = NULL;
  begin();
  load();
  CODE("unknown", cuLibraryGetKernel(&kernel, library, "three"));
  fact("none", kernel == NULL);
  CODE("no_image", cuLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0));
  CODE("no_file", cuLibraryLoadFromFile(&library, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0));
}

static void module_functions(void) {
  CUmodule module;
  CUfunction function = NULL;
  CUdeviceptr numbers;
  size_t bytes = 0;
  int threads = 0;
  begin();
  CODE("load", cuModuleLoadData(&module, image));
  CODE("function", cuModuleGetFunction(&function, module, "two"));
  CODE("attribute", cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  fact("threads", threads);
  CODE("unknown", cuModuleGetFunction(&function, module, "three"));
  CODE("global", cuModuleGetGlobal_v2(&numbers, &bytes, module, "numbers"));
  fact("bytes", (long long)bytes);
  CODE("unknown", cuModuleGetGlobal_v2(&numbers, &bytes, module, "letters"));
  CODE("unload", cuModuleUnload(module));
  CODE("no_image", cuModuleLoadData(&module, NULL));
}

static void launch_refused(void) {
  CUkernel kernel;
  CUfunction function;
  begin();
  load();
  NEED(cuLibraryGetKernel(&kernel, library, "nothing"));
  NEED(cuKernelGetFunction(&function, kernel));
  CODE("no_function", cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  CODE("no_grid", cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  CODE("no_block", cuLaunchKernel(function, 1, 1, 1, 0, 1, 1, 0, NULL, NULL, NULL));
  CODE("block", cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL));
  CODE("grid", cuLaunchKernel(function, 1, 70000, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  CODE("still_works", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static void function_names(void) {
  CUkernel kernel;
  CUmodule module;
  CUfunction function;
  const char *name = NULL;
  size_t offset = UNTOUCHED;
  begin();
  load();
  NEED(cuLibraryGetKernel(&kernel, library, "nothing"));
  NEED(cuLibraryGetModule(&module, library));
  NEED(cuModuleGetFunction(&function, module, "nothing"));
  CODE("name", cuFuncGetName(&name, function));
  fact("is", name != NULL && strcmp(name, "nothing") == 0);
  CODE("kernel_name", cuKernelGetName(&name, kernel));
  CODE("null", cuFuncGetName(&name, NULL));
  CODE("no_output", cuFuncGetName(NULL, function));
  CODE("kernel_null", cuKernelGetName(&name, NULL));
  CODE("parameter_null", cuFuncGetParamInfo(NULL, 0, &offset, NULL));
  CODE("attribute_null", cuFuncGetAttribute(&(int){0}, CU_FUNC_ATTRIBUTE_NUM_REGS, NULL));
}

ROWS(ROW(library_kernels), ROW(library_launch), ROW(library_globals), ROW(library_without_context),
     ROW(library_refused), ROW(module_functions), ROW(launch_refused), ROW(function_names))
