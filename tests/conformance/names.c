/*
 * names: cuGetProcAddress: versions, per-thread variants, statuses; names of errors.
 */
#include "row.h"

static void *function;
#define WAS ((void *)0x1234)
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

/* The code, what became of an output that held something, and the status. */
static void ask_all(const char *fact_name, const char *name, int version, cuuint64_t flags) {
  function = WAS;
  status = (CUdriverProcAddressQueryResult)UNTOUCHED;
  CODE(fact_name, cuGetProcAddress_v2(name, &function, version, flags, &status));
  fact("status", status);
  fact("found", function != NULL && function != WAS);
  fact("untouched", function == WAS);
}

static void ask_first(const char *fact_name, const char *name, int version, cuuint64_t flags) {
  function = WAS;
  CODE(fact_name, cuGetProcAddress(name, &function, version, flags));
  fact("untouched", function == WAS);
}

static void proc_first_form(void) {
  ask_first("unknown", "cuNothing", 12000, 0);
  ask_first("too_old", "cuMemAllocAsync", 11010, 0);
  ask_first("flags", "cuInit", 12000, 4);
  ask_first("there", "cuInit", 12000, 0);
  function = WAS;
  CODE("second_without_status", cuGetProcAddress_v2("cuNothing", &function, 12000, 0, NULL));
  fact("none", function == NULL);
}

static void proc_per_thread(void) {
  const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  ask_all("before", "cuMemcpyHtoD", 6999, per_thread);
  ask_all("since", "cuMemcpyHtoD", 7000, per_thread);
  ask_all("launch_before", "cuLaunchKernel", 6050, per_thread);
  ask_all("legacy_before", "cuLaunchKernel", 6050, 0);
  ask_all("without_twin", "cuMemAlloc", 2000, per_thread);
  ask_all("newer", "cuLaunchKernelEx", 11050, per_thread);
  ask_first("first_form", "cuMemcpyHtoD", 6999, per_thread);
}

static void proc_odd_versions(void) {
  ask_all("zero", "cuMemAlloc", 0, 0);
  ask_all("thousand", "cuMemAlloc", 1000, 0);
  ask_all("first", "cuMemAlloc", 2000, 0);
  fact("first_form", function == (void *)cuMemAlloc);
  ask_all("minus_one", "cuMemAlloc", -1, 0);
  fact("newest", function == (void *)cuMemAlloc_v2);
  ask_all("huge", "cuMemAlloc", 99999, 0);
  ask_all("zero_unknown", "cuNothing", 0, 0);
  ask_all("empty", "", 12000, 0);
  ask_all("form", "cuMemAlloc_v2", 12000, 0);
}

static void proc_flags(void) {
  const cuuint64_t both = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  ask_all("both", "cuStreamSynchronize", 12000, both);
  fact("per_thread", function == (void *)cuStreamSynchronize_ptsz);
  ask_all("both_before", "cuStreamSynchronize", 6050, both);
  ask_all("four", "cuInit", 12000, 4);
  ask_all("high", "cuInit", 12000, 1ull << 32);
}

/* The last version that lacks a name, and its first: found or not. */
static void since(const char *name, int version) {
  char label[96];
  snprintf(label, sizeof label, "%s_%d", name, version);
  ask(label, name, version - 10, 0);
  ask("then", name, version, 0);
}

static void proc_other_headers(void) {
  since("cuProfilerInitialize", 4000);
  since("cuProfilerStart", 4000);
  since("cuGraphicsGLRegisterBuffer", 3000);
  since("cuGLGetDevices", 4010);
  since("cuGLCtxCreate", 2000);
  ask("gl_second", "cuGLCtxCreate", 3020, 0);
  fact("is", function == (void *)cuGLCtxCreate_v2);
  since("cuGraphicsEGLRegisterImage", 7000);
  since("cuEGLStreamConsumerConnect", 7000);
  since("cuEGLStreamConsumerConnectWithFlags", 8000);
  since("cuVDPAUGetDevice", 3010);
  since("cuVDPAUCtxCreate", 3010);
  ask("vdpau_second", "cuVDPAUCtxCreate", 3020, 0);
  fact("is", function == (void *)cuVDPAUCtxCreate_v2);
}

static void says(const char *fact_name, CUresult code, const char *wanted) {
  const char *text = NULL;
  CODE(fact_name, cuGetErrorString(code, &text));
  fact("is", text != NULL && strcmp(text, wanted) == 0);
}

static void error_texts(void) {
  says("profiler", CUDA_ERROR_PROFILER_DISABLED, "profiler disabled while using external profiling tool");
  says("licence", CUDA_ERROR_DEVICE_NOT_LICENSED, "device doesn't have valid Grid license");
  says("limit", CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture");
  says("ecc", CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered");
  says("source", CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid");
  says("timeout", CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated");
  says("assert", CUDA_ERROR_ASSERT, "device-side assert triggered");
  says("instruction", CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered");
  says("merge", CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences");
  says("wait", CUDA_ERROR_TIMEOUT, "wait operation timed out");
  says("cluster", CUDA_ERROR_INVALID_CLUSTER_SIZE,
       "a kernel launch error has occurred due to cluster misconfiguration");
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

ROWS(ROW(proc_versions), ROW(proc_streams), ROW(proc_itself), ROW(proc_errors), ROW(proc_first_form),
     ROW(proc_per_thread), ROW(proc_odd_versions), ROW(proc_flags), ROW(proc_other_headers), ROW(error_texts),
     ROW(error_names))
