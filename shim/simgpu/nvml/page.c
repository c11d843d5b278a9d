/*
 * page.c - maps the state page of vgpu-simd and takes consistent copies and samples of it. Used by all files here.
 * Must hold: nothing is opened before nvmlInit; without a server nvmlInit says that no driver is loaded.
 */
#define _GNU_SOURCE /* secure_getenv */
#include "simgpu/nvml/page.h"
#include "base/prim.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SAMPLE_MIN_NS (50 * VG_NS_PER_MS) /* shorter spans would show single time slices */
#define READ_TRIES 1000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct sim_page *page;
static ino_t page_inode; /* of its file: another one means another server */
static uint32_t references;
static struct vg_nvml_device handles[SIM_DEVICES_MAX];
static struct sim_nvml_sample samples[SIM_DEVICES_MAX][2]; /* older, newer */

static const char *directory(void) {
  const char *named = secure_getenv("VGPU_SIM_DIR");
  return named != NULL && named[0] != 0 ? named : SIM_DEFAULT_DIR;
}

int sim_nvml_connect(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory(), SIM_SOCKET_NAME);
  if (length < 0 || (size_t)length >= sizeof address.sun_path) return -1;
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

/* The page outlives a server that was killed, so ask whether a process listens. */
static bool server_lives(void) {
  int fd = sim_nvml_connect();
  if (fd >= 0) close(fd);
  return fd >= 0;
}

static const struct sim_page *map_page(void) {
  char path[4096];
  struct stat status;
  snprintf(path, sizeof path, "%s/%s", directory(), SIM_PAGE_NAME);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NULL;
  const struct sim_page *mapped = MAP_FAILED;
  if (vg_prim_fstat(fd, &status) == 0 && (size_t)status.st_size >= sizeof *mapped)
    mapped = mmap(NULL, sizeof *mapped, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return NULL;
  if (page != NULL && page_inode == status.st_ino) { /* the one that we have */
    munmap((void *)mapped, sizeof *mapped);
    return page;
  }
  page_inode = status.st_ino;
  if (mapped->magic == SIM_WIRE_MAGIC && mapped->version == SIM_WIRE_VERSION && mapped->device_count <= SIM_DEVICES_MAX)
    return mapped;
  munmap((void *)mapped, sizeof *mapped);
  return NULL;
}

/* A process that has opened the driver twice (dlmopen) has two rows; NVML shows a process once. */
static void merge_rows(struct sim_page_device *state) {
  for (uint32_t i = 0; i < SIM_PROCESSES_MAX; i++) {
    struct sim_page_process *first = &state->processes[i];
    for (uint32_t j = i + 1; first->pid != 0 && j < SIM_PROCESSES_MAX; j++) {
      struct sim_page_process *other = &state->processes[j];
      if (other->pid != first->pid) continue;
      first->contexts += other->contexts;
      first->used_bytes += other->used_bytes;
      first->busy_ns += other->busy_ns;
      other->pid = 0;
    }
  }
}

static nvmlReturn_t read_device(uint32_t index, struct sim_page_device *ret_state) {
  const struct sim_page_device *source = &page->devices[index];
  for (int i = 0; i < READ_TRIES; i++) {
    uint32_t before = VG_LOAD(&source->sequence);
    *ret_state = *source;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if ((before & 1) == 0 && VG_LOAD(&source->sequence) == before) {
      merge_rows(ret_state);
      return NVML_SUCCESS;
    }
    vg_prim_sleep_until_ns(vg_prim_now_ns() + 10 * VG_NS_PER_US);
  }
  return NVML_ERROR_GPU_IS_LOST; /* killed while it wrote */
}

static nvmlReturn_t take_sample(uint32_t index, struct sim_nvml_sample *ret_sample) {
  static struct sim_page_device state; /* under the lock: too large for small stacks */
  nvmlReturn_t result = read_device(index, &state);
  if (result != NVML_SUCCESS) return result;
  ret_sample->taken_ns = vg_prim_now_ns();
  ret_sample->busy_ns = state.busy_ns;
  ret_sample->copy_busy_ns = state.copy_busy_ns;
  ret_sample->process_count = 0;
  for (uint32_t i = 0; i < SIM_PROCESSES_MAX; i++) {
    if (state.processes[i].pid == 0) continue;
    ret_sample->processes[ret_sample->process_count].pid = state.processes[i].pid;
    ret_sample->processes[ret_sample->process_count++].busy_ns = state.processes[i].busy_ns;
  }
  return NVML_SUCCESS;
}

nvmlReturn_t sim_nvml_open(void) {
  nvmlReturn_t result = NVML_SUCCESS;
  pthread_mutex_lock(&lock);
  const struct sim_page *known = page;
  const struct sim_page *now = server_lives() ? map_page() : NULL;
  if (now == NULL && known == NULL) result = NVML_ERROR_DRIVER_NOT_LOADED;
  if (now != NULL && now != known) {
    VG_STORE(&page, now); /* the old one stays mapped: another thread may be reading it */
    for (uint32_t i = 0; i < now->device_count; i++) {
      handles[i].index = i;
      memset(samples[i], 0, sizeof samples[i]);
      take_sample(i, &samples[i][1]);
    }
  }
  if (result == NVML_SUCCESS) references++;
  pthread_mutex_unlock(&lock);
  return result;
}

nvmlReturn_t sim_nvml_close(void) {
  nvmlReturn_t result = NVML_SUCCESS;
  pthread_mutex_lock(&lock);
  if (references == 0) {
    result = NVML_ERROR_UNINITIALIZED;
  } else if (--references == 0) {
    munmap((void *)page, sizeof *page);
    page = NULL;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

nvmlReturn_t sim_nvml_ready(void) {
  return VG_LOAD_RELAXED(&references) != 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

const struct sim_page *sim_nvml_page(void) {
  return page;
}

enum sim_mode sim_nvml_mode(nvmlDevice_t device) {
  return (enum sim_mode)(VG_LOAD(&page->modes) >> 2 * device->index & 3u);
}

uint32_t sim_nvml_count(void) {
  uint32_t count = 0;
  while (count < page->device_count && page->devices[count].parent == 0) count++;
  return count;
}

nvmlDevice_t sim_nvml_parent(nvmlDevice_t device) {
  uint32_t parent = page->devices[device->index].parent;
  return parent != 0 ? &handles[parent - 1] : NULL;
}

nvmlDevice_t sim_nvml_handle(uint32_t index) {
  return &handles[index];
}

static nvmlReturn_t check(nvmlDevice_t device) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (device < handles || device >= handles + page->device_count) return NVML_ERROR_INVALID_ARGUMENT;
  return NVML_SUCCESS;
}

nvmlReturn_t sim_nvml_device(nvmlDevice_t device, struct sim_page_device *ret_state) {
  nvmlReturn_t result = check(device);
  return result != NVML_SUCCESS ? result : read_device(device->index, ret_state);
}

nvmlReturn_t sim_nvml_gpu(nvmlDevice_t device) {
  nvmlReturn_t result = check(device);
  if (result != NVML_SUCCESS) return result;
  return sim_nvml_parent(device) != NULL ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t sim_nvml_samples(nvmlDevice_t device, struct sim_nvml_sample *ret_old, struct sim_nvml_sample *ret_new) {
  nvmlReturn_t result = check(device);
  if (result != NVML_SUCCESS) return result;
  pthread_mutex_lock(&lock);
  struct sim_nvml_sample *pair = samples[device->index];
  uint64_t age_ns = vg_prim_now_ns() - pair[1].taken_ns;
  if (age_ns < SAMPLE_MIN_NS && pair[0].taken_ns == 0) { /* a tool that asks once, right after nvmlInit */
    vg_prim_sleep_until_ns(pair[1].taken_ns + SAMPLE_MIN_NS);
    age_ns = SAMPLE_MIN_NS;
  }
  if (age_ns >= SAMPLE_MIN_NS) {
    pair[0] = pair[1];
    result = take_sample(device->index, &pair[1]);
  }
  *ret_old = pair[0];
  *ret_new = pair[1];
  pthread_mutex_unlock(&lock);
  return result;
}

void sim_nvml_uuid_text(const struct sim_page_device *state, char ret_text[NVML_UUID_TEXT_BYTES]) {
  char *at = ret_text + sprintf(ret_text, state->parent != 0 ? "MIG-" : "GPU-");
  for (int i = 0; i < 16; i++)
    at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", state->uuid[i]);
}
