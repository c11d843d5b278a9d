/*
 * admission.c - see admission.h: the thread, its listeners, and what Python calls. One connection of each listener is
 * accepted in turn, so that connections to one slice keep no other waiting. A connection without a message is
 * Python's after SILENT_NS, which bounds them by user and drops them.
 */
#define _GNU_SOURCE
#include "admission/admission.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "admission/state.h"

#define SILENT_NS (200 * VG_NS_PER_MS)
#define REST_NS (100 * VG_NS_PER_MS) /* after accept() has failed: out of descriptors */
#define DESCRIPTORS_MAX 16384        /* of a thousand processes with several devices */
#define EVENTS_MAX 64
#define ACCEPTS_MAX 1024               /* before everything else is looked at */
#define QUIET_NS (10 * VG_NS_PER_MS)   /* since the last attachment: whoever attached then has started */
#define UNTOLD_NS (100 * VG_NS_PER_MS) /* Python hears of attachments by then, however many peers come meanwhile */
#define SILENT_PART 16                 /* of the daemon's descriptors that connections without a message may take */
/* Names in epoll. */
#define WAKE_EVENT UINT64_MAX
#define LISTENERS_EVENT (UINT64_MAX - 1)

void vg_admission_lock(struct vg_admission *admission) {
  pthread_mutex_lock(&admission->mutex);
}

void vg_admission_unlock(struct vg_admission *admission) {
  pthread_mutex_unlock(&admission->mutex);
}

static int watch(int epoll_fd, int operation, int fd, uint32_t events, uint64_t name) {
  struct epoll_event event = {.events = events, .data.u64 = name};
  return epoll_ctl(epoll_fd, operation, fd, &event) ? -errno : 0;
}

static struct vg_listener *find_listener(struct vg_admission *admission, uint32_t name) {
  struct vg_listener *listener = &admission->listeners[name % VG_LISTENERS_MAX];
  return listener->fd >= 0 && listener->name == name ? listener : NULL;
}

/* ---- connections without a message ---- */

static void end_silence(struct vg_admission *admission, struct vg_silent *silent) {
  watch(admission->epoll_fd, EPOLL_CTL_DEL, silent->fd, 0, 0);
  silent->fd = -1;
  admission->silent_count--;
}

static void hand_over_silent(struct vg_admission *admission, struct vg_silent *silent) {
  uint32_t listener = silent->listener;
  int fd = silent->fd;
  end_silence(admission, silent);
  vg_answer_hand_over(admission, listener, fd);
}

static struct vg_silent *oldest_silent(struct vg_admission *admission) {
  struct vg_silent *oldest = NULL;
  for (int i = 0; i < VG_SILENT_MAX; i++) {
    struct vg_silent *silent = &admission->silent[i];
    if (silent->fd >= 0 && (!oldest || silent->deadline_ns < oldest->deadline_ns)) oldest = silent;
  }
  return oldest;
}

static struct vg_silent *silent_place(struct vg_admission *admission) {
  if (admission->silent_count >= admission->silent_max) hand_over_silent(admission, oldest_silent(admission));
  struct vg_silent *place = admission->silent;
  while (place->fd >= 0) place++;
  return place;
}

static void await_message(struct vg_admission *admission, uint32_t listener, int fd) {
  struct vg_silent *place = silent_place(admission);
  *place = (struct vg_silent){.fd = fd, .listener = listener, .deadline_ns = vg_prim_now_ns() + SILENT_NS};
  admission->silent_count++;
  if (watch(admission->epoll_fd, EPOLL_CTL_ADD, fd, EPOLLIN, (uint64_t)(place - admission->silent)))
    hand_over_silent(admission, place);
}

/* Returns when the next one's time is over; UINT64_MAX: there is none. */
static uint64_t end_silences(struct vg_admission *admission, uint64_t now_ns) {
  while (admission->silent_count) {
    struct vg_silent *oldest = oldest_silent(admission);
    if (oldest->deadline_ns > now_ns) return oldest->deadline_ns;
    hand_over_silent(admission, oldest);
  }
  return UINT64_MAX;
}

static void answer_or_await(struct vg_admission *admission, uint32_t listener, int fd) {
  if (vg_answer(admission, listener, fd)) return;
  vg_admission_lock(admission);
  await_message(admission, listener, fd);
  vg_admission_unlock(admission);
}

static void answer_silent(struct vg_admission *admission, uint64_t index) {
  vg_admission_lock(admission);
  struct vg_silent *silent = &admission->silent[index];
  int fd = silent->fd;
  uint32_t listener = silent->listener;
  if (fd >= 0) end_silence(admission, silent);
  vg_admission_unlock(admission);
  if (fd >= 0) answer_or_await(admission, listener, fd);
}

/* ---- listeners ---- */

/* Python can be given so much more, with all that is silent now. */
static bool is_full(const struct vg_admission *admission) {
  return admission->queue.handed >= VG_QUEUE_HANDED_MAX ||
         !vg_queue_has_space(&admission->queue, admission->silent_count + 2);
}

static void rest(struct vg_admission *admission, struct vg_listener *listener, int error) {
  struct vg_admission_news news = {
      .kind = VG_ADMISSION_FAULT, .listener = listener->name, .socket_fd = -1, .error = error};
  listener->resume_ns = vg_prim_now_ns() + REST_NS;
  watch(admission->listen_epoll_fd, EPOLL_CTL_MOD, listener->fd, 0, listener->name);
  vg_answer_tell(admission, &news);
}

/* Returns when the next listener is to be looked at again. */
static uint64_t end_rests(struct vg_admission *admission, uint64_t now_ns) {
  uint64_t deadline_ns = UINT64_MAX;
  for (uint32_t i = 0; i < VG_LISTENERS_MAX; i++) {
    struct vg_listener *listener = &admission->listeners[i];
    if (listener->fd < 0 || !listener->resume_ns) continue;
    if (listener->resume_ns > now_ns) {
      if (listener->resume_ns < deadline_ns) deadline_ns = listener->resume_ns;
      continue;
    }
    listener->resume_ns = 0;
    watch(admission->listen_epoll_fd, EPOLL_CTL_MOD, listener->fd, EPOLLIN, listener->name);
  }
  return deadline_ns;
}

/* -1: there is none. */
static int accept_one(struct vg_admission *admission, uint32_t name) {
  vg_admission_lock(admission);
  struct vg_listener *listener = find_listener(admission, name);
  int fd = -1;
  if (listener) {
    do fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (fd < 0 && (errno == EMFILE || errno == ENFILE) && vg_spare_pages_free(&admission->spare));
    bool failed = fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
    if (failed) rest(admission, listener, errno);
  }
  vg_admission_unlock(admission);
  return fd;
}

/* One connection of the listener whose turn it is; false: there is none. epoll_wait(2) asked for one event goes round
 * the listeners; asked for all it begins with the same one each time, which would get every place that Python frees. */
static bool accept_next(struct vg_admission *admission) {
  struct epoll_event event;
  vg_admission_lock(admission);
  bool full = is_full(admission);
  vg_admission_unlock(admission);
  if (full || epoll_wait(admission->listen_epoll_fd, &event, 1, 0) <= 0) return false;
  uint32_t name = (uint32_t)event.data.u64;
  int fd = accept_one(admission, name);
  if (fd >= 0) answer_or_await(admission, name, fd);
  return true;
}

static void accept_some(struct vg_admission *admission) {
  for (int i = 0; i < ACCEPTS_MAX && accept_next(admission); i++) continue;
}

/* ---- the thread ---- */

static uint64_t earlier(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* What attachments leave to be done takes more processor time than a program's start, and where programs start, few
 * processors are free: it waits until none has attached for a moment. Returns when that is; UINT64_MAX: all is done. */
static uint64_t follow_up(struct vg_admission *admission, uint64_t now_ns) {
  if (!admission->untold && !admission->refill_devices) return UINT64_MAX;
  uint64_t due_ns = earlier(admission->attached_ns + QUIET_NS, admission->untold_since_ns + UNTOLD_NS);
  if (now_ns < due_ns) return due_ns;
  if (admission->refill_devices) vg_spare_pages_refill(&admission->spare, admission->refill_devices);
  admission->refill_devices = 0;
  if (admission->untold) vg_answer_wake_python(admission);
  return UINT64_MAX;
}

/* Returns for how long to wait, in ms; -1: for ever. */
static int prepare(struct vg_admission *admission) {
  vg_admission_lock(admission);
  vg_answer_wake_arbiters(admission);
  uint64_t now_ns = vg_prim_now_ns();
  uint64_t deadline_ns = earlier(end_silences(admission, now_ns), end_rests(admission, now_ns));
  deadline_ns = earlier(deadline_ns, follow_up(admission, now_ns));
  bool full = is_full(admission);
  if (full != admission->full)
    watch(admission->epoll_fd, EPOLL_CTL_MOD, admission->listen_epoll_fd, full ? 0 : EPOLLIN, LISTENERS_EVENT);
  admission->full = full;
  vg_admission_unlock(admission);
  return deadline_ns == UINT64_MAX ? -1 : (int)((deadline_ns - now_ns) / VG_NS_PER_MS + 1);
}

static bool is_stopped(struct vg_admission *admission) {
  vg_admission_lock(admission);
  bool stop = admission->stop;
  vg_admission_unlock(admission);
  return stop;
}

static void *run(void *argument) {
  struct vg_admission *admission = argument;
  struct epoll_event events[EVENTS_MAX];
  vg_prim_thread_name("vgpu-admission");
  /* A program that attaches waits for this thread, which would wait for a processor on a busy host, and of a crowd for
   * all that have their answers. Behind the arbiter. */
  vg_thread_priority_begin(&admission->thread_priority, vg_prim_now_ns());
  while (!is_stopped(admission)) {
    vg_thread_priority_watch(&admission->thread_priority, vg_prim_now_ns(), vg_thread_priority_used_ns);
    int count = epoll_wait(admission->epoll_fd, events, EVENTS_MAX, prepare(admission));
    for (int i = 0; i < count; i++) {
      uint64_t name = events[i].data.u64;
      if (name == WAKE_EVENT)
        vg_prim_eventfd_drain(admission->wake_fd);
      else if (name == LISTENERS_EVENT)
        accept_some(admission);
      else
        answer_silent(admission, name);
    }
  }
  return NULL;
}

static int start(struct vg_admission *admission) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* the interpreter handles signals */
  int error = pthread_create(&admission->thread, NULL, run, admission);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  admission->running = error == 0;
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

static int open_all(struct vg_admission *admission) {
  admission->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  admission->listen_epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  admission->wake_fd = vg_prim_eventfd();
  admission->news_fd = vg_prim_eventfd();
  if (admission->epoll_fd < 0 || admission->listen_epoll_fd < 0) return EMFILE;
  if (admission->wake_fd < 0 || admission->news_fd < 0) return EMFILE;
  widen_descriptor_table(admission->wake_fd);
  int result = watch(admission->epoll_fd, EPOLL_CTL_ADD, admission->wake_fd, EPOLLIN, WAKE_EVENT);
  if (result == 0)
    result = watch(admission->epoll_fd, EPOLL_CTL_ADD, admission->listen_epoll_fd, EPOLLIN, LISTENERS_EVENT);
  admission->connections = calloc(VG_PID_MAX + 1, sizeof *admission->connections); /* touched where there are any */
  return result ? -result : admission->connections ? 0 : ENOMEM;
}

static uint32_t silent_max(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / SILENT_PART >= VG_SILENT_MAX) return VG_SILENT_MAX;
  return limit.rlim_cur > SILENT_PART ? (uint32_t)(limit.rlim_cur / SILENT_PART) : 1;
}

struct vg_admission *vg_admission_new(uint64_t first_process_id) {
  struct vg_admission *admission = calloc(1, sizeof *admission);
  if (!admission) return NULL;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&admission->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  for (int i = 0; i < VG_LISTENERS_MAX; i++) admission->listeners[i].fd = -1;
  for (int i = 0; i < VG_SILENT_MAX; i++) admission->silent[i].fd = -1;
  admission->next_id = first_process_id;
  admission->silent_max = silent_max();
  int error = open_all(admission);
  if (error == 0) error = vg_spare_pages_start(&admission->spare);
  if (error == 0) error = start(admission);
  if (error == 0) return admission;
  vg_admission_free(admission);
  errno = error;
  return NULL;
}

static void wake(struct vg_admission *admission) {
  vg_prim_eventfd_ring(admission->wake_fd);
}

void vg_admission_stop(struct vg_admission *admission) {
  if (!admission->running) return;
  vg_admission_lock(admission);
  admission->stop = true;
  vg_admission_unlock(admission);
  wake(admission);
  pthread_join(admission->thread, NULL);
  admission->running = false;
}

void vg_admission_free(struct vg_admission *admission) {
  if (!admission) return;
  vg_admission_stop(admission);
  struct vg_admission_news news;
  while (vg_queue_take(&admission->queue, &news)) {
    vg_prim_close(news.socket_fd);
    if (news.kind != VG_ADMISSION_ATTACHED) continue;
    vg_prim_close(news.pidfd);
    vg_tenant_pages_free(&news.pages);
  }
  for (int i = 0; i < VG_SILENT_MAX; i++) vg_prim_close(admission->silent[i].fd);
  vg_spare_pages_stop(&admission->spare);
  vg_rules_free(admission->rules);
  vg_prim_close(admission->epoll_fd);
  vg_prim_close(admission->listen_epoll_fd);
  vg_prim_close(admission->wake_fd);
  vg_prim_close(admission->news_fd);
  pthread_mutex_destroy(&admission->mutex);
  free(admission->connections);
  free(admission);
}

int vg_admission_news_fd(const struct vg_admission *admission) {
  return admission->news_fd;
}

int vg_admission_take(struct vg_admission *admission, struct vg_admission_news *ret_news) {
  vg_admission_lock(admission);
  bool full = admission->full;
  bool taken = vg_queue_take(&admission->queue, ret_news);
  if (!admission->queue.count) vg_prim_eventfd_drain(admission->news_fd);
  vg_admission_unlock(admission);
  if (full) wake(admission);
  return taken;
}

int vg_admission_listen(struct vg_admission *admission, int fd, uint32_t *ret_listener) {
  vg_admission_lock(admission);
  uint32_t place = 0;
  while (place < VG_LISTENERS_MAX && admission->listeners[place].fd >= 0) place++;
  int result = place == VG_LISTENERS_MAX ? -ENOSPC : 0;
  if (result == 0) {
    uint32_t name = ++admission->listener_names * VG_LISTENERS_MAX + place; /* news of a former one is not mistaken */
    result = watch(admission->listen_epoll_fd, EPOLL_CTL_ADD, fd, EPOLLIN, name);
    if (result == 0) {
      admission->listeners[place] = (struct vg_listener){.fd = fd, .name = name};
      *ret_listener = name;
    }
  }
  vg_admission_unlock(admission);
  return result;
}

void vg_admission_unlisten(struct vg_admission *admission, uint32_t name) {
  vg_admission_lock(admission);
  struct vg_listener *listener = find_listener(admission, name);
  if (listener) {
    watch(admission->listen_epoll_fd, EPOLL_CTL_DEL, listener->fd, 0, 0);
    listener->fd = -1;
  }
  vg_admission_unlock(admission);
}

/* Attachments that Python has not taken yet are not in the numbers that it loads. */
static void count_untaken(struct vg_admission *admission) {
  for (uint32_t i = 0; i < admission->queue.count; i++) {
    const struct vg_admission_news *news = vg_queue_at(&admission->queue, i);
    if (news->kind != VG_ADMISSION_ATTACHED) continue;
    const struct vg_admission_entry *entry = vg_rules_find_slice(admission->rules, news->slice_id, news->account);
    if (entry) vg_rules_take_place(admission->rules, entry);
  }
}

int vg_admission_load(struct vg_admission *admission, const struct vg_admission_rules *rules) {
  int error = 0;
  struct vg_rules *made = rules ? vg_rules_copy(rules, &error) : NULL, *old;
  vg_admission_lock(admission);
  old = admission->rules;
  admission->rules = made;
  if (made) count_untaken(admission);
  if (made && made->slice_count && !admission->spare.device_count)
    vg_spare_pages_refill(&admission->spare, made->slices[0].reply.device_count);
  vg_admission_unlock(admission);
  vg_rules_free(old);
  return rules && !made ? error : 0;
}

void vg_admission_know(struct vg_admission *admission, int32_t pid) {
  vg_admission_lock(admission);
  if (pid > 0 && pid <= VG_PID_MAX) admission->connections[pid]++;
  vg_admission_unlock(admission);
}

void vg_admission_forget(struct vg_admission *admission, int32_t pid) {
  vg_admission_lock(admission);
  if (pid > 0 && pid <= VG_PID_MAX && admission->connections[pid]) admission->connections[pid]--;
  vg_admission_unlock(admission);
}

uint64_t vg_admission_next_id(struct vg_admission *admission) {
  vg_admission_lock(admission);
  uint64_t id = admission->next_id++;
  vg_admission_unlock(admission);
  return id;
}
