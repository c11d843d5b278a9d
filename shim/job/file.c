/* file.c - small files, descriptors, texts and clocks. Called by everything of vgpu-job. */
#define _GNU_SOURCE
#include "job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

int vj_say(char *text, int error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, VJ_TEXT_BYTES, format, arguments);
  va_end(arguments);
  for (char *at = text; *at; at++)
    if ((unsigned char)*at < ' ' || *at == 0x7f) *at = ' ';
  return -error;
}

int vj_path(char *ret_path, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(ret_path, PATH_MAX, format, arguments);
  va_end(arguments);
  if (length >= 0 && length < PATH_MAX) return 0;
  *ret_path = 0;
  return -ENAMETOOLONG;
}

ssize_t vj_read_file(const char *path, char *ret_text, size_t text_bytes) {
  *ret_text = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return -errno;
  size_t used = 0;
  ssize_t got = 0;
  while (used < text_bytes - 1 && (got = read(fd, ret_text + used, text_bytes - 1 - used))) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    used += (size_t)got;
  }
  int error = errno;
  close(fd);
  ret_text[used] = 0;
  return got < 0 ? -error : (ssize_t)used;
}

int vj_write_all(int fd, const char *bytes, size_t count) {
  while (count) {
    ssize_t written = write(fd, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? -errno : -EIO;
    bytes += written;
    count -= (size_t)written;
  }
  return 0;
}

int vj_write_file(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return -errno;
  int error = write(fd, text, strlen(text)) < 0 ? -errno : 0;
  close(fd);
  return error;
}

static int64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * (int64_t)VJ_NS_PER_S + now.tv_nsec;
}

void vj_close_above(int lowest) {
  if (!syscall(SYS_close_range, (unsigned)lowest, ~0u, 0)) return;
  for (int fd = (int)sysconf(_SC_OPEN_MAX) - 1; fd >= lowest; fd--) close(fd);
}

uint64_t vj_now_ns(void) {
  return (uint64_t)clock_ns(CLOCK_MONOTONIC);
}

int64_t vj_wall_ns(void) {
  return clock_ns(CLOCK_REALTIME);
}
