/*
 * attach_server_node.h - for tests of the attach thread: a daemon of one slice, and peers over real sockets. All peers
 * are this process, so each is forgotten before the next one comes. Included by one test each.
 */
#ifndef ADMISSION_NODE_H
#define ADMISSION_NODE_H
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "attach_server/state.h"
#include "check.h"

#define SLICE 7
#define MANY INT32_MAX
#define DEADLINE_NS (10 * VG_NS_PER_S)

/* Nothing is launched here: rounds that send heartbeats suffice. */
static const struct vg_arbiter_params params = {
    .open_bound_ns = 20 * VG_NS_PER_MS, .heartbeat_ns = 20 * VG_NS_PER_MS, .memory_total_bytes = 1ull << 30};

/* ---- a daemon of one slice ---- */

struct node {
  struct vg_arbiter *arbiter;
  struct vg_attach_server *server;
  struct sockaddr_un address;
  int listen_fd;
  uint32_t listener;
};

static void open_node(struct node *node) {
  static int number;
  memset(node, 0, sizeof *node);
  node->arbiter = vg_arbiter_new(&params);
  CHECK(node->arbiter && vg_arbiter_start(node->arbiter) == 0);
  struct vg_slice_params slice = {.min_milli = 500, .max_milli = 1000, .mem_max_bytes = 1 << 28};
  CHECK(vg_arbiter_slice_set(node->arbiter, SLICE, &slice) == 0);
  node->server = vg_attach_server_new(100);
  CHECK(node->server);
  node->address.sun_family = AF_UNIX;
  snprintf(node->address.sun_path + 1, sizeof node->address.sun_path - 1, "vgpu-test-%d-%d", (int)getpid(), number++);
  node->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
  CHECK(bind(node->listen_fd, (struct sockaddr *)&node->address, sizeof node->address) == 0);
  CHECK(listen(node->listen_fd, 100) == 0);
  CHECK(vg_attach_server_listen(node->server, node->listen_fd, &node->listener) == 0);
}

static void close_node(struct node *node) {
  vg_attach_server_free(node->server);
  vg_arbiter_free(node->arbiter);
  vg_prim_close(node->listen_fd);
}

static void load(struct node *node, uint64_t account, int64_t places) {
  struct vg_attach_server_table table = {places, places};
  struct vg_attach_server_user user = {0, places, places};
  struct vg_attach_server_slice slice = {.slice_id = SLICE, .arbiters = {node->arbiter}};
  slice.reply = (struct vg_attach_reply){.magic = VG_ABI_MAGIC, .abi_version = VG_ABI_VERSION, .device_count = 1};
  slice.reply.bytes = sizeof slice.reply;
  const struct vg_attach_server_slice *slices[] = {&slice};
  struct vg_attach_server_entry entry = {.account = account, .listener = node->listener, .draw_count = 1};
  entry.draws[0].cost = 1;
  struct vg_attach_server_rules rules = {.table_count = 1, .user_count = 1, .entry_count = 1, .slice_count = 1};
  rules.tables = &table;
  rules.users = &user;
  rules.entries = &entry;
  rules.slices = slices;
  CHECK(vg_attach_server_load(node->server, &rules) == 0);
}

/* ---- a peer ---- */

static struct vg_attach_request first_attach(void) {
  return (struct vg_attach_request){
      .magic = VG_ABI_MAGIC, .abi_version = VG_ABI_VERSION, .bytes = sizeof(struct vg_attach_request)};
}

static inline int call(const struct node *node) {
  int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  CHECK(connect(fd, (const struct sockaddr *)&node->address, sizeof node->address) == 0);
  return fd;
}

static int attach(const struct node *node) {
  struct vg_attach_request request = first_attach();
  int fd = call(node);
  CHECK(send(fd, &request, sizeof request, 0) == sizeof request);
  return fd;
}

/* Waits for the next news. */
static struct vg_attach_server_news next_news(const struct node *node) {
  struct vg_attach_server_news news;
  uint64_t limit_ns = vg_prim_now_ns() + DEADLINE_NS;
  while (!vg_attach_server_take(node->server, &news)) {
    CHECK(vg_prim_now_ns() < limit_ns);
    struct pollfd entry = {.fd = vg_attach_server_news_fd(node->server), .events = POLLIN};
    poll(&entry, 1, 100);
  }
  return news;
}

static void drop(const struct node *node, struct vg_attach_server_news *news) {
  if (news->kind == VG_ATTACH_SERVER_ATTACHED) {
    CHECK(vg_arbiter_process_remove(node->arbiter, news->process_id) == 0);
    vg_attach_server_forget(node->server, news->pid);
    vg_tenant_pages_free(&news->pages);
    vg_prim_close(news->pidfd);
  }
  vg_prim_close(news->socket_fd);
}

static inline void expect(const struct node *node, int peer_fd, uint32_t kind) {
  struct vg_attach_server_news news = next_news(node);
  CHECK(news.kind == kind && news.listener == node->listener);
  drop(node, &news);
  close(peer_fd);
}

/* The answer's descriptors: control, report, one doorbell. */
static void receive(int fd, struct vg_attach_reply *ret_reply, int ret_fds[3]) {
  char control[CMSG_SPACE(16 * sizeof(int))];
  struct iovec piece = {.iov_base = ret_reply, .iov_len = sizeof *ret_reply};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control};
  message.msg_controllen = sizeof control;
  CHECK(recvmsg(fd, &message, 0) == sizeof *ret_reply);
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  CHECK(header && header->cmsg_len == CMSG_LEN(3 * sizeof(int)));
  memcpy(ret_fds, CMSG_DATA(header), 3 * sizeof(int));
}

#endif
