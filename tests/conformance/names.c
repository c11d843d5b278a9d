/*
 * names: cuGetProcAddress: versions, per-thread variants, statuses; names of errors.
 */
#include "row.h"

static void *function;
static CUdriverProcAddressQueryResult status;

static void ask(const char *fact_name, const char *name, int version, cuuint64_t flags) {
  function = NULL;
  status = (CUdriverProcAddressQueryResult)UNTOUCHED;
  CODE(fact_name, cuGetProcAddress_v2(name, &function, version, flags, &status));
  fact("status", status);
}

static void proc_versions(void) {
  NEED(cuInit(0));
  ask("alloc", "cuMemAlloc", 12000, 0);
  fact("as_linked", function == (void *)cuMemAlloc_v2);
  ask("context_11", "cuCtxCreate", 11000, 0);
  fact("second", function == (void *)cuCtxCreate_v2);
  ask("too_old", "cuMemAllocAsync", 10000, 0);
  fact("none", function == NULL);
  ask("unknown", "cuNothing", 12000, 0);
  fact("none", function == NULL);
}

static void proc_streams(void) {
  NEED(cuInit(0));
  ask("legacy", "cuStreamSynchronize", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
  fact("plain", function == (void *)cuStreamSynchronize);
  ask("per_thread", "cuStreamSynchronize", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  fact("twin", function == (void *)cuStreamSynchronize_ptsz);
  ask("without_twin", "cuMemAlloc", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  fact("plain", function == (void *)cuMemAlloc_v2);
  ask("copy", "cuMemcpyHtoD", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
  void *legacy = function;
  ask("copy", "cuMemcpyHtoD", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  fact("copies_differ", function != NULL && function != legacy);
}

static void proc_itself(void) {
  NEED(cuInit(0));
  ask("twelve", "cuGetProcAddress", 12000, 0);
  fact("second", function == (void *)cuGetProcAddress_v2);
  ask("eleven", "cuGetProcAddress", 11030, 0);
  fact("first", function == (void *)cuGetProcAddress);
}

static void proc_errors(void) {
  NEED(cuInit(0));
  CODE("first_unknown", cuGetProcAddress("cuNothing", &function, 12000, 0));
  CODE("no_name", cuGetProcAddress_v2(NULL, &function, 12000, 0, &status));
  CODE("no_output", cuGetProcAddress_v2("cuInit", NULL, 12000, 0, &status));
  CODE("no_status", cuGetProcAddress_v2("cuInit", &function, 12000, 0, NULL));
}

static void error_names(void) {
  const char *text = NULL;
  CODE("name", cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  fact("is", text != NULL && strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
  CODE("string", cuGetErrorString(CUDA_SUCCESS, &text));
  fact("is", text != NULL && strcmp(text, "no error") == 0);
  CODE("unknown", cuGetErrorName((CUresult)12345, &text));
  fact("none", text == NULL);
}

ROWS(ROW(proc_versions), ROW(proc_streams), ROW(proc_itself), ROW(proc_errors), ROW(error_names))
