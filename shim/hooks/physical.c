/*
 * physical.c - physical memory for which a program may have several handles: memory that it exports and imports again
 * itself is charged once, until the last of its handles, mappings and bindings is gone. Called by vmm.c and
 * multicast.c, any thread.
 *
 * An import is recognised as this process's own memory by its descriptor: the number, and the file behind it. Memory
 * that comes back under another number (dup, a socket) counts as another process's. A descriptor alone is not charged,
 * since no call says when it is closed; memory that is imported through it after its last handle is charged again.
 */
#include "hooks/physical.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/prim.h"
#include "ledger/credit.h"

struct vg_physical {
  struct vg_device *device; /* NULL: a multicast object, which takes nothing itself */
  uint64_t bytes;           /* charged while there are references */
  uint32_t references;      /* handles */
  uint32_t exports;
};

struct export { /* at most one for each descriptor */
  struct export *next;
  struct vg_physical *physical;
  int fd;
  dev_t file_system;
  ino_t file;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all objects and exports */
static struct export *exports;
static void (*object_gone)(uint64_t object); /* multicast.c's, set with its first binding */

struct vg_physical *vg_physical_new(struct vg_device *device, uint64_t bytes) {
  struct vg_physical *physical = calloc(1, sizeof *physical);
  if (!physical) return NULL;
  physical->device = device;
  physical->bytes = bytes;
  physical->references = 1;
  return physical;
}

static void free_unused(struct vg_physical *physical) { /* under lock */
  if (!physical->references && !physical->exports) free(physical);
}

void vg_physical_leave(struct vg_physical *physical) {
  pthread_mutex_lock(&lock);
  bool gone = --physical->references == 0;
  struct vg_physical last = *physical;
  free_unused(physical);
  pthread_mutex_unlock(&lock);
  if (gone && last.device) vg_memory_release(last.device, last.bytes);
  if (gone && !last.device) vg_physical_object_gone((uintptr_t)physical);
}

void vg_physical_object_gone(uint64_t object) {
  void (*call)(uint64_t) = VG_LOAD(&object_gone);
  if (call) call(object);
}

void vg_physical_on_object_gone(void (*call)(uint64_t object)) {
  VG_STORE(&object_gone, call);
}

static struct export **link_of(int fd) { /* under lock */
  struct export **link = &exports;
  while (*link && (*link)->fd != fd) link = &(*link)->next;
  return link;
}

void vg_physical_exported(struct vg_physical *physical, int fd) {
  struct stat status;
  struct export *export = malloc(sizeof *export);
  if (!export || vg_prim_fstat(fd, &status)) {
    free(export);
    return;
  }
  pthread_mutex_lock(&lock);
  struct export **link = link_of(fd), *before = *link;
  *export = (struct export){before ? before->next : NULL, physical, fd, status.st_dev, status.st_ino};
  physical->exports++;
  *link = export;
  if (before) {
    before->physical->exports--;
    free_unused(before->physical);
  }
  pthread_mutex_unlock(&lock);
  free(before);
}

bool vg_physical_imported(int fd, struct vg_physical **ret_physical) {
  struct stat status;
  *ret_physical = NULL;
  if (vg_prim_fstat(fd, &status)) return true; /* the driver will say so */
  pthread_mutex_lock(&lock);
  const struct export *export = *link_of(fd);
  bool own = export && export->file_system == status.st_dev && export->file == status.st_ino;
  struct vg_physical *physical = own ? export->physical : NULL;
  bool again = physical && !physical->references && physical->device;
  bool paid = !again || vg_memory_reserve(physical->device, physical->bytes) == 0;
  if (physical && paid) physical->references++;
  pthread_mutex_unlock(&lock);
  if (paid) *ret_physical = physical;
  return paid;
}

struct vg_device *vg_physical_device(const struct vg_physical *physical) {
  return physical->device;
}

void vg_physical_forked_child(void) {
  pthread_mutex_init(&lock, NULL);
  exports = NULL;
}
