/*
 * attach.c - so many processes that attach at once, as the hook does it: connect, one message, the answer with its
 * descriptors, both maps. Prints a line for each, "connect answer map" in ns, and stays attached until its input ends.
 * Arguments: the slice's socket, how many.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../shim/abi/vg_abi.h"

struct took {
  uint64_t connect_ns, answer_ns, map_ns;
};

static struct {
  uint32_t ready, go, done, failed, end;
  struct took took[];
} *shared;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void rest(void) {
  nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* A thousand that wait so take no processor time. */
static void await(uint32_t *word) {
  while (!__atomic_load_n(word, __ATOMIC_ACQUIRE)) syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
}

static void release(uint32_t *word) {
  __atomic_store_n(word, 1, __ATOMIC_RELEASE);
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* As attach/socket.c: a full backlog is tried again. */
static int connected(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  while (connect(fd, (struct sockaddr *)&address, sizeof address)) {
    if (errno != EAGAIN) return -1;
    rest();
  }
  return fd;
}

static int receive(int fd, struct vg_attach_reply *ret_reply, int *ret_fds) {
  char control[CMSG_SPACE((2 + VG_DEVICES_MAX) * sizeof(int))];
  struct iovec piece = {.iov_base = ret_reply, .iov_len = sizeof *ret_reply};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control};
  message.msg_controllen = sizeof control;
  struct pollfd entry = {.fd = fd, .events = POLLIN};
  if (poll(&entry, 1, 30000) != 1 || recvmsg(fd, &message, 0) != sizeof *ret_reply) return -1;
  if (ret_reply->status != VG_ATTACH_OK) fprintf(stderr, "refused: %s\n", ret_reply->text);
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (!header || header->cmsg_len > CMSG_LEN((2 + VG_DEVICES_MAX) * sizeof(int))) return -1;
  memcpy(ret_fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
  return 0;
}

static int attach(const char *path, struct took *ret_took) {
  struct vg_attach_request request = {.magic = VG_ABI_MAGIC, .abi_version = VG_ABI_VERSION};
  request.bytes = sizeof request;
  strcpy(request.program, "crowd");
  struct vg_attach_reply reply = {0};
  int fds[2 + VG_DEVICES_MAX] = {0};
  uint64_t begin_ns = now_ns();
  int fd = connected(path);
  uint64_t connected_ns = now_ns();
  if (fd < 0 || send(fd, &request, sizeof request, MSG_NOSIGNAL) < 0 || receive(fd, &reply, fds)) return -1;
  uint64_t answered_ns = now_ns();
  size_t bytes = (1 + (size_t)reply.device_count) * VG_PAGE_BYTES;
  void *control = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fds[0], 0);
  void *report = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
  if (control == MAP_FAILED || report == MAP_FAILED) return -1;
  *ret_took = (struct took){connected_ns - begin_ns, answered_ns - connected_ns, now_ns() - answered_ns};
  return 0;
}

static void be_one(const char *path, int index) {
  __atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
  await(&shared->go);
  if (attach(path, &shared->took[index])) {
    perror("attach");
    __atomic_add_fetch(&shared->failed, 1, __ATOMIC_SEQ_CST);
  }
  __atomic_add_fetch(&shared->done, 1, __ATOMIC_SEQ_CST);
  await(&shared->end);
  _exit(0);
}

int main(int argc, char **argv) {
  uint32_t count = argc == 3 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
  size_t bytes = sizeof *shared + count * sizeof shared->took[0];
  if (!count) return 2;
  shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (uint32_t i = 0; i < count; i++)
    if (fork() == 0) be_one(argv[1], (int)i);
  while (__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) < count) rest();
  release(&shared->go);
  while (__atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) < count) rest();
  for (uint32_t i = 0; i < count; i++)
    printf("%lu %lu %lu\n", (unsigned long)shared->took[i].connect_ns, (unsigned long)shared->took[i].answer_ns,
           (unsigned long)shared->took[i].map_ns);
  fflush(stdout);
  getchar();
  release(&shared->end);
  while (wait(NULL) > 0) {
  }
  return shared->failed != 0;
}
