/* shared.h - for programs of several processes: children that are forked before the driver is used, and pipes. */
#ifndef SIM_SHARED_H
#define SIM_SHARED_H
#include "program.h"
#include <sys/socket.h>
#include <sys/wait.h>

struct pipes {
  int fd; /* a socket, so that descriptors travel */
  pid_t pid;
};

static inline void peer_say(struct pipes *pipes, const void *bytes, size_t size) {
  TRUE(write(pipes->fd, bytes, size) == (ssize_t)size);
}

static inline void peer_hear(struct pipes *pipes, void *bytes, size_t size) {
  TRUE(recv(pipes->fd, bytes, size, MSG_WAITALL) == (ssize_t)size);
}

/* A descriptor and what goes with it. */
static inline void peer_send_fd(struct pipes *pipes, int fd) {
  char byte = 'd', space[CMSG_SPACE(sizeof fd)] = {0};
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  TRUE(sendmsg(pipes->fd, &message, 0) == 1);
}

static inline int peer_hear_fd(struct pipes *pipes) {
  int fd;
  char byte, space[CMSG_SPACE(sizeof fd)];
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  TRUE(recvmsg(pipes->fd, &message, 0) == 1 && CMSG_FIRSTHDR(&message));
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}

static inline void peer_start(struct pipes *pipes, void (*body)(struct pipes *)) {
  int ends[2];
  TRUE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  fflush(stdout);
  pipes->pid = fork();
  TRUE(pipes->pid >= 0);
  pipes->fd = ends[pipes->pid == 0];
  close(ends[pipes->pid != 0]);
  if (pipes->pid > 0) return;
  body(pipes);
  exit(0);
}

/* The child ends, as it should. */
static inline void peer_end(struct pipes *pipes) {
  int status;
  close(pipes->fd);
  TRUE(waitpid(pipes->pid, &status, 0) == pipes->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
