/*
 * share.c - what several processes hold: parts of their makers' arenas, under a key. Each holder is known with how
 * often it holds; a ticket is a descriptor that holds for no process, until its last copy is closed. Device memory is
 * charged once, to the first process that still holds it: its maker, then the first that opened it. When tickets alone
 * hold it, it stays with the last payer, and once that is dead with no process: the device is short of it all the same.
 */
#define _GNU_SOURCE
#include "simgpu/server/server.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct arena {
  int fd;
  uint32_t references; /* its process and what is shared of it */
};

struct holder {
  struct holder *next; /* in the order of their coming */
  struct process *process;
  uint32_t count;
};

struct shared {
  struct shared *next;
  struct sim_wire_share wire;
  uint64_t bytes;
  struct device *device;
  struct arena *arena;
  struct holder *holders;
  struct process *payer; /* NULL: not charged, or to no process */
  uint32_t tickets;
};

struct ticket {
  struct shared *shared;
  int fd;
};

static struct shared *all;
static uint64_t last_key;

static void arena_leave(struct arena *arena) {
  if (--arena->references > 0) return;
  close(arena->fd);
  free(arena);
}

int share_arena(struct process *process, int fd) {
  struct arena *arena = fd >= 0 && !process->arena ? malloc(sizeof *arena) : NULL;
  if (!arena) return -EINVAL;
  *arena = (struct arena){fcntl(fd, F_DUPFD_CLOEXEC, 0), 1};
  if (arena->fd < 0) {
    free(arena);
    return -ENOMEM;
  }
  process->arena = arena;
  return 0;
}

static struct shared *find(uint64_t key) {
  struct shared *shared = all;
  while (shared && shared->wire.key != key) shared = shared->next;
  return shared;
}

/* Keys are in no order, so that a wrong one is noticed; they are no secret. */
static uint64_t key_next(void) {
  last_key += 0x9e3779b97f4a7c15ull;
  uint64_t mixed = (last_key ^ (uint64_t)getpid() << 32) * 0xbf58476d1ce4e5b9ull;
  return mixed ^ mixed >> 31;
}

static int hold(struct shared *shared, struct process *process) {
  struct holder **link = &shared->holders;
  while (*link && (*link)->process != process) link = &(*link)->next;
  if (!*link) {
    *link = calloc(1, sizeof **link);
    if (!*link) return -ENOMEM;
    (*link)->process = process;
  }
  (*link)->count++;
  return 0;
}

static void pay(struct shared *shared, struct process *payer) {
  if (!shared->wire.charged || shared->payer == payer) return;
  if (shared->payer) shared->payer->used_bytes[shared->device->index] -= shared->bytes;
  if (payer) payer->used_bytes[shared->device->index] += shared->bytes;
  shared->payer = payer;
  report_crowd(shared->device);
}

static void end(struct shared *shared) {
  struct shared **link = &all;
  while (*link != shared) link = &(*link)->next;
  *link = shared->next;
  pay(shared, NULL);
  if (shared->wire.charged) shared->device->used_bytes -= shared->bytes;
  report_crowd(shared->device);
  arena_leave(shared->arena);
  free(shared);
}

/* After a hold has gone. Returns whether it was the last. */
static bool settle(struct shared *shared) {
  if (shared->holders) pay(shared, shared->holders->process);
  if (shared->holders || shared->tickets) return false;
  end(shared);
  return true;
}

/* No process is left to drop the contents; the arena lives on if its maker does. */
static void settle_and_drop(struct shared *shared) {
  int fd = shared->arena->references > 1 ? shared->arena->fd : -1;
  uint64_t offset = shared->wire.offset, bytes = shared->bytes;
  if (settle(shared) && fd >= 0) fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}

int share_make(struct process *process, struct device *device, const struct sim_request *request, uint64_t *ret_key) {
  bool charged = request->share.charged;
  if (!process->arena || (charged && request->bytes > process->used_bytes[device->index])) return -EINVAL;
  struct shared *shared = calloc(1, sizeof *shared);
  if (!shared || hold(shared, process) < 0) {
    free(shared);
    return -ENOMEM;
  }
  shared->wire = request->share;
  shared->wire.key = *ret_key = key_next();
  shared->bytes = request->bytes;
  shared->device = device;
  shared->arena = process->arena;
  shared->arena->references++;
  shared->payer = charged ? process : NULL;
  shared->next = all;
  all = shared;
  return 0;
}

int share_open(struct process *process, const struct sim_request *request, struct sim_reply *ret_reply, int *ret_fd) {
  struct shared *shared = find(request->share.key);
  if (!shared || shared->wire.kind != request->share.kind) return -ENOENT;
  int rc = hold(shared, process);
  if (rc < 0) return rc;
  settle(shared); /* of a maker that is gone: this one pays now */
  ret_reply->share = shared->wire;
  ret_reply->bytes = shared->bytes;
  ret_reply->device = shared->device->index;
  *ret_fd = shared->arena->fd;
  return 0;
}

int share_close(struct process *process, uint64_t key) {
  struct shared *shared = find(key);
  struct holder **link = shared ? &shared->holders : NULL;
  while (link && *link && (*link)->process != process) link = &(*link)->next;
  if (!link || !*link) return -ENOENT;
  if (--(*link)->count == 0) {
    struct holder *holder = *link;
    *link = holder->next;
    free(holder);
  }
  return settle(shared);
}

void share_process_died(struct process *process) {
  for (struct shared *shared = all, *next; shared; shared = next) {
    next = shared->next;
    struct holder **link = &shared->holders;
    while (*link && (*link)->process != process) link = &(*link)->next;
    struct holder *holder = *link;
    if (holder) {
      *link = holder->next;
      free(holder);
    }
    if (!shared->holders && shared->payer == process) pay(shared, NULL);
    if (holder) settle_and_drop(shared);
  }
  if (process->arena) arena_leave(process->arena);
  process->arena = NULL;
}

bool share_is_party(const struct process *process) {
  for (const struct shared *shared = all; shared; shared = shared->next) {
    if (shared->arena == process->arena) return true;
    for (const struct holder *holder = shared->holders; holder; holder = holder->next)
      if (holder->process == process) return true;
  }
  return false;
}

/* ---- tickets ---- */

int share_ticket(struct process *process, uint64_t key, int *ret_fd) {
  struct shared *shared = find(key);
  int ends[2];
  (void)process;
  if (!shared) return -ENOENT;
  struct ticket *ticket = malloc(sizeof *ticket);
  if (!ticket || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
    free(ticket);
    return -ENOMEM;
  }
  *ticket = (struct ticket){shared, ends[0]};
  struct sim_ticket text = {SIM_TICKET_MAGIC, key};
  struct epoll_event event = {.events = EPOLLRDHUP, .data.ptr = ticket};
  if (send(ends[0], &text, sizeof text, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof text ||
      epoll_ctl(server.tickets, EPOLL_CTL_ADD, ends[0], &event) < 0) {
    close(ends[0]);
    close(ends[1]);
    free(ticket);
    return -ENOMEM;
  }
  shared->tickets++;
  *ret_fd = ends[1];
  return 0;
}

void share_tickets_look(void) {
  struct epoll_event events[16];
  int count = epoll_wait(server.tickets, events, 16, 0);
  for (int i = 0; i < count; i++) {
    struct ticket *ticket = events[i].data.ptr;
    close(ticket->fd);
    ticket->shared->tickets--;
    settle_and_drop(ticket->shared);
    free(ticket);
  }
}
