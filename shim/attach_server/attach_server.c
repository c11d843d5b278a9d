/*
 * attach_server.c - see attach_server.h: the thread, its listeners, and what Python calls. One connection of each
 * listener is accepted in turn, so that connections to one slice keep no other waiting.
 */
#define _GNU_SOURCE
#include "attach_server/attach_server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "attach_server/state.h"

#define REST_NS (100 * VG_NS_PER_MS) /* after accept() has failed: out of descriptors */
#define DESCRIPTORS_MAX 16384        /* of a thousand processes with several devices */
#define EVENTS_MAX 64
#define ACCEPTS_MAX 1024               /* before everything else is looked at */
#define QUIET_NS (10 * VG_NS_PER_MS)   /* since the last attachment: whoever attached then has started */
#define UNTOLD_NS (100 * VG_NS_PER_MS) /* Python hears of attachments by then, however many peers come meanwhile */
/* Names in epoll. */
#define WAKE_EVENT UINT64_MAX
#define LISTENERS_EVENT (UINT64_MAX - 1)

void vg_attach_server_lock(struct vg_attach_server *server) {
  pthread_mutex_lock(&server->mutex);
}

void vg_attach_server_unlock(struct vg_attach_server *server) {
  pthread_mutex_unlock(&server->mutex);
}

static int watch(int epoll_fd, int operation, int fd, uint32_t events, uint64_t name) {
  struct epoll_event event = {.events = events, .data.u64 = name};
  return epoll_ctl(epoll_fd, operation, fd, &event) ? -errno : 0;
}

static void answer_silent(struct vg_attach_server *server, uint64_t index) {
  uint32_t listener;
  vg_attach_server_lock(server);
  int fd = vg_waiting_take_silent(server, (uint32_t)index, &listener);
  vg_attach_server_unlock(server);
  if (fd >= 0) vg_answer(server, listener, fd);
}

/* ---- listeners ---- */

/* Python can be told nothing more. */
static bool is_full(const struct vg_attach_server *server) {
  return !vg_queue_has_space(&server->queue, VG_QUEUE_HANDED_MAX);
}

static void rest(struct vg_attach_server *server, struct vg_listener *listener, int error) {
  struct vg_attach_server_news news = {
      .kind = VG_ATTACH_SERVER_FAULT, .listener = listener->name, .socket_fd = -1, .error = error};
  listener->resume_ns = vg_prim_now_ns() + REST_NS;
  vg_listeners_watch(server, listener);
  vg_news_tell(server, &news);
}

/* Returns when the next listener is to be looked at again. */
static uint64_t end_rests(struct vg_attach_server *server, uint64_t now_ns) {
  uint64_t deadline_ns = UINT64_MAX;
  for (uint32_t i = 0; i < VG_LISTENERS_MAX; i++) {
    struct vg_listener *listener = &server->listeners[i];
    if (listener->fd < 0 || !listener->resume_ns) continue;
    if (listener->resume_ns > now_ns) {
      if (listener->resume_ns < deadline_ns) deadline_ns = listener->resume_ns;
      continue;
    }
    listener->resume_ns = 0;
    vg_listeners_watch(server, listener);
  }
  return deadline_ns;
}

/* -1: there is none. */
static int accept_one(struct vg_attach_server *server, uint32_t name) {
  vg_attach_server_lock(server);
  struct vg_listener *listener = vg_listeners_find(server, name);
  int fd = -1;
  if (listener) {
    do fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (fd < 0 && (errno == EMFILE || errno == ENFILE) && vg_spare_pages_free(&server->spare));
    bool failed = fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
    if (failed) rest(server, listener, errno);
  }
  vg_attach_server_unlock(server);
  return fd;
}

/* One connection of the listener whose turn it is; false: there is none. epoll_wait(2) asked for one event goes round
 * the listeners; asked for all it begins with the same one each time, which would get every place that Python frees. */
static bool accept_next(struct vg_attach_server *server) {
  struct epoll_event event;
  vg_attach_server_lock(server);
  bool full = is_full(server);
  vg_attach_server_unlock(server);
  if (full || epoll_wait(server->listen_epoll_fd, &event, 1, 0) <= 0) return false;
  uint32_t name = (uint32_t)event.data.u64;
  int fd = accept_one(server, name);
  if (fd >= 0) vg_answer(server, name, fd);
  return true;
}

static void accept_some(struct vg_attach_server *server) {
  for (int i = 0; i < ACCEPTS_MAX && accept_next(server); i++) continue;
}

/* ---- the thread ---- */

static uint64_t earlier(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* What attachments leave to be done takes more processor time than a program's start, and where programs start, few
 * processors are free: it waits until none has attached for a moment. Returns when that is; UINT64_MAX: all is done. */
static uint64_t follow_up(struct vg_attach_server *server, uint64_t now_ns) {
  if (!server->untold && !server->refill_devices) return UINT64_MAX;
  uint64_t due_ns = earlier(server->attached_ns + QUIET_NS, server->untold_since_ns + UNTOLD_NS);
  if (now_ns < due_ns) return due_ns;
  if (server->refill_devices) vg_spare_pages_refill(&server->spare, server->refill_devices);
  server->refill_devices = 0;
  if (server->untold) vg_news_wake_python(server);
  return UINT64_MAX;
}

/* Returns for how long to wait, in ms; -1: for ever. */
static int prepare(struct vg_attach_server *server) {
  vg_attach_server_lock(server);
  vg_answer_wake_arbiters(server);
  uint64_t now_ns = vg_prim_now_ns();
  uint64_t deadline_ns = earlier(vg_waiting_advance(server, now_ns), end_rests(server, now_ns));
  deadline_ns = earlier(deadline_ns, follow_up(server, now_ns));
  bool full = is_full(server);
  if (full != server->full)
    watch(server->epoll_fd, EPOLL_CTL_MOD, server->listen_epoll_fd, full ? 0 : EPOLLIN, LISTENERS_EVENT);
  server->full = full;
  vg_attach_server_unlock(server);
  return deadline_ns == UINT64_MAX ? -1 : (int)((deadline_ns - now_ns) / VG_NS_PER_MS + 1);
}

static bool is_stopped(struct vg_attach_server *server) {
  vg_attach_server_lock(server);
  bool stop = server->stop;
  vg_attach_server_unlock(server);
  return stop;
}

static void *run(void *argument) {
  struct vg_attach_server *server = argument;
  struct epoll_event events[EVENTS_MAX];
  vg_prim_thread_name("vgpu-attach");
  /* A program that attaches waits for this thread, which would wait for a processor on a busy host, and of a crowd for
   * all that have their answers. Behind the arbiter. */
  vg_thread_priority_begin(&server->thread_priority, vg_prim_now_ns());
  while (!is_stopped(server)) {
    vg_thread_priority_watch(&server->thread_priority, vg_prim_now_ns(), vg_thread_priority_used_ns);
    int count = epoll_wait(server->epoll_fd, events, EVENTS_MAX, prepare(server));
    for (int i = 0; i < count; i++) {
      uint64_t name = events[i].data.u64;
      if (name == WAKE_EVENT)
        vg_prim_eventfd_drain(server->wake_fd);
      else if (name == LISTENERS_EVENT)
        accept_some(server);
      else
        answer_silent(server, name);
    }
  }
  return NULL;
}

static int start(struct vg_attach_server *server) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* the interpreter handles signals */
  int error = pthread_create(&server->thread, NULL, run, server);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  server->running = error == 0;
  return error;
}

/* ---- what Python calls ---- */

/* The kernel doubles a process's table of descriptors when it is full, and in a process with threads it waits for
 * milliseconds each time (synchronize_rcu): a crowd would wait for all of these. */
static void widen_descriptor_table(int any_fd) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit)) return;
  int last = limit.rlim_cur < DESCRIPTORS_MAX ? (int)limit.rlim_cur - 1 : DESCRIPTORS_MAX - 1;
  vg_prim_close(fcntl(any_fd, F_DUPFD_CLOEXEC, last));
}

static int open_all(struct vg_attach_server *server) {
  server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  server->listen_epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  server->wake_fd = vg_prim_eventfd();
  server->news_fd = vg_prim_eventfd();
  if (server->epoll_fd < 0 || server->listen_epoll_fd < 0) return EMFILE;
  if (server->wake_fd < 0 || server->news_fd < 0) return EMFILE;
  widen_descriptor_table(server->wake_fd);
  int result = watch(server->epoll_fd, EPOLL_CTL_ADD, server->wake_fd, EPOLLIN, WAKE_EVENT);
  if (result == 0) result = watch(server->epoll_fd, EPOLL_CTL_ADD, server->listen_epoll_fd, EPOLLIN, LISTENERS_EVENT);
  server->connections = calloc(VG_PID_MAX + 1, sizeof *server->connections); /* touched where there are any */
  return result ? -result : server->connections ? 0 : ENOMEM;
}

struct vg_attach_server *vg_attach_server_new(uint64_t first_process_id) {
  struct vg_attach_server *server = calloc(1, sizeof *server);
  if (!server) return NULL;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&server->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  for (int i = 0; i < VG_LISTENERS_MAX; i++) server->listeners[i].fd = -1;
  vg_waiting_init(&server->waiting);
  server->next_id = first_process_id;
  int error = open_all(server);
  if (error == 0) error = vg_spare_pages_start(&server->spare);
  if (error == 0) error = start(server);
  if (error == 0) return server;
  vg_attach_server_free(server);
  errno = error;
  return NULL;
}

static void wake(struct vg_attach_server *server) {
  vg_prim_eventfd_ring(server->wake_fd);
}

void vg_attach_server_stop(struct vg_attach_server *server) {
  if (!server->running) return;
  vg_attach_server_lock(server);
  server->stop = true;
  vg_attach_server_unlock(server);
  wake(server);
  pthread_join(server->thread, NULL);
  server->running = false;
}

void vg_attach_server_free(struct vg_attach_server *server) {
  if (!server) return;
  vg_attach_server_stop(server);
  struct vg_attach_server_news news;
  while (vg_queue_take(&server->queue, &news)) {
    vg_prim_close(news.socket_fd);
    if (news.kind != VG_ATTACH_SERVER_ATTACHED) continue;
    vg_prim_close(news.pidfd);
    vg_tenant_pages_free(&news.pages);
  }
  vg_waiting_free(&server->waiting);
  vg_spare_pages_stop(&server->spare);
  vg_rules_free(server->known_rules);
  vg_prim_close(server->epoll_fd);
  vg_prim_close(server->listen_epoll_fd);
  vg_prim_close(server->wake_fd);
  vg_prim_close(server->news_fd);
  pthread_mutex_destroy(&server->mutex);
  free(server->connections);
  free(server);
}

int vg_attach_server_news_fd(const struct vg_attach_server *server) {
  return server->news_fd;
}

int vg_attach_server_take(struct vg_attach_server *server, struct vg_attach_server_news *ret_news) {
  vg_attach_server_lock(server);
  bool awaited = server->full || server->waiting.count_with_message;
  bool taken = vg_queue_take(&server->queue, ret_news);
  if (!server->queue.count) vg_prim_eventfd_drain(server->news_fd);
  vg_attach_server_unlock(server);
  if (awaited) wake(server);
  return taken;
}

int vg_attach_server_listen(struct vg_attach_server *server, int fd, uint32_t *ret_listener) {
  vg_attach_server_lock(server);
  uint32_t place = 0;
  while (place < VG_LISTENERS_MAX && server->listeners[place].fd >= 0) place++;
  int result = place == VG_LISTENERS_MAX ? -ENOSPC : 0;
  if (result == 0) {
    uint32_t name = ++server->listener_names * VG_LISTENERS_MAX + place; /* news of a former one is not mistaken */
    result = watch(server->listen_epoll_fd, EPOLL_CTL_ADD, fd, EPOLLIN, name);
    if (result == 0) {
      server->listeners[place] = (struct vg_listener){.fd = fd, .name = name};
      *ret_listener = name;
    }
  }
  vg_attach_server_unlock(server);
  return result;
}

void vg_attach_server_unlisten(struct vg_attach_server *server, uint32_t name) {
  vg_attach_server_lock(server);
  struct vg_listener *listener = vg_listeners_find(server, name);
  if (listener) {
    watch(server->listen_epoll_fd, EPOLL_CTL_DEL, listener->fd, 0, 0);
    listener->fd = -1;
    server->paused_count -= listener->is_paused;
    listener->is_paused = false;
  }
  vg_attach_server_unlock(server);
}

/* Attachments that Python has not taken yet are not in the numbers that it loads. */
static void count_untaken(struct vg_attach_server *server) {
  for (uint32_t i = 0; i < server->queue.count; i++) {
    const struct vg_attach_server_news *news = vg_queue_at(&server->queue, i);
    if (news->kind != VG_ATTACH_SERVER_ATTACHED) continue;
    const struct vg_attach_server_entry *entry = vg_rules_find_slice(server->rules, news->slice_id, news->account);
    if (entry) vg_rules_take_place(server->rules, entry);
  }
}

int vg_attach_server_load(struct vg_attach_server *server, const struct vg_attach_server_rules *rules) {
  int error = 0;
  struct vg_rules *made = rules ? vg_rules_copy(rules, &error) : NULL, *old = NULL;
  vg_attach_server_lock(server);
  server->rules = made;
  if (made) {
    old = server->known_rules;
    server->known_rules = made;
  }
  if (made) count_untaken(server);
  if (made && made->slice_count && !server->spare.device_count)
    vg_spare_pages_refill(&server->spare, made->slices[0].reply.device_count);
  vg_attach_server_unlock(server);
  vg_rules_free(old);
  return rules && !made ? error : 0;
}

void vg_attach_server_know(struct vg_attach_server *server, int32_t pid) {
  vg_attach_server_lock(server);
  if (pid > 0 && pid <= VG_PID_MAX) server->connections[pid]++;
  vg_attach_server_unlock(server);
}

void vg_attach_server_forget(struct vg_attach_server *server, int32_t pid) {
  vg_attach_server_lock(server);
  if (pid > 0 && pid <= VG_PID_MAX && server->connections[pid]) server->connections[pid]--;
  vg_attach_server_unlock(server);
}

uint64_t vg_attach_server_next_id(struct vg_attach_server *server) {
  vg_attach_server_lock(server);
  uint64_t id = server->next_id++;
  vg_attach_server_unlock(server);
  return id;
}
