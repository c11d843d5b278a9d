/* listeners.c - the listening sockets: which of them are looked at. Locked: all under attach_server.c's mutex. */
#define _GNU_SOURCE
#include <sys/epoll.h>

#include "attach_server/state.h"

struct vg_listener *vg_listeners_find(struct vg_attach_server *server, uint32_t name) {
  struct vg_listener *listener = &server->listeners[name % VG_LISTENERS_MAX];
  return listener->fd >= 0 && listener->name == name ? listener : NULL;
}

void vg_listeners_watch(struct vg_attach_server *server, const struct vg_listener *listener) {
  bool looked_at = !listener->resume_ns && !listener->is_paused;
  struct epoll_event event = {.events = looked_at ? EPOLLIN : 0, .data.u64 = listener->name};
  epoll_ctl(server->listen_epoll_fd, EPOLL_CTL_MOD, listener->fd, &event);
}

void vg_listeners_pause(struct vg_attach_server *server, uint32_t name) {
  struct vg_listener *listener = vg_listeners_find(server, name);
  if (!listener || listener->is_paused) return;
  listener->is_paused = true;
  server->paused_count++;
  vg_listeners_watch(server, listener);
}

void vg_listeners_resume(struct vg_attach_server *server) {
  for (uint32_t i = 0; i < VG_LISTENERS_MAX && server->paused_count; i++) {
    struct vg_listener *listener = &server->listeners[i];
    if (!listener->is_paused) continue;
    listener->is_paused = false;
    server->paused_count--;
    if (listener->fd >= 0) vg_listeners_watch(server, listener);
  }
}
