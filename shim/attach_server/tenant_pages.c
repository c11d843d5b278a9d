/* tenant_pages.c - the pages and doorbells of a process, see attach_server.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attach_server/attach_server.h"
#include "base/prim.h"

#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 16
#endif

static size_t bytes_of(const struct vg_tenant_pages *pages) {
  return (size_t)(1 + pages->device_count) * VG_PAGE_BYTES;
}

/* Mapped before it is sealed: a sealed control file can be mapped for writing no more. */
static void *make_memory(const char *name, size_t bytes, int protection, int seals, int32_t *ret_fd) {
  int fd = vg_prim_memfd(name, true);
  if (fd < 0) {
    errno = -fd;
    return NULL;
  }
  *ret_fd = fd;
  if (ftruncate(fd, (off_t)bytes)) return NULL;
  void *memory = mmap(NULL, bytes, protection, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) return NULL;
  if (fcntl(fd, F_ADD_SEALS, seals | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) return memory;
  int error = errno;
  munmap(memory, bytes);
  errno = error;
  return NULL;
}

/* A page that has to be fetched first would delay the arbiter. As one: a lock on a part splits the mapping. */
static bool lock(const struct vg_tenant_pages *pages) {
  return mlock(pages->control, bytes_of(pages)) == 0 && mlock(pages->report, bytes_of(pages)) == 0;
}

static int failed(struct vg_tenant_pages *pages, int error) {
  vg_tenant_pages_free(pages);
  return -error;
}

int vg_tenant_pages_make(struct vg_tenant_pages *ret_pages, uint32_t device_count, uint32_t mode) {
  struct vg_tenant_pages *pages = ret_pages;
  memset(pages, 0, sizeof *pages);
  pages->device_count = device_count;
  pages->control_fd = pages->report_fd = -1;
  for (uint32_t i = 0; i < VG_DEVICES_MAX; i++) pages->bells[i] = -1;
  if (device_count > VG_DEVICES_MAX) return -EINVAL;
  size_t bytes = bytes_of(pages);
  pages->control = make_memory("vgpu-control", bytes, PROT_READ | PROT_WRITE, F_SEAL_FUTURE_WRITE, &pages->control_fd);
  if (!pages->control) return failed(pages, errno);
  pages->report = make_memory("vgpu-report", bytes, PROT_READ, 0, &pages->report_fd);
  if (!pages->report) return failed(pages, errno);
  for (uint32_t i = 0; i < device_count; i++) {
    int bell = vg_prim_eventfd();
    if (bell < 0) return failed(pages, -bell);
    pages->bells[i] = bell;
  }
  pages->locked = lock(pages);
  pages->control->magic = VG_ABI_MAGIC;
  pages->control->abi_version = VG_ABI_VERSION;
  pages->control->device_count = device_count;
  pages->control->mode = mode;
  return 0;
}

void vg_tenant_pages_sent(struct vg_tenant_pages *pages) {
  vg_prim_close(pages->control_fd);
  vg_prim_close(pages->report_fd);
  pages->control_fd = pages->report_fd = -1;
}

void vg_tenant_pages_free(struct vg_tenant_pages *pages) {
  vg_tenant_pages_sent(pages);
  for (uint32_t i = 0; i < VG_DEVICES_MAX; i++) {
    vg_prim_close(pages->bells[i]);
    pages->bells[i] = -1;
  }
  if (pages->control) munmap(pages->control, bytes_of(pages));
  if (pages->report) munmap(pages->report, bytes_of(pages));
  pages->control = NULL;
  pages->report = NULL;
}
