/*
 * link.c - the connection of a process to vgpu-simd, made by cuInit and never before. Its end is how the server learns
 * that the process has ended. Requests are short and answered in order; one at a time.
 */
#define _GNU_SOURCE
#include "simgpu/process/process.h"
#include "simgpu/wire_send.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct sim_link sim_link = {.socket = -1, .kick = -1};
static pthread_mutex_t request_lock = PTHREAD_MUTEX_INITIALIZER;

/* The path of a socket holds 107 characters: longer ones go through /proc/self/fd. */
static int connect_to(const char *directory) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int via = -1, length = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory, SIM_SOCKET_NAME);
  if (length >= (int)sizeof address.sun_path) {
    via = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", via, SIM_SOCKET_NAME);
  }
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
    close(fd);
    fd = -1;
  }
  if (via >= 0) close(via);
  return fd;
}

/* Receives the answer; fds may be NULL. 0 or -EPIPE. */
static int receive(int fd, struct sim_reply *ret_reply, int *ret_fds, int fd_count) {
  struct iovec part = {.iov_base = ret_reply, .iov_len = sizeof *ret_reply};
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(4 * sizeof(int))];
  } control = {0};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t size;
  while ((size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (size != sizeof *ret_reply || ret_reply->magic != SIM_WIRE_MAGIC) return -EPIPE;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (fd_count == 0 || ret_reply->status < 0) return 0;
  if (!header || header->cmsg_len != CMSG_LEN((size_t)fd_count * sizeof(int))) return -EPIPE;
  memcpy(ret_fds, CMSG_DATA(header), (size_t)fd_count * sizeof(int));
  return 0;
}

static int send_request(int fd, struct sim_request *request) {
  return sim_wire_send(fd, request, -1);
}

static void program_name(char ret_name[32]) {
  snprintf(ret_name, 32, "%s", program_invocation_short_name);
}

static bool map_all(const int fds[4]) {
  sim_link.ring = mmap(NULL, sizeof(struct sim_ring), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
  sim_link.done = mmap(NULL, sizeof(struct sim_completions), PROT_READ, MAP_SHARED | MAP_NORESERVE, fds[1], 0);
  sim_link.page = mmap(NULL, sizeof(struct sim_page), PROT_READ, MAP_SHARED, fds[3], 0);
  if (sim_link.ring == MAP_FAILED || sim_link.done == MAP_FAILED || sim_link.page == MAP_FAILED) return false;
  /* A forked child may not write into its parent's ring. */
  madvise(sim_link.ring, sizeof(struct sim_ring), MADV_DONTFORK);
  return sim_link.page->magic == SIM_WIRE_MAGIC && sim_link.page->version == SIM_WIRE_VERSION;
}

CUresult sim_link_open(void) {
  const char *directory = secure_getenv("VGPU_SIM_DIR");
  int fd = connect_to(directory && *directory ? directory : SIM_DEFAULT_DIR);
  if (fd < 0) return CUDA_ERROR_NO_DEVICE;
  struct sim_request hello = {.magic = SIM_WIRE_MAGIC, .version = SIM_WIRE_VERSION, .kind = SIM_REQUEST_HELLO};
  struct sim_reply reply;
  int fds[4];
  program_name(hello.program);
  if (send_request(fd, &hello) < 0 || receive(fd, &reply, fds, 4) < 0 || reply.status < 0) {
    close(fd);
    return CUDA_ERROR_NO_DEVICE;
  }
  bool mapped = map_all(fds);
  close(fds[0]);
  close(fds[1]);
  close(fds[3]);
  sim_link.socket = fd;
  sim_link.kick = fds[2];
  return mapped ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

int sim_link_exchange(struct sim_request *request, int send_fd, struct sim_reply *ret_reply, int *ret_fd) {
  request->magic = SIM_WIRE_MAGIC;
  request->version = SIM_WIRE_VERSION;
  pthread_mutex_lock(&request_lock);
  int rc = sim_link.gone ? -EPIPE : sim_wire_send(sim_link.socket, request, send_fd);
  if (rc == 0) rc = receive(sim_link.socket, ret_reply, ret_fd, ret_fd ? 1 : 0);
  pthread_mutex_unlock(&request_lock);
  if (rc < 0) sim_link.gone = true;
  return rc < 0 ? rc : ret_reply->status;
}

int sim_link_request(enum sim_request_kind kind, int device, uint32_t context, uint64_t bytes) {
  struct sim_request request = {.kind = kind, .device = (uint32_t)device, .context = context, .bytes = bytes};
  struct sim_reply reply;
  return sim_link_exchange(&request, -1, &reply, NULL);
}

void sim_link_wake(void) {
  struct sim_request wake = {.magic = SIM_WIRE_MAGIC, .version = SIM_WIRE_VERSION, .kind = SIM_REQUEST_WAKE};
  send_request(sim_link.socket, &wake);
}

void sim_link_kick(void) {
  vg_prim_eventfd_ring(sim_link.kick);
}

void sim_link_check(void) {
  struct pollfd end = {.fd = sim_link.socket, .events = POLLRDHUP};
  if (poll(&end, 1, 0) == 1 && (end.revents & (POLLHUP | POLLRDHUP | POLLERR))) VG_STORE(&sim_link.gone, true);
}

CUresult sim_waited(void) {
  return VG_LOAD_RELAXED(&sim_link.gone) ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}
