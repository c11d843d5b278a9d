/*
 * registry.c - see registry.h. What nvcc's stubs call from constructors and at exit. Names are found in a table of
 * chains by the address that stands for them. One lock for all, held over loading as well: a fat binary is loaded once,
 * whoever comes first.
 */
#include "simcuda/cudart/registry.h"
#include <pthread.h>
#include <stdlib.h>

#define CHAINS 16384 /* PyTorch registers 23,000 kernels and 13,000 variables */

struct binary {
  const struct sc_fatbin_wrapper *image;
  CUlibrary library; /* NULL: not loaded yet */
  struct entry *entries;
};

/* On each device: where it lies, if it is none that the image names; 0 before its first use. */
struct variable {
  size_t bytes;
  void **host_pointer; /* the program's own pointer to it, if it is managed; else NULL */
  CUdeviceptr address[SC_DEVICES_MAX];
};

/* A kernel or a variable, or a handle of a kernel. */
struct entry {
  const void *key;
  struct entry *next;         /* of its chain */
  struct entry *sibling;      /* of its binary */
  struct entry *kernel_entry; /* of a handle: the kernel's; else itself */
  struct binary *binary;
  const char *name;          /* the program's, as long as the binary is registered */
  struct variable *variable; /* NULL: a kernel */
  CUkernel kernel;           /* NULL: not asked for yet */
};

static struct entry *chains[CHAINS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void take_lock(void) {
  pthread_mutex_lock(&lock);
}

static void release_lock(void) {
  pthread_mutex_unlock(&lock);
}

/* A child of a process in which another thread holds the lock must not wait for it forever. */
static void guard_forks(void) {
  pthread_atfork(take_lock, release_lock, release_lock);
}

static struct entry **chain_of(const void *key) {
  uint64_t mixed = (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15u;
  return &chains[mixed >> 50]; /* the upper 14 bits: CHAINS */
}

static struct entry *find_entry(const void *key) {
  struct entry *entry = *chain_of(key);
  while (entry != NULL && entry->key != key) entry = entry->next;
  return entry;
}

/* Under the lock. NULL: no memory. The latest of one key counts: a library may be where another one was. */
static struct entry *add_entry(struct binary *binary, const void *key, const char *name) {
  struct entry *entry = calloc(1, sizeof *entry), **chain = chain_of(key);
  if (entry == NULL) return NULL;
  *entry = (struct entry){
      .key = key, .next = *chain, .sibling = binary->entries, .kernel_entry = entry, .binary = binary, .name = name};
  *chain = entry;
  binary->entries = entry;
  return entry;
}

static void remove_entry(struct entry *entry) {
  struct entry **link = chain_of(entry->key);
  while (*link != entry) link = &(*link)->next;
  *link = entry->next;
  free(entry->variable);
  free(entry);
}

/* ---- what stubs call ---- */

SC_PUBLIC void **__cudaRegisterFatBinary(void *image) {
  pthread_once(&once, guard_forks);
  struct binary *binary = calloc(1, sizeof *binary);
  if (binary != NULL) binary->image = image;
  return (void **)binary;
}

SC_PUBLIC void __cudaRegisterFatBinaryEnd(void **handle) {
  (void)handle; /* nothing is done before a first use */
}

SC_PUBLIC void __cudaUnregisterFatBinary(void **handle) {
  struct binary *binary = (struct binary *)handle;
  if (binary == NULL) return;
  take_lock();
  for (struct entry *entry = binary->entries, *sibling; entry != NULL; entry = sibling) {
    sibling = entry->sibling;
    remove_entry(entry);
  }
  release_lock();
  if (binary->library != NULL) sc_driver()->cuLibraryUnload(binary->library);
  free(binary);
}

SC_PUBLIC void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
                                      int thread_limit, void *thread_id, void *block_id, dim3 *block, dim3 *grid,
                                      int *warp_size) {
  (void)device_function, (void)thread_limit, (void)thread_id, (void)block_id;
  (void)block, (void)grid, (void)warp_size; /* of emulation, which is no more */
  if (handle == NULL || name == NULL) return;
  take_lock();
  add_entry((struct binary *)handle, host_function, name);
  release_lock();
}

static void register_variable(void **handle, const void *key, const char *name, size_t bytes, void **host_pointer) {
  struct variable *variable = calloc(1, sizeof *variable);
  if (handle == NULL || name == NULL || variable == NULL) {
    free(variable);
    return;
  }
  variable->bytes = bytes;
  variable->host_pointer = host_pointer;
  take_lock();
  struct entry *entry = add_entry((struct binary *)handle, key, name);
  if (entry != NULL) entry->variable = variable;
  release_lock();
  if (entry == NULL) free(variable);
}

SC_PUBLIC void __cudaRegisterVar(void **handle, char *host_variable, char *device_address, const char *name,
                                 int is_external, size_t bytes, int is_constant, int is_global) {
  (void)device_address, (void)is_external, (void)is_constant, (void)is_global;
  register_variable(handle, host_variable, name, bytes, NULL);
}

SC_PUBLIC void __cudaRegisterManagedVar(void **handle, void **host_pointer, char *device_address, const char *name,
                                        int is_external, size_t bytes, int is_constant, int is_global) {
  (void)device_address, (void)is_external, (void)is_constant, (void)is_global;
  register_variable(handle, host_pointer, name, bytes, host_pointer);
}

/* ---- first uses; all under the lock ---- */

static cudaError_t load(const struct sc_driver *driver, struct binary *binary) {
  if (binary->library != NULL) return cudaSuccess;
  if (binary->image == NULL || binary->image->magic != SC_FATBIN_MAGIC) return cudaErrorInvalidKernelImage;
  return (cudaError_t)driver->cuLibraryLoadData(&binary->library, binary->image->data, NULL, NULL, 0, NULL, NULL, 0);
}

static cudaError_t find_registered(const struct sc_driver *driver, struct entry *entry, CUkernel *ret_kernel) {
  entry = entry->kernel_entry;
  if (entry->variable != NULL) return cudaErrorInvalidDeviceFunction;
  if (entry->kernel == NULL) {
    cudaError_t error = load(driver, entry->binary);
    if (error == cudaSuccess)
      error = (cudaError_t)driver->cuLibraryGetKernel(&entry->kernel, entry->binary->library, entry->name);
    if (error != cudaSuccess) return error == cudaErrorSymbolNotFound ? cudaErrorInvalidDeviceFunction : error;
  }
  *ret_kernel = entry->kernel;
  return cudaSuccess;
}

cudaError_t sc_find_kernel(const struct sc_driver *driver, const void *name, CUkernel *ret_kernel) {
  CUfunction function;
  take_lock();
  struct entry *entry = name == NULL ? NULL : find_entry(name);
  cudaError_t error = entry == NULL ? cudaErrorInvalidDeviceFunction : find_registered(driver, entry, ret_kernel);
  release_lock();
  if (entry != NULL || name == NULL) return error;
  if (driver->cuKernelGetFunction(&function, (CUkernel)name) != CUDA_SUCCESS) return error;
  *ret_kernel = (CUkernel)name;
  return cudaSuccess;
}

cudaError_t sc_find_function(const struct sc_driver *driver, const void *name, CUfunction *ret_function) {
  CUkernel kernel;
  cudaError_t error = sc_find_kernel(driver, name, &kernel);
  return error == cudaSuccess ? (cudaError_t)driver->cuKernelGetFunction(ret_function, kernel) : error;
}

const void *sc_name_of_kernel(CUkernel kernel) {
  const void *name = kernel;
  take_lock();
  for (int i = 0; i < CHAINS && name == kernel; i++)
    for (const struct entry *entry = chains[i]; entry != NULL; entry = entry->next)
      if (entry->kernel == kernel) name = entry->key;
  release_lock();
  return name;
}

static cudaError_t allocate_bytes(const struct sc_driver *driver, const struct entry *entry, CUdeviceptr *ret_address) {
  size_t bytes = entry->variable->bytes, image_bytes;
  CUdeviceptr first_contents;
  bool is_managed = entry->variable->host_pointer != NULL;
  cudaError_t error = is_managed ? (cudaError_t)driver->cuMemAllocManaged(ret_address, bytes, CU_MEM_ATTACH_GLOBAL)
                                 : (cudaError_t)driver->cuMemAlloc_v2(ret_address, bytes);
  if (error != cudaSuccess) return error;
  CUlibrary library = entry->binary->library;
  if (driver->cuLibraryGetGlobal(&first_contents, &image_bytes, library, entry->name) == CUDA_SUCCESS)
    return (cudaError_t)driver->cuMemcpy(*ret_address, first_contents, bytes < image_bytes ? bytes : image_bytes);
  return (cudaError_t)driver->cuMemsetD8_v2(*ret_address, 0, bytes);
}

/* Where the image does not say where it lies: memory of the size that the stub says, with the contents that the image
 * has for it, or zeros. One of a managed variable is for all devices. A capture on this thread is not disturbed. */
static cudaError_t allocate_variable(const struct sc_driver *driver, const struct entry *entry, CUdevice device,
                                     CUdeviceptr *ret_address) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUdeviceptr *address = &entry->variable->address[entry->variable->host_pointer != NULL ? 0 : device];
  cudaError_t error = cudaSuccess;
  if (*address == 0) {
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    error = allocate_bytes(driver, entry, address);
    driver->cuThreadExchangeStreamCaptureMode(&mode);
  }
  *ret_address = *address;
  return error;
}

static cudaError_t place_variable(const struct sc_driver *driver, struct entry *entry, CUdevice device,
                                  CUdeviceptr *ret_address) {
  cudaError_t error = load(driver, entry->binary);
  size_t bytes;
  if (error != cudaSuccess) return error;
  if (entry->variable->host_pointer == NULL) {
    error = (cudaError_t)driver->cuLibraryGetGlobal(ret_address, &bytes, entry->binary->library, entry->name);
    if (error != cudaErrorSymbolNotFound) return error;
  }
  return allocate_variable(driver, entry, device, ret_address);
}

cudaError_t sc_find_variable(const struct sc_driver *driver, const void *name, CUdeviceptr *ret_address,
                             size_t *ret_bytes) {
  CUdevice device;
  cudaError_t error = sc_current_device(driver, &device);
  if (error != cudaSuccess) return error;
  if (device >= SC_DEVICES_MAX) return cudaErrorInvalidDevice;
  take_lock();
  struct entry *entry = name == NULL ? NULL : find_entry(name);
  error = entry == NULL || entry->variable == NULL ? cudaErrorInvalidSymbol
                                                   : place_variable(driver, entry, device, ret_address);
  if (error == cudaSuccess) *ret_bytes = entry->variable->bytes;
  release_lock();
  return error;
}

void sc_forget_variables(int device) {
  take_lock();
  for (int i = 0; i < CHAINS; i++)
    for (struct entry *entry = chains[i]; entry != NULL; entry = entry->next)
      if (entry->variable != NULL && entry->variable->host_pointer == NULL) entry->variable->address[device] = 0;
  release_lock();
}

/* ---- handles, and managed variables at a program's start ---- */

/* Called from initializers of variables, so it asks the driver for nothing. */
SC_PUBLIC cudaError_t __cudaGetKernel(CUkernel *ret_kernel, const void *host_function) {
  if (ret_kernel == NULL) return sc_end(cudaErrorInvalidValue);
  take_lock();
  struct entry *entry = host_function == NULL ? NULL : find_entry(host_function);
  cudaError_t error = entry == NULL || entry->variable != NULL ? cudaErrorInvalidDeviceFunction : cudaSuccess;
  if (error == cudaSuccess && find_entry(entry) == NULL) {
    struct entry *handle = add_entry(entry->binary, entry, entry->name);
    if (handle == NULL) error = cudaErrorMemoryAllocation;
    if (handle != NULL) handle->kernel_entry = entry;
  }
  if (error == cudaSuccess) *ret_kernel = (CUkernel)entry;
  release_lock();
  return sc_end(error);
}

/* Gives the program its pointers to managed variables. Returns whether there is no more to do. */
SC_PUBLIC char __cudaInitModule(void **handle) {
  const struct sc_driver *driver;
  struct binary *binary = (struct binary *)handle;
  if (binary == NULL || sc_end(sc_enter(&driver)) != cudaSuccess) return 0;
  cudaError_t error = cudaSuccess;
  take_lock();
  for (struct entry *entry = binary->entries; entry != NULL && error == cudaSuccess; entry = entry->sibling) {
    CUdeviceptr address;
    if (entry->variable == NULL || entry->variable->host_pointer == NULL) continue;
    error = place_variable(driver, entry, 0, &address);
    if (error == cudaSuccess) *entry->variable->host_pointer = (void *)address;
  }
  release_lock();
  return sc_end(error) == cudaSuccess;
}
