/*
 * spare_pages.h - pages of processes, prepared by a thread of their own, so that a process that attaches need not wait
 * until they are made. A few, for slices of one number of devices: that of the process that attached last.
 */
#ifndef VG_ATTACH_SERVER_SPARE_PAGES_H
#define VG_ATTACH_SERVER_SPARE_PAGES_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "attach_server/attach_server.h"

#define VG_SPARE_PAGES_MAX 64

struct vg_spare_pages {
  pthread_mutex_t mutex; /* guards everything below; taken under attach_server.c's, never the other way round */
  pthread_cond_t wanted;
  pthread_t thread;
  bool running, stop;
  bool exhausted; /* none could be made, or the descriptors were needed: not tried again before the next refill */
  uint32_t device_count; /* of those that are made; 0: none are */
  uint32_t count;
  struct vg_tenant_pages pages[VG_SPARE_PAGES_MAX];
};

int vg_spare_pages_start(struct vg_spare_pages *spare); /* 0 or an errno: there is no thread, and nothing is prepared */
void vg_spare_pages_stop(struct vg_spare_pages *spare);
/* False: there are none for so many devices. */
bool vg_spare_pages_take(struct vg_spare_pages *spare, uint32_t device_count, struct vg_tenant_pages *ret_pages);
/* Prepares as many as there may be, for so many devices. */
void vg_spare_pages_refill(struct vg_spare_pages *spare, uint32_t device_count);
/* Closes all: their descriptors are needed. Returns whether there were any. */
bool vg_spare_pages_free(struct vg_spare_pages *spare);

#endif
