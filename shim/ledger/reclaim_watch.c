/* reclaim_watch.c - see reclaim_watch.h. */
#include "ledger/reclaim_watch.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int fds[VG_WATCHERS_MAX]; /* the first `count` of them */
static uint32_t count;
static uint32_t notified[VG_DEVICES_MAX]; /* serial of the last request that the watchers know of, by device */

static bool is_asked(const struct vg_device *device) {
  const struct vg_control_device *control = VG_LOAD(&device->control);
  return control && VG_LOAD(&control->reclaim_bytes);
}

/* ---- under lock ---- */

static void publish(struct vg_device *device) {
  struct vg_report_device *report = VG_LOAD(&device->report);
  if (!report) return;
  VG_STORE(&report->watchers, count);
  vg_report_changes(device);
}

static void publish_all(void) {
  for (uint32_t i = 0; i < vg_session.device_count; i++) publish(&vg_session.devices[i]);
}

/* The program may have closed it, and opened a file there. */
static void ring(int fd) {
  if (vg_prim_eventfd_is(fd)) vg_prim_eventfd_ring(fd);
}

/* ---- the helper thread ---- */

void vg_reclaim_bind(struct vg_device *device) {
  pthread_mutex_lock(&lock);
  notified[device - vg_session.devices] = 0; /* another daemon counts from 0 */
  publish(device);
  pthread_mutex_unlock(&lock);
}

void vg_reclaim_notify(struct vg_device *device) {
  uint32_t serial = VG_LOAD(&device->control->reclaim_serial), *last = &notified[device - vg_session.devices];
  if (VG_LIKELY(serial == VG_LOAD_RELAXED(last)) || !is_asked(device)) return;
  pthread_mutex_lock(&lock);
  VG_STORE_RELAXED(last, serial);
  for (uint32_t i = 0; i < count; i++) ring(fds[i]);
  pthread_mutex_unlock(&lock);
}

/* ---- the program ---- */

int vg_shim_reclaim_watch(void) {
  pthread_mutex_lock(&lock);
  int fd = count < VG_WATCHERS_MAX ? vg_prim_eventfd() : -ENOSPC;
  if (fd >= 0) {
    fds[count++] = fd;
    publish_all();
    for (uint32_t i = 0; i < vg_session.device_count; i++)
      if (is_asked(&vg_session.devices[i])) ring(fd);
  }
  pthread_mutex_unlock(&lock);
  return fd;
}

int vg_shim_reclaim_unwatch(int fd) {
  pthread_mutex_lock(&lock);
  uint32_t at = 0;
  while (at < count && fds[at] != fd) at++;
  bool known = at < count;
  if (known) {
    fds[at] = fds[--count];
    if (vg_prim_eventfd_is(fd)) vg_prim_close(fd);
    publish_all();
  }
  pthread_mutex_unlock(&lock);
  return known ? 0 : -ENOENT;
}

int vg_shim_reclaim_read(struct vg_reclaim_request *ret_requests, uint32_t capacity) {
  uint32_t filled = 0;
  for (uint32_t i = 0; i < vg_session.device_count && filled < capacity; i++) {
    const struct vg_device *device = &vg_session.devices[i];
    const struct vg_control_device *control = VG_LOAD(&device->control);
    uint64_t bytes = control ? VG_LOAD(&control->reclaim_bytes) : 0;
    if (!bytes) continue;
    struct vg_reclaim_request *request = &ret_requests[filled++];
    memcpy(request->uuid, device->resolved.uuid, VG_UUID_BYTES);
    request->remaining_bytes = bytes;
    request->deadline_ns = VG_LOAD_RELAXED(&control->reclaim_deadline_ns);
    request->ordinal = i;
    request->serial = VG_LOAD_RELAXED(&control->reclaim_serial);
  }
  return (int)filled;
}

void vg_reclaim_forked_child(void) {
  pthread_mutex_init(&lock, NULL);
  count = 0; /* the child shares the parent's descriptors: it watches with its own */
  memset(notified, 0, sizeof notified);
}
