/*
 * client.c - the processes on the simulated device: greeting, memory, contexts and death. Called by main.c's loop. A
 * process is known by its socket (SO_PEERCRED) and watched through a pidfd; when either ends, its work is dropped and
 * its memory and contexts are free at once.
 */
#define _GNU_SOURCE
#include "simgpu/server/places.h"
#include "simgpu/server/server.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void watch(int fd, struct process *process) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = process};
  epoll_ctl(server.epoll, EPOLL_CTL_ADD, fd, &event);
}

int client_accept(int listener) {
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    int error = errno;
    if (error == EMFILE || error == ENFILE) places_refuse_one(listener);
    return -error;
  }
  struct ucred peer;
  socklen_t size = sizeof peer;
  struct process *process = NULL;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || !places_free(peer.uid) ||
      !(process = calloc(1, sizeof *process))) {
    close(fd);
    return 0; /* others wait behind it */
  }
  process->accepted_ns = vg_prim_now_ns();
  server.silent++;
  process->socket = fd;
  process->pid = peer.pid;
  process->uid = peer.uid;
  process->group = getpgid(peer.pid);
  process->pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0); /* without it the socket's end has to do */
  process->next = server.processes;
  server.processes = process;
  watch(fd, process);
  if (process->pidfd >= 0) watch(process->pidfd, process);
  return 0;
}

/* A memfd of that size that cannot be cut off under us; mapped for reading and writing by the server. */
static int shared_make(const char *name, size_t bytes, void **ret_map) {
  int fd = vg_prim_memfd(name, true);
  if (fd < 0) return fd;
  if (ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) goto failed;
  void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (map == MAP_FAILED) goto failed;
  *ret_map = map;
  return fd;
failed:;
  int error = errno;
  close(fd);
  return -error;
}

/* The completion area is the server's alone: what is mapped from now on can only read it. */
static int seal_for_reading(int fd) {
  return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 ? -errno : 0;
}

static void answer_with(struct process *process, struct sim_reply *reply, const int *fds, int fd_count) {
  reply->magic = SIM_WIRE_MAGIC;
  struct iovec part = {.iov_base = reply, .iov_len = sizeof *reply};
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(4 * sizeof(int))];
  } control = {0};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (fd_count > 0) {
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, (size_t)fd_count * sizeof(int));
  }
  if (sendmsg(process->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) client_died(process);
}

static void answer(struct process *process, int status, uint64_t free_bytes, const int *fds, int fd_count) {
  struct sim_reply reply = {.status = status, .free_bytes = free_bytes};
  answer_with(process, &reply, fds, fd_count);
}

static void greet(struct process *process, const struct sim_request *request) {
  int ring = -1, completions = -1, status = 0;
  void *map = NULL;
  if (process->greeted) status = -EINVAL;
  if (request->version != SIM_WIRE_VERSION) status = -EPROTO;
  if (status == 0 && (ring = shared_make("vgpu-sim-ring", sizeof(struct sim_ring), &map)) < 0) status = ring;
  if (status == 0) process->ring = map;
  if (status == 0 && (completions = shared_make("vgpu-sim-done", sizeof(struct sim_completions), &map)) < 0)
    status = completions;
  if (status == 0) {
    process->completions = map;
    status = seal_for_reading(completions);
  }
  if (status == 0) {
    process->greeted = true;
    queue_wake(process);
    memcpy(process->program, request->program, sizeof process->program - 1);
  }
  int fds[4] = {ring, completions, server.kick, server.page_fd_readonly};
  answer(process, status, 0, fds, status == 0 ? 4 : 0);
  if (ring >= 0) close(ring);
  if (completions >= 0) close(completions);
}

/* Of a call that was under way when its process was saved: its part of what is restored. */
static int charge(struct process *process, struct device *device, uint64_t bytes) {
  if (process->checkpoint == CHECKPOINT_SAVED) {
    process->parked_bytes[device->index] += bytes;
    return 0;
  }
  if (bytes > device->memory_bytes - device->used_bytes) managed_make_room(device, bytes);
  if (bytes > device->memory_bytes - device->used_bytes) return -ENOMEM;
  if (!memory_limits_allow(process, device, bytes)) return -ENOMEM;
  device->used_bytes += bytes;
  process->used_bytes[device->index] += bytes;
  report_crowd(device);
  if (device->used_bytes <= device->most_bytes) return 0;
  device->most_bytes = device->used_bytes; /* before the process may end below, and give all back */
  queue_take(process);                     /* what it has launched before counts */
  device->most_launches = device->launches;
  return process->dead ? -EPROTO : 0;
}

static int refund(struct process *process, struct device *device, uint64_t bytes) {
  if (process->checkpoint == CHECKPOINT_SAVED && bytes <= process->parked_bytes[device->index]) {
    process->parked_bytes[device->index] -= bytes;
    return 0;
  }
  if (bytes > process->used_bytes[device->index] - process->paged_bytes[device->index]) return -EINVAL;
  device->used_bytes -= bytes;
  process->used_bytes[device->index] -= bytes;
  report_crowd(device);
  return 0;
}

/* Of what does not fit the rest begins on the host. */
static int allocate_managed(struct process *process, struct device *device, uint64_t base, uint64_t bytes) {
  uint64_t resident_bytes = process->checkpoint == CHECKPOINT_SAVED ? 0 : managed_room(device, bytes);
  int rc = charge(process, device, resident_bytes);
  if (rc == 0 && (rc = managed_add(process, device, base, bytes, resident_bytes)) < 0)
    refund(process, device, resident_bytes);
  return rc;
}

static int free_managed(struct process *process, struct device *device, uint64_t base) {
  uint64_t resident_bytes;
  int rc = managed_remove(process, device, base, &resident_bytes);
  return rc < 0 ? rc : refund(process, device, resident_bytes);
}

static int context_create(struct process *process, struct device *device, uint32_t id) {
  if (id >= SIM_CONTEXTS_MAX || process->contexts[id]) return -EINVAL;
  struct context *context = calloc(1, sizeof *context);
  if (!context) return -ENOMEM;
  int rc = charge(process, device, server.config.context_bytes);
  if (rc < 0) {
    free(context);
    return rc;
  }
  *context = (struct context){.id = id, .process = process, .device = device, .next = device->contexts};
  context->order = device->contexts_made++;
  device->contexts = context;
  process->contexts[id] = context;
  process->context_count[device->index]++;
  return 0;
}

static int context_destroy(struct process *process, uint32_t id) {
  struct context *context = id < SIM_CONTEXTS_MAX ? process->contexts[id] : NULL;
  if (!context) return -EINVAL;
  queue_take(process); /* so that nothing submitted before is lost or comes later */
  if (process->dead) return -EPROTO;
  queue_close_context(context, vg_prim_now_ns());
  engine_remove_context(context);
  process->contexts[id] = NULL;
  process->context_count[context->device->index]--;
  refund(process, context->device, server.config.context_bytes);
  free(context);
  queue_bells();
  return 0;
}

static int handle(struct process *process, const struct sim_request *request, struct device *device) {
  switch (request->kind) {
  case SIM_REQUEST_ALLOC:
    return charge(process, device, request->bytes);
  case SIM_REQUEST_FREE:
    return refund(process, device, request->bytes);
  case SIM_REQUEST_MANAGED_ALLOC:
    return allocate_managed(process, device, request->share.tag, request->bytes);
  case SIM_REQUEST_MANAGED_FREE:
    return free_managed(process, device, request->share.tag);
  case SIM_REQUEST_CONTEXT_CREATE:
    return context_create(process, device, request->context);
  case SIM_REQUEST_CONTEXT_DESTROY:
    return context_destroy(process, request->context);
  case SIM_REQUEST_FAULT:
    return fault_context(process, request->context, request->bytes);
  case SIM_REQUEST_XID:
    return fault_tell(device, request->bytes);
  case SIM_REQUEST_MODE:
    return mode_tell(device, request->bytes);
  case SIM_REQUEST_HOST_MEMORY:
    return host_memory_set(process, request->bytes);
  case SIM_REQUEST_TIME_SLICE:
    return time_slice_tell(process, device, request->bytes);
  default:
    return -EINVAL;
  }
}

/* Requests that carry descriptors, or have them answered. */
static bool handle_share(struct process *process, const struct sim_request *request, int fd) {
  struct device *device = &server.devices[request->device];
  struct sim_reply reply = {0};
  int given = -1;
  if (request->kind == SIM_REQUEST_ARENA)
    reply.status = share_arena(process, fd);
  else if (request->kind == SIM_REQUEST_SHARE_MAKE)
    reply.status = share_make(process, device, request, &reply.share.key);
  else if (request->kind == SIM_REQUEST_SHARE_OPEN)
    reply.status = share_open(process, request, &reply, &given);
  else if (request->kind == SIM_REQUEST_SHARE_CLOSE)
    reply.status = share_close(process, request->share.key);
  else if (request->kind == SIM_REQUEST_SHARE_TICKET)
    reply.status = share_ticket(process, request->share.key, &given);
  else
    return false;
  report_page();
  answer_with(process, &reply, &given, given >= 0 ? 1 : 0);
  if (request->kind == SIM_REQUEST_SHARE_TICKET && given >= 0) close(given);
  return true;
}

static bool handle_checkpoint(struct process *process, const struct sim_request *request) {
  bool is_change = request->kind >= SIM_REQUEST_CHECKPOINT_STATE && request->kind <= SIM_REQUEST_CHECKPOINT_UNLOCK;
  if (!is_change && request->kind != SIM_REQUEST_CHECKPOINT_MOVED) return false;
  struct sim_reply reply = {0};
  reply.status = checkpoint_request(process, request, &reply.bytes);
  report_page();
  answer_with(process, &reply, NULL, 0);
  return true;
}

static bool is_about_limits(const struct sim_request *request) {
  return request->kind >= SIM_REQUEST_LIMITS_SET && request->kind <= SIM_REQUEST_LIMITS_OWN;
}

static bool handle_limits(struct process *process, const struct sim_request *request, int fd) {
  if (!is_about_limits(request)) return false;
  struct sim_reply reply = {0};
  reply.status = memory_limits_request(process, request, fd, &reply.limits);
  answer_with(process, &reply, NULL, 0);
  return true;
}

static bool needs_no_greeting(const struct sim_request *request) {
  return request->kind == SIM_REQUEST_XID || request->kind == SIM_REQUEST_MODE ||
         request->kind == SIM_REQUEST_TIME_SLICE || is_about_limits(request);
}

/* One request, and the descriptor that came with it or -1. */
static ssize_t receive(const struct process *process, struct sim_request *ret_request, int *ret_fd) {
  struct iovec part = {.iov_base = ret_request, .iov_len = sizeof *ret_request};
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
  } control;
  /* Space for one and no more: a second one that a process sends would be ours, and never closed. */
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof(int))};
  ssize_t size = recvmsg(process->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  struct cmsghdr *header = size >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
  *ret_fd = -1;
  if (header && header->cmsg_type == SCM_RIGHTS) memcpy(ret_fd, CMSG_DATA(header), sizeof *ret_fd);
  return size;
}

void client_request(struct process *process) {
  struct sim_request request;
  int fd;
  for (int i = 0; i < 64 && !process->dead; i++) {
    ssize_t size = receive(process, &request, &fd);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) break;
    bool carries =
        fd >= 0 && size == sizeof request && (request.kind == SIM_REQUEST_ARENA || is_about_limits(&request));
    if (fd >= 0 && !carries) close(fd);
    if (!carries) fd = -1;
    if (!process->spoke) server.silent--;
    process->spoke = true;
    if (size != sizeof request || request.magic != SIM_WIRE_MAGIC) {
      client_died(process);
      return;
    }
    if (request.kind == SIM_REQUEST_HELLO) {
      greet(process, &request);
      continue;
    }
    queue_wake(process);
    if (request.kind == SIM_REQUEST_WAKE) continue;
    bool is_known = process->greeted || needs_no_greeting(&request);
    if (!is_known || request.device >= server.config.device_count) {
      if (fd >= 0) close(fd);
      answer(process, -EINVAL, 0, NULL, 0);
      continue;
    }
    bool is_answered = handle_share(process, &request, fd) || handle_limits(process, &request, fd);
    if (fd >= 0) close(fd);
    if (is_answered || handle_checkpoint(process, &request)) continue;
    struct device *device = &server.devices[request.device];
    int status = handle(process, &request, device);
    report_page(); /* before the answer: a reader of the page sees the change after it */
    answer(process, status, device->memory_bytes - device->used_bytes, NULL, 0);
  }
  /* A process that has ended leaves its pidfd readable. */
  struct pollfd end = {.fd = process->dead ? -1 : process->pidfd, .events = POLLIN};
  if (poll(&end, 1, 0) == 1) client_died(process);
}

void client_died(struct process *process) {
  if (process->dead) return;
  process->dead = true;
  server.died = true;
  if (!process->spoke) server.silent--;
  for (uint32_t i = 0; i < SIM_STREAMS_MAX; i++)
    if (process->streams[i]) queue_drop(process->streams[i]);
  for (uint32_t i = 0; i < SIM_STREAMS_MAX; i++) {
    if (!process->streams[i]) continue;
    free(process->streams[i]->queue);
    free(process->streams[i]);
    process->streams[i] = NULL;
  }
  for (uint32_t i = 0; i < SIM_CONTEXTS_MAX; i++) {
    if (!process->contexts[i]) continue;
    engine_remove_context(process->contexts[i]);
    free(process->contexts[i]);
    process->contexts[i] = NULL;
  }
  share_process_died(process);
  checkpoint_process_died(process);
  managed_process_died(process);
  for (uint32_t i = 0; i < server.config.device_count; i++) link_remove(&process->moves[i], vg_prim_now_ns());
  for (uint32_t i = 0; i < server.config.device_count; i++) refund(process, &server.devices[i], process->used_bytes[i]);
  host_memory_set(process, 0);
  close(process->socket);
  if (process->pidfd >= 0) close(process->pidfd);
}

static void unlist(struct process *process) {
  struct process **link = &server.awake;
  while (*link && *link != process) link = &(*link)->next_awake;
  if (*link) *link = process->next_awake;
}

void client_reap(void) {
  if (!server.died) return;
  server.died = false;
  for (struct process **link = &server.processes; *link;) {
    struct process *process = *link;
    if (!process->dead) {
      link = &process->next;
      continue;
    }
    *link = process->next;
    unlist(process);
    if (process->ring) munmap(process->ring, sizeof *process->ring);
    if (process->completions) munmap(process->completions, sizeof *process->completions);
    free(process);
  }
}
