/*
 * away CALL: has a context, memory, a stream, an event and a graph, and says that it is ready; for each line on stdin
 * it makes the call once more and says so: {"code": what the driver or the hook answered, "value": what it is about}.
 */
#include "program.h"

#define BYTES (1u << 20)

static CUfunction kernel;
static CUstream stream;
static CUevent event;
static CUdeviceptr memory;
static CUgraphExec graph;
static CUcontext first;
static unsigned char host[BYTES];

static CUresult capture(CUgraph *ret_graph) {
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  launch(kernel, stream);
  return cuStreamEndCapture(stream, ret_graph);
}

static void prepare(void) {
  CUgraph made;
  first = begin();
  kernel = spin(100);
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  CHECK(cuMemAlloc_v2(&memory, BYTES));
  memset(host, 7, sizeof host);
  CHECK(cuMemcpyHtoD_v2(memory, host, sizeof host));
  CHECK(capture(&made));
  CHECK(cuGraphInstantiateWithFlags(&graph, made, 0));
  launch(kernel, stream);
  CHECK(cuEventRecord(event, stream));
  CHECK(cuStreamSynchronize(stream));
}

static CUresult read_back(long long *ret_value) {
  memset(host, 0, sizeof host);
  CUresult result = cuMemcpyDtoH_v2(host, memory, sizeof host);
  for (size_t i = 0; i < sizeof host; i++) *ret_value += host[i] == 7;
  return result;
}

static CUresult ask_memory(long long *ret_value) {
  size_t free_bytes = 0, total_bytes = 0;
  CUresult result = cuMemGetInfo_v2(&free_bytes, &total_bytes);
  *ret_value = (long long)free_bytes;
  return result;
}

static CUresult ask_attribute(long long *ret_value) {
  int count = 0;
  CUresult result = cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
  *ret_value = count;
  return result;
}

static CUresult make(const char *call, long long *ret_value) {
  CUdeviceptr more;
  CUstream another;
  CUcontext context = first;
  CUgraph made;
  CUevent mark;
  if (strcmp(call, "launch") == 0) return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
  if (strcmp(call, "graph") == 0) return cuGraphLaunch(graph, stream);
  if (strcmp(call, "capture") == 0) return capture(&made);
  if (strcmp(call, "alloc") == 0) return cuMemAlloc_v2(&more, BYTES);
  if (strcmp(call, "pool") == 0) return cuMemAllocAsync(&more, BYTES, stream);
  if (strcmp(call, "host_alloc") == 0) return cuMemAllocHost_v2((void **)&more, BYTES);
  if (strcmp(call, "copy") == 0) return cuMemcpyHtoD_v2(memory, host, sizeof host);
  if (strcmp(call, "copy_async") == 0) return cuMemcpyHtoDAsync_v2(memory, host, sizeof host, stream);
  if (strcmp(call, "read_back") == 0) return read_back(ret_value);
  if (strcmp(call, "fill") == 0) return cuMemsetD8_v2(memory, 7, BYTES);
  if (strcmp(call, "synchronize") == 0) return cuCtxSynchronize();
  if (strcmp(call, "stream_synchronize") == 0) return cuStreamSynchronize(stream);
  if (strcmp(call, "event_synchronize") == 0) return cuEventSynchronize(event);
  if (strcmp(call, "event_record") == 0) return cuEventRecord(event, stream);
  if (strcmp(call, "event_create") == 0) return cuEventCreate(&mark, 0);
  if (strcmp(call, "stream_create") == 0) return cuStreamCreate(&another, CU_STREAM_NON_BLOCKING);
  if (strcmp(call, "context") == 0) return cuCtxCreate_v2(&context, 0, 0);
  if (strcmp(call, "module") == 0) return spin(20) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
  if (strcmp(call, "event_query") == 0) return cuEventQuery(event);
  if (strcmp(call, "stream_query") == 0) return cuStreamQuery(stream);
  if (strcmp(call, "memory_info") == 0) return ask_memory(ret_value);
  if (strcmp(call, "attribute") == 0) return ask_attribute(ret_value);
  if (strcmp(call, "current") == 0) return cuCtxGetCurrent(&context);
  fprintf(stderr, "no such call: %s\n", call);
  exit(1);
}

int main(int argc, char **argv) {
  if (argc < 2) return 1;
  prepare();
  printf("{\"ready\": %d}\n", (int)getpid());
  fflush(stdout);
  while (getchar() != EOF) {
    long long value = 0;
    CUresult result = make(argv[1], &value);
    printf("{\"code\": %d, \"value\": %lld}\n", (int)result, value);
    fflush(stdout);
  }
  return 0;
}
