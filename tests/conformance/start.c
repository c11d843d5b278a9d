/*
 * start: what entry points answer before cuInit: which look at an argument first, and which clear an output first.
 */
#include "row.h"

static CUdeviceptr pointer;
static size_t size_a, size_b;
static unsigned narrow_a, narrow_b;
static void *host;
/* A handle that cannot be valid: no driver has made one yet. It points to something, as a driver may look at it. */
static char something[4096];
#define WILD ((void *)something)

/* The call's code, and what it left in an output that held UNTOUCHED. */
#define OUTPUT(output, call)                                                                                           \
  do {                                                                                                                 \
    output = (__typeof__(output))UNTOUCHED;                                                                            \
    CODE(#output, call);                                                                                               \
    fact("left", (long long)output);                                                                                   \
  } while (0)

static void start_memory(void) {
  size_b = narrow_b = UNTOUCHED;
  OUTPUT(size_a, cuMemGetInfo_v2(&size_a, &size_b));
  fact("total", (long long)size_b);
  OUTPUT(narrow_a, cuMemGetInfo(&narrow_a, &narrow_b));
  fact("total", narrow_b);
  OUTPUT(size_a, cuDeviceTotalMem_v2(&size_a, 0));
  OUTPUT(pointer, cuMemAlloc_v2(&pointer, MIB));
  OUTPUT(pointer, cuMemAllocPitch_v2(&pointer, &size_a, 64, 1, 4));
  OUTPUT(pointer, cuMemAllocAsync(&pointer, MIB, NULL));
  OUTPUT(pointer, cuMemAllocFromPoolAsync(&pointer, MIB, NULL, NULL));
  OUTPUT(host, cuMemAllocHost_v2(&host, MIB));
  OUTPUT(host, cuMemHostAlloc(&host, MIB, 0));
  OUTPUT(pointer, cuMemHostGetDevicePointer_v2(&pointer, something, 0));
  size_b = UNTOUCHED;
  OUTPUT(pointer, cuMemGetAddressRange_v2(&pointer, &size_b, 1));
  fact("size", (long long)size_b);
  CODE("no_outputs", cuMemGetInfo_v2(NULL, NULL));
  CODE("no_output", cuMemAlloc_v2(NULL, MIB));
  CODE("no_bytes", cuMemAlloc_v2(&pointer, 0));
  CODE("free", cuMemFree_v2(0));
}

static void start_managed(void) {
  OUTPUT(pointer, cuMemAllocManaged(&pointer, MIB, CU_MEM_ATTACH_GLOBAL));
  OUTPUT(pointer, cuMemAllocManaged(&pointer, MIB, 3));
  OUTPUT(pointer, cuMemAllocManaged(&pointer, 0, CU_MEM_ATTACH_GLOBAL));
  CODE("no_output", cuMemAllocManaged(NULL, MIB, CU_MEM_ATTACH_GLOBAL));
}

static void start_devices(void) {
  int number = UNTOUCHED;
  char name[8];
  OUTPUT(number, cuDeviceGetCount(&number));
  OUTPUT(number, cuDeviceGet(&number, 0));
  CODE("name", cuDeviceGetName(name, sizeof name, 0));
  CODE("attribute", cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  CODE("no_output", cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  CODE("no_count", cuDeviceGetCount(NULL));
  CUmoduleLoadingMode mode = (CUmoduleLoadingMode)UNTOUCHED;
  OUTPUT(mode, cuModuleGetLoadingMode(&mode));
}

static void start_contexts(void) {
  CUcontext context;
  unsigned flags;
  unsigned long long id;
  CODE("destroy_null", cuCtxDestroy_v2(NULL));
  CODE("destroy", cuCtxDestroy_v2(WILD));
  CODE("set_null", cuCtxSetCurrent(NULL));
  CODE("current", cuCtxGetCurrent(&context));
  CODE("synchronize", cuCtxSynchronize());
  CODE("flags", cuCtxGetFlags(&flags));
  CODE("no_flags", cuCtxGetFlags(NULL));
  CODE("id", cuCtxGetId(NULL, &id));
  CODE("no_id", cuCtxGetId(NULL, NULL));
}

static void start_streams(void) {
  CUstream stream;
  unsigned flags;
  CUstreamCaptureStatus status;
  OUTPUT(stream, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OUTPUT(stream, cuStreamCreate(&stream, 2));
  CODE("no_stream", cuStreamCreate(NULL, 0));
  CODE("destroy_null", cuStreamDestroy_v2(NULL));
  CODE("destroy", cuStreamDestroy_v2(WILD));
  CODE("synchronize", cuStreamSynchronize(NULL));
  CODE("query", cuStreamQuery(NULL));
  CODE("flags", cuStreamGetFlags(NULL, &flags));
  CODE("no_flags", cuStreamGetFlags(NULL, NULL));
  CODE("capturing", cuStreamIsCapturing(NULL, &status));
  CODE("no_status", cuStreamIsCapturing(NULL, NULL));
}

static void start_events(void) {
  CUevent event;
  float milliseconds;
  CODE("create", cuEventCreate(&event, 0));
  CODE("no_event", cuEventCreate(NULL, 0));
  CODE("record", cuEventRecord(WILD, NULL));
  CODE("query_null", cuEventQuery(NULL));
  CODE("query", cuEventQuery(WILD));
  CODE("synchronize_null", cuEventSynchronize(NULL));
  CODE("synchronize", cuEventSynchronize(WILD));
  CODE("elapsed_null", cuEventElapsedTime(&milliseconds, NULL, NULL));
  CODE("elapsed", cuEventElapsedTime(&milliseconds, WILD, WILD));
  CODE("destroy_null", cuEventDestroy_v2(NULL));
  CODE("destroy", cuEventDestroy_v2(WILD));
}

static void start_arrays(void) {
  CUDA_ARRAY_DESCRIPTOR descriptor;
  CUarray array;
  CODE("descriptor_null", cuArrayGetDescriptor_v2(&descriptor, NULL));
  CODE("descriptor", cuArrayGetDescriptor_v2(&descriptor, WILD));
  CODE("level_null", cuMipmappedArrayGetLevel(&array, NULL, 0));
  CODE("level", cuMipmappedArrayGetLevel(&array, WILD, 0));
  CODE("destroy_null", cuArrayDestroy(NULL));
}

static void start_modules(void) {
  CUfunction function;
  CUlibrary library;
  CUkernel kernel;
  CUmodule module;
  const char *name;
  int value;
  unsigned count;
  CODE("load", cuModuleLoadData(&module, "x"));
  CODE("name_null", cuFuncGetName(&name, NULL));
  CODE("no_name", cuFuncGetName(NULL, WILD));
  CODE("kernel_name_null", cuKernelGetName(&name, NULL));
  CODE("attribute_null", cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, NULL));
  CODE("no_attribute", cuFuncGetAttribute(NULL, CU_FUNC_ATTRIBUTE_NUM_REGS, NULL));
  CODE("count_null", cuModuleGetFunctionCount(&count, NULL));
  CODE("library_null", cuLibraryUnload(NULL));
  CODE("no_library", cuLibraryLoadData(NULL, "x", NULL, NULL, 0, NULL, NULL, 0));
  CODE("kernel_null", cuLibraryGetKernel(&kernel, NULL, "x"));
  CODE("no_kernel", cuLibraryGetKernel(NULL, NULL, "x"));
  CODE("function_null", cuKernelGetFunction(&function, NULL));
  CODE("library_data", cuLibraryLoadData(&library, "x", NULL, NULL, 0, NULL, NULL, 0));
}

static void start_graphs(void) {
  CUgraph graph;
  CUgraphNode node;
  CUgraphNodeType type;
  size_t count;
  CUDA_HOST_NODE_PARAMS host_node = {0};
  CUDA_KERNEL_NODE_PARAMS kernel_node = {0};
  CUDA_MEMCPY3D copy = {0};
  CODE("create", cuGraphCreate(&graph, 0));
  CODE("empty_null", cuGraphAddEmptyNode(&node, NULL, NULL, 0));
  CODE("host_null", cuGraphAddHostNode(&node, NULL, NULL, 0, &host_node));
  CODE("kernel_null", cuGraphAddKernelNode_v2(&node, NULL, NULL, 0, &kernel_node));
  CODE("copy_null", cuGraphMemcpyNodeSetParams(NULL, &copy));
  CODE("enabled_null", cuGraphNodeSetEnabled(NULL, NULL, 1));
  CODE("event_null", cuGraphAddEventRecordNode(&node, NULL, NULL, 0, NULL));
  CODE("update_kernel_null", cuGraphExecKernelNodeSetParams_v2(NULL, NULL, &kernel_node));
  CODE("edges_null", cuGraphAddDependencies_v2(NULL, NULL, NULL, NULL, 0));
  CODE("type_null", cuGraphNodeGetType(NULL, &type));
  CODE("nodes_null", cuGraphGetNodes(NULL, NULL, &count));
  CODE("destroy_node_null", cuGraphDestroyNode(NULL));
  CODE("launch_null", cuGraphLaunch(NULL, NULL));
}

static void do_nothing(void *argument) {
  (void)argument;
}

static void start_without(void) {
  int version = 0;
  CUuserObject object = NULL;
  char on = UNTOUCHED;
  size_t bytes = 1;
  CODE("version", cuDriverGetVersion(&version));
  CODE("user_object", cuUserObjectCreate(&object, NULL, do_nothing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CODE("release", cuUserObjectRelease(object, 1));
  CODE("dump_global", cuCoredumpGetAttributeGlobal(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, &bytes));
  fact("on", on);
  CODE("dump", cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, &bytes));
  CODE("dump_unknown", cuCoredumpGetAttribute((CUcoredumpSettings)4096, &on, &bytes));
}

static void start_others(void) {
  CUgraphicsResource resource;
  CUdevice device;
  CUcontext context;
  unsigned count;
  CODE("gl", cuGraphicsGLRegisterBuffer(&resource, 1, 0));
  CODE("gl_devices", cuGLGetDevices_v2(&count, &device, 1, 1));
  CODE("gl_context", cuGLCtxCreate_v2(&context, 0, 0));
  CODE("map", cuGraphicsMapResources(1, &resource, NULL));
  CODE("egl", cuGraphicsEGLRegisterImage(&resource, NULL, 0));
  CODE("egl_null", cuEGLStreamConsumerConnect((CUeglStreamConnection *)something, NULL));
  CODE("profiler", cuProfilerStart());
  CODE("profiler_file", cuProfilerInitialize("x", "y", CU_OUT_CSV));
}

ROWS(ROW(start_memory), ROW(start_managed), ROW(start_devices), ROW(start_contexts), ROW(start_streams),
     ROW(start_events), ROW(start_arrays), ROW(start_modules), ROW(start_graphs), ROW(start_without), ROW(start_others))
