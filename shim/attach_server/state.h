/* state.h - the state of the attach thread; for sources of this folder only. */
#ifndef VG_ATTACH_SERVER_STATE_H
#define VG_ATTACH_SERVER_STATE_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "arbiter/thread_priority.h"
#include "attach_server/queue.h"
#include "attach_server/rules.h"
#include "attach_server/spare_pages.h"
#include "attach_server/waiting.h"
#include "base/prim.h"

#define VG_LISTENERS_MAX 2048 /* slices of a node, and the shared one */
#define VG_UNTOLD_MAX 1024    /* attachments that Python learns of together */
#define VG_PID_MAX (1 << 22)  /* the kernel's PID_MAX_LIMIT */

struct vg_listener {
  int fd; /* -1: free */
  uint32_t name;
  uint64_t resume_ns; /* not 0: accept() failed, and is tried again then */
  bool is_paused;     /* who may attach here has enough connections that wait: see waiting.h */
};

struct vg_attach_server {
  pthread_mutex_t mutex; /* recursive; guards everything below but the descriptors of the thread itself */
  pthread_t thread;
  struct vg_thread_priority thread_priority; /* the thread's own */
  bool running, stop;
  bool full; /* the listeners are not looked at before Python has taken news */
  int epoll_fd, listen_epoll_fd, wake_fd, news_fd;
  uint64_t next_id;
  struct vg_rules *rules;       /* NULL: none, Python decides */
  struct vg_rules *known_rules; /* the last ones: whose a process is they still say. NULL: there were none yet */
  struct vg_listener listeners[VG_LISTENERS_MAX];
  uint32_t listener_names, paused_count;
  struct vg_waiting waiting;
  struct vg_spare_pages spare;
  uint32_t refill_devices; /* spare pages for so many devices are to be made; 0: none were taken */
  uint16_t *connections;   /* by pid */
  struct vg_queue queue;
  uint32_t untold; /* attachments in the queue for which Python was not woken */
  uint64_t untold_since_ns;
  uint64_t attached_ns;                      /* when the last one was answered */
  struct vg_arbiter *joined[VG_DEVICES_MAX]; /* to be woken */
  uint32_t joined_count;
};

/* answer.c: answers the message at a connection, or lets it wait: socket_fd is taken. Locks by itself. */
void vg_answer(struct vg_attach_server *server, uint32_t listener, int socket_fd);
/* Locked, as all below. */
void vg_answer_wake_arbiters(struct vg_attach_server *server);

/* listeners.c; pause: none is accepted there before resume(), which all that are paused continue by */
struct vg_listener *vg_listeners_find(struct vg_attach_server *server, uint32_t name);
void vg_listeners_watch(struct vg_attach_server *server, const struct vg_listener *listener);
void vg_listeners_pause(struct vg_attach_server *server, uint32_t name);
void vg_listeners_resume(struct vg_attach_server *server);

/* news.c */
void vg_news_tell(struct vg_attach_server *server, const struct vg_attach_server_news *news);
void vg_news_hand_over(struct vg_attach_server *server, uint32_t listener, int socket_fd, uint64_t account);
void vg_news_wake_python(struct vg_attach_server *server);

#endif
