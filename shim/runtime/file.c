/* file.c - reading, writing and the clock, with interruptions and deadlines. Called by everything of vgpu-runtime. */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define READ_FIRST_BYTES (64u << 10)
#define LOWEST 3

uint64_t vr_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

int vr_above_stdio(int fd) {
  if (fd >= LOWEST) return fd;
  int higher = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST);
  int error = errno;
  close(fd);
  return higher < 0 ? -error : higher;
}

/* Waits until fd can be read. 0, or -ETIMEDOUT. */
static int wait_readable(int fd, uint64_t deadline_ns) {
  for (;;) {
    uint64_t now = vr_now_ns();
    if (now >= deadline_ns) return -ETIMEDOUT;
    struct pollfd item = {.fd = fd, .events = POLLIN};
    int ready = poll(&item, 1, (int)((deadline_ns - now) / VR_NS_PER_MS) + 1);
    if (ready > 0) return 0;
    if (ready < 0 && errno != EINTR) return -errno;
  }
}

ssize_t vr_read_all(int fd, size_t most, uint64_t timeout_ns, char **ret_buffer) {
  uint64_t deadline_ns = timeout_ns == UINT64_MAX ? UINT64_MAX : vr_now_ns() + timeout_ns;
  size_t capacity = READ_FIRST_BYTES, used = 0;
  char *buffer = malloc(capacity + 1);
  ssize_t got = -ENOMEM;
  while (buffer && used <= most) {
    if (deadline_ns != UINT64_MAX && (got = wait_readable(fd, deadline_ns))) break;
    got = read(fd, buffer + used, capacity - used);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      got = got < 0 ? -errno : 0;
      break;
    }
    used += (size_t)got;
    if (used < capacity) continue;
    capacity *= 2;
    char *larger = realloc(buffer, capacity + 1);
    if (!larger) {
      got = -ENOMEM;
      break;
    }
    buffer = larger;
  }
  if (!buffer || got < 0) {
    free(buffer);
    return got;
  }
  if (used > most) used = most + 1;
  buffer[used] = 0;
  *ret_buffer = buffer;
  return (ssize_t)used;
}

int vr_write_all(int fd, const char *bytes, size_t count) {
  while (count) {
    ssize_t written = write(fd, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? -errno : -EIO;
    bytes += written;
    count -= (size_t)written;
  }
  return 0;
}
