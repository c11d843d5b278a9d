/* ask.c - one question to vgpud over its runtime socket. Called by main.c and hook.c.
 *
 * The daemon may be restarting: a question without a complete answer is repeated, since vgpud drops the requests of
 * broken connections. Everything has a deadline, and nothing raises SIGPIPE. */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define HEADER_BYTES (4 * PATH_MAX)
#define REPLY_BYTES_MAX (VR_BODY_BYTES_MAX + HEADER_BYTES)
#define SCRATCH_ID_BYTES 64 /* of an id in a directory's name */
#define RETRY_NS (20 * VR_NS_PER_MS)

static int wait_for(int fd, short events, uint64_t deadline_ns) {
  for (;;) {
    uint64_t now = vr_now_ns();
    if (now >= deadline_ns) return -ETIMEDOUT;
    struct pollfd item = {.fd = fd, .events = events};
    int ready = poll(&item, 1, (int)((deadline_ns - now) / VR_NS_PER_MS) + 1);
    if (ready > 0) return 0;
    if (ready < 0 && errno != EINTR) return -errno;
  }
}

/* Who answers decides what the low-level runtime does with our rights: root, or we ourselves. -EUSERS. */
static int check_server(int fd) {
  struct ucred server;
  socklen_t bytes = sizeof server;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &bytes)) return -errno;
  return server.uid == 0 || server.uid == geteuid() ? 0 : -EUSERS;
}

static int connected(const char *path, int *ret_fd) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) return -ENAMETOOLONG;
  memcpy(address.sun_path, path, strlen(path));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -errno;
  fd = vr_above_stdio(fd);
  if (fd < 0) return fd;
  int error = connect(fd, (struct sockaddr *)&address, sizeof address) ? -errno : check_server(fd);
  if (error) {
    close(fd);
    return error;
  }
  *ret_fd = fd;
  return 0;
}

static int send_all(int fd, const char *bytes, size_t count, uint64_t deadline_ns) {
  while (count) {
    ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes += sent;
      count -= (size_t)sent;
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return -errno;
    int error = wait_for(fd, POLLOUT, deadline_ns);
    if (error) return error;
  }
  return 0;
}

static int receive(int fd, uint64_t deadline_ns, struct vr_reply *reply) {
  size_t capacity = 64u << 10, used = 0;
  reply->buffer = malloc(capacity);
  while (reply->buffer) {
    int error = wait_for(fd, POLLIN, deadline_ns);
    if (error) return error;
    ssize_t got = recv(fd, reply->buffer + used, capacity - used, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return got < 0 ? -errno : -ECONNRESET; /* an incomplete reply: the daemon is gone */
    used += (size_t)got;
    int complete = vr_wire_reply(reply->buffer, used, reply);
    if (complete) return complete < 0 ? complete : 0;
    if (used < capacity) continue;
    if (capacity > REPLY_BYTES_MAX) return -EMSGSIZE;
    char *larger = realloc(reply->buffer, capacity *= 2);
    if (!larger) return -ENOMEM;
    reply->buffer = larger;
  }
  return -ENOMEM;
}

static int converse(int fd, const char *header, size_t header_bytes, const struct vr_request *request,
                    uint64_t deadline_ns, struct vr_reply *ret_reply) {
  int error = send_all(fd, header, header_bytes, deadline_ns);
  if (!error) error = send_all(fd, request->body, request->body_bytes, deadline_ns);
  /* A daemon may refuse before it has read everything; its answer is there all the same. */
  if (error && error != -EPIPE && error != -ECONNRESET) return error;
  shutdown(fd, SHUT_WR);
  error = receive(fd, deadline_ns, ret_reply);
  if (!error) return 0;
  free(ret_reply->buffer);
  *ret_reply = (struct vr_reply){0};
  return error;
}

static int explain(int error, const char *path, const char *asker, uint64_t answer_ns, char *text) {
  static const char fix[] = "start it with `systemctl start vgpud`, or run the";
  switch (-error) {
  case ENOENT:
  case ENOTDIR:
    return vr_say(text, -error, "vgpud is not running (no socket at %s): %s %s without asking for a GPU", path, fix,
                  asker);
  case ECONNREFUSED:
    return vr_say(text, -error, "vgpud is not running (connection refused at %s): %s %s without asking for a GPU", path,
                  fix, asker);
  case ECONNRESET:
  case EPIPE:
    return vr_say(text, -error,
                  "vgpud closed the connection at %s without an answer: see `journalctl -u vgpud`, then try again",
                  path);
  case ETIMEDOUT:
  case EAGAIN: /* its queue of connections is full */
    return vr_say(text, -error, "vgpud did not answer within %llu s at %s: see `journalctl -u vgpud`",
                  (unsigned long long)(answer_ns / 1000000000ull), path);
  case EPROTONOSUPPORT:
    return vr_say(text, -error, "vgpud at %s and this vgpu-runtime have different versions: run `vgpu setup` again",
                  path);
  case EPROTO:
    return vr_say(text, -error, "the process that answers at %s is not vgpud: correct `socket` in vgpu-runtime.conf",
                  path);
  case EMSGSIZE:
    return vr_say(text, -error, "vgpud's answer at %s is longer than %u bytes", path, VR_BODY_BYTES_MAX);
  case ENAMETOOLONG:
    return vr_say(text, -error, "the socket's path %s is too long: shorten `socket` in vgpu-runtime.conf", path);
  case EACCES:
  case EPERM:
    return vr_say(
        text, -error,
        "vgpud's socket %s: access denied to user %u, whom this vgpud does not serve: start another as that user", path,
        (unsigned)geteuid());
  case EUSERS:
    return vr_say(text, -error,
                  "the process that answers at %s belongs neither to root nor to user %u: start a vgpud as that user",
                  path, (unsigned)geteuid());
  default:
    return vr_say(text, -error, "cannot reach vgpud at %s: %s", path, vr_reason(-error));
  }
}

bool vr_has_scratch(const char *socket_path, const char *id) {
  char folder[PATH_MAX], begin[SCRATCH_ID_BYTES + 1];
  const char *slash = strrchr(socket_path, '/');
  int bytes = snprintf(folder, sizeof folder, "%.*s/containers", slash ? (int)(slash - socket_path) : 0, socket_path);
  if (bytes >= (int)sizeof folder) return false;
  snprintf(begin, sizeof begin, "%s", id);
  DIR *entries = opendir(folder);
  bool is_there = false;
  for (struct dirent *entry; entries && !is_there && (entry = readdir(entries));) {
    const char *dash = strchr(entry->d_name, '-');
    is_there = dash && !strcmp(dash + 1, begin);
  }
  if (entries) closedir(entries);
  return is_there;
}

int vr_refusal(const struct vr_reply *reply, char *text) {
  vr_say(text, EPERM, "%.*s", (int)reply->body_bytes, reply->body);
  return *text ? -EPERM
               : vr_say(text, EPERM, "vgpud refused the container and did not say why: see `journalctl -u vgpud`");
}

/* Errors while the daemon restarts. */
static bool may_pass(int error) {
  return error == -ENOENT || error == -ECONNREFUSED || error == -EAGAIN || error == -ECONNRESET || error == -EPIPE;
}

int vr_ask(const char *socket_path, const struct vr_request *request, const struct vr_patience *patience,
           struct vr_reply *ret_reply, char *text) {
  static char header[HEADER_BYTES];
  *ret_reply = (struct vr_reply){0};
  int header_bytes = vr_wire_header(request, header, sizeof header);
  if (header_bytes < 0)
    return vr_say(text, -header_bytes, "the container's id or bundle path holds a line break or is too long");
  uint64_t gone_since_ns = 0;
  bool was_there = false;
  for (;;) {
    int fd = -1, error = connected(socket_path, &fd);
    if (!error) {
      was_there = true;
      error = converse(fd, header, (size_t)header_bytes, request, vr_now_ns() + patience->answer_ns, ret_reply);
      close(fd);
      if (!error) return 0;
    }
    was_there |= error == -ECONNREFUSED;
    uint64_t now = vr_now_ns();
    if (!gone_since_ns) gone_since_ns = now;
    uint64_t allowed_ns = error == -EAGAIN ? patience->answer_ns
                          : was_there      ? patience->restart_ns
                                           : patience->missing_ns;
    if (!may_pass(error) || now - gone_since_ns >= allowed_ns)
      return explain(error, socket_path, request->asker, patience->answer_ns, text);
    struct timespec pause = {.tv_nsec = RETRY_NS};
    nanosleep(&pause, NULL);
  }
}
