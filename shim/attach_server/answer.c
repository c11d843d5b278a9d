/*
 * answer.c - one attach: looks at the message, identifies the process, takes its places in the tables, gives it pages
 * and answers. Whatever is not a plain first attach of a process that the rules admit goes to Python with the message
 * unread, so there is one place that refuses, with one set of texts.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "attach_server/state.h"

void vg_answer_wake_arbiters(struct vg_attach_server *server) {
  while (server->joined_count) vg_arbiter_wake(server->joined[--server->joined_count]);
}

static void wake_later(struct vg_attach_server *server, struct vg_arbiter *arbiter) {
  for (uint32_t i = 0; i < server->joined_count; i++)
    if (server->joined[i] == arbiter) return;
  if (server->joined_count == VG_DEVICES_MAX) vg_answer_wake_arbiters(server);
  server->joined[server->joined_count++] = arbiter;
}

/* The message stays in the socket: Python reads it when it is not ours to answer. Descriptors in it are not taken.
 * Returns its length, 0 at end. */
static ssize_t look_at_message(int socket_fd, struct vg_attach_request *ret_request) {
  return recv(socket_fd, ret_request, sizeof *ret_request, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
}

/* Nothing of this protocol, whatever its version. */
static bool is_foreign(const struct vg_attach_request *request, ssize_t length) {
  return length > 0 && (length < (ssize_t)sizeof request->magic || request->magic != VG_ABI_MAGIC);
}

/* Python takes half a millisecond to say what is wrong with a message, and a peer that sends them without end would
 * keep it from others' work, and the listeners from accepting: then they are closed without a reason. */
static bool are_many_handed(struct vg_attach_server *server) {
  pthread_mutex_lock(&server->mutex);
  bool many = server->queue.handed >= VG_FOREIGN_HANDED_MAX;
  pthread_mutex_unlock(&server->mutex);
  return many;
}

static bool is_first_attach(const struct vg_attach_request *request, ssize_t length) {
  return length == sizeof *request && request->magic == VG_ABI_MAGIC && request->abi_version == VG_ABI_VERSION &&
         request->bytes == sizeof *request && request->resume == VG_ATTACH_FRESH &&
         request->device_count <= VG_DEVICES_MAX;
}

static bool take_message(int socket_fd) {
  struct vg_attach_request request;
  return recv(socket_fd, &request, sizeof request, MSG_DONTWAIT) == sizeof request;
}

/* ---- pages ---- */

static bool out_of_descriptors(int result) {
  return result == -EMFILE || result == -ENFILE;
}

static int take_pages(struct vg_attach_server *server, const struct vg_attach_reply *reply,
                      struct vg_tenant_pages *ret_pages) {
  server->refill_devices = reply->device_count;
  if (vg_spare_pages_take(&server->spare, reply->device_count, ret_pages)) {
    ret_pages->control->mode = reply->mode;
    return 0;
  }
  int result = vg_tenant_pages_make(ret_pages, reply->device_count, reply->mode);
  if (out_of_descriptors(result) && vg_spare_pages_free(&server->spare))
    return vg_tenant_pages_make(ret_pages, reply->device_count, reply->mode);
  if (result == 0) vg_spare_pages_refill(&server->spare, reply->device_count); /* never in this one's way */
  return result;
}

static void leave_arbiters(const struct vg_attach_server_slice *slice, uint64_t process_id, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) vg_arbiter_process_remove(slice->arbiters[i], process_id);
}

static int join_arbiters(struct vg_attach_server *server, const struct vg_attach_server_slice *slice,
                         uint64_t process_id, struct vg_tenant_pages *pages) {
  for (uint32_t i = 0; i < pages->device_count; i++) {
    size_t offset = (size_t)(1 + i) * VG_PAGE_BYTES;
    struct vg_control_device *control = (struct vg_control_device *)((char *)pages->control + offset);
    struct vg_report_device *report = (struct vg_report_device *)((char *)pages->report + offset);
    int result = vg_arbiter_process_join(slice->arbiters[i], slice->slice_id, process_id, pages->control, control,
                                         report, pages->bells[i], 0, pages->locked);
    wake_later(server, slice->arbiters[i]);
    if (result == 0) continue;
    leave_arbiters(slice, process_id, i);
    return result;
  }
  return 0;
}

static bool send_answer(int socket_fd, const struct vg_attach_reply *reply, const struct vg_tenant_pages *pages) {
  int fds[2 + VG_DEVICES_MAX], count = 2 + (int)pages->device_count;
  fds[0] = pages->control_fd;
  fds[1] = pages->report_fd;
  for (uint32_t i = 0; i < pages->device_count; i++) fds[2 + i] = pages->bells[i];
  union {
    char bytes[CMSG_SPACE(sizeof fds)];
    struct cmsghdr align;
  } control = {.bytes = {0}};
  struct iovec piece = {.iov_base = (void *)reply, .iov_len = sizeof *reply};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes};
  message.msg_controllen = CMSG_SPACE((size_t)count * sizeof *fds);
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN((size_t)count * sizeof *fds);
  memcpy(CMSG_DATA(header), fds, (size_t)count * sizeof *fds);
  return sendmsg(socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *reply;
}

/* ---- the decision ---- */

/* Takes the message and answers it. -EAGAIN: there was none, and nothing was read. */
static int exchange(const struct vg_attach_server_news *news, const struct vg_attach_reply *reply) {
  if (!take_message(news->socket_fd)) return -EAGAIN;
  return send_answer(news->socket_fd, reply, &news->pages) ? 0 : -EPIPE;
}

/* 0: answered. -EPIPE: the message was read, and the process gets no answer: it has gone, or may have no more
 * descriptors on their way. Otherwise nothing was read from the socket. In both cases nothing has changed. */
static int admit(struct vg_attach_server *server, const struct vg_attach_server_entry *entry,
                 struct vg_attach_server_news *news) {
  const struct vg_attach_server_slice *slice = &server->rules->slices[entry->slice];
  struct vg_attach_reply reply = slice->reply;
  int result = take_pages(server, &reply, &news->pages);
  if (result) return result;
  reply.process_id = news->process_id = server->next_id;
  result = join_arbiters(server, slice, news->process_id, &news->pages);
  if (result == 0) {
    result = exchange(news, &reply);
    if (result) leave_arbiters(slice, news->process_id, news->pages.device_count);
  }
  if (result) {
    vg_tenant_pages_free(&news->pages);
    return result;
  }
  server->next_id++;
  news->slice_id = slice->slice_id;
  vg_rules_take_place(server->rules, entry);
  server->connections[news->pid]++;
  vg_tenant_pages_sent(&news->pages);
  vg_news_tell(server, news);
  return 0;
}

static const struct vg_attach_server_entry *entry_of(const struct vg_attach_server *server, uint32_t listener,
                                                     const struct vg_peer *peer, uint64_t *ret_account) {
  if (!server->rules || peer->pid > VG_PID_MAX || server->connections[peer->pid]) return NULL;
  if (!vg_rules_account(server->rules, peer, ret_account)) return NULL;
  const struct vg_attach_server_entry *entry = vg_rules_find(server->rules, listener, *ret_account);
  return entry && vg_rules_have_place(server->rules, entry) ? entry : NULL;
}

static int identify(struct vg_attach_server *server, int socket_fd, bool with_cgroups, struct vg_peer *ret_peer) {
  int result = vg_peer_identify(socket_fd, with_cgroups, ret_peer);
  if (out_of_descriptors(result) && vg_spare_pages_free(&server->spare))
    result = vg_peer_identify(socket_fd, with_cgroups, ret_peer);
  return result;
}

/* What is left for Python, or has no message yet. peer: NULL where it cannot be identified. */
static void let_wait(struct vg_attach_server *server, uint32_t listener, int socket_fd, bool silent,
                     const struct vg_peer *peer) {
  if (silent)
    vg_waiting_add_silent(server, listener, socket_fd, peer);
  else
    vg_waiting_add_for_python(server, listener, socket_fd, peer);
}

static int decide(struct vg_attach_server *server, const struct vg_attach_request *request, const struct vg_peer *peer,
                  struct vg_attach_server_news *news) {
  const struct vg_attach_server_entry *entry = entry_of(server, news->listener, peer, &news->account);
  if (!entry) return -ENOENT;
  news->pid = peer->pid;
  news->uid = peer->uid;
  news->pidfd = peer->pidfd;
  news->library_copy = request->library_copy;
  memcpy(news->program, request->program, sizeof news->program);
  return admit(server, entry, news);
}

void vg_answer(struct vg_attach_server *server, uint32_t listener, int socket_fd) {
  struct vg_attach_request request;
  struct vg_peer peer;
  ssize_t length = look_at_message(socket_fd, &request);
  bool silent = length < 0 && errno == EAGAIN;
  if (length == 0 || (is_foreign(&request, length) && are_many_handed(server))) {
    vg_prim_close(socket_fd);
    return;
  }
  pthread_mutex_lock(&server->mutex);
  bool with_cgroups = server->known_rules && server->known_rules->container_count;
  pthread_mutex_unlock(&server->mutex);
  bool known = identify(server, socket_fd, with_cgroups, &peer) == 0;
  struct vg_attach_server_news news = {.kind = VG_ATTACH_SERVER_ATTACHED, .listener = listener, .socket_fd = socket_fd};
  int result = -ENOENT;
  pthread_mutex_lock(&server->mutex);
  if (known && is_first_attach(&request, length)) result = decide(server, &request, &peer, &news);
  pthread_mutex_unlock(&server->mutex);
  if (result == 0) return; /* the descriptors are Python's */
  if (result == -EPIPE)
    vg_prim_close(socket_fd);
  else
    let_wait(server, listener, socket_fd, silent, known ? &peer : NULL);
  if (known) vg_prim_close(peer.pidfd);
}
