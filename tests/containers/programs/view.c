/*
 * view: what a program in a container sees of its devices, by CUDA (linked) and by NVML (opened by name), as one JSON
 * line. Takes a context on the first device. With a number of bytes: also whether an allocation of so many is granted.
 */
#include "program.h"
#include <dlfcn.h>

struct memory {
  unsigned long long total, free, used;
};

static void nvml_view(void) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (!library) {
    printf("\"nvml\": \"%s\"", dlerror());
    return;
  }
  int (*init)(void) = dlsym(library, "nvmlInit_v2");
  int (*count_of)(unsigned *) = dlsym(library, "nvmlDeviceGetCount_v2");
  int (*handle_of)(unsigned, void **) = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
  int (*memory_of)(void *, struct memory *) = dlsym(library, "nvmlDeviceGetMemoryInfo");
  unsigned count = 0;
  EXPECT(0, init());
  EXPECT(0, count_of(&count));
  printf("\"nvml_bytes\": [");
  for (unsigned i = 0; i < count; i++) {
    void *device;
    struct memory memory;
    EXPECT(0, handle_of(i, &device));
    EXPECT(0, memory_of(device, &memory));
    printf("%s%llu", i ? ", " : "", memory.total);
  }
  printf("]");
}

int main(int argc, char **argv) {
  int count = 0;
  size_t total, left;
  CUdeviceptr pointer;
  char name[128];
  begin();
  CHECK(cuDeviceGetCount(&count));
  CHECK(cuMemGetInfo_v2(&left, &total));
  CHECK(cuDeviceGetName(name, sizeof name, 0));
  printf("{\"count\": %d, \"cuda_bytes\": %zu, \"name\": \"%s\", ", count, total, name);
  nvml_view();
  if (argc > 1) printf(", \"alloc\": %d", (int)cuMemAlloc_v2(&pointer, strtoull(argv[1], NULL, 10)));
  printf("}\n");
  return 0;
}
