/*
 * log.c - a log of records of one size in the directory of the server: busy times (report.c), use of links
 * (link_log.c). Records are collected, and written now and then.
 */
#define _GNU_SOURCE
#include "simgpu/server/server.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int file_open(int directory, struct log *log) {
  log->fd = openat(directory, log->name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
  log->bytes = 0;
  return log->fd < 0 ? -errno : 0;
}

int log_open(int directory, const char *kind, uint32_t device, struct log *ret_log) {
  snprintf(ret_log->name, sizeof ret_log->name, "%s-%u.log", kind, device);
  return file_open(directory, ret_log);
}

/* A device that runs for days: the log continues in a new file, the last one is kept. */
static void rotate(struct log *log) {
  char old[sizeof log->name + 4];
  snprintf(old, sizeof old, "%s.old", log->name);
  close(log->fd);
  if (renameat(server.directory, log->name, server.directory, old) < 0 || file_open(server.directory, log) < 0)
    fprintf(stderr, "vgpu-simd: %s: %s: it ends here\n", log->name, strerror(errno));
}

void log_write(struct log *log) {
  if (log->filled && write(log->fd, log->buffer, log->filled) != (ssize_t)log->filled)
    fprintf(stderr, "vgpu-simd: %s: %s: records are lost\n", log->name, strerror(errno));
  log->bytes += log->filled;
  log->filled = 0;
  if (log->bytes > LOG_FILE_BYTES) rotate(log);
}

void log_add(struct log *log, const void *record, size_t bytes) {
  if (log->filled + bytes > sizeof log->buffer) log_write(log);
  memcpy(log->buffer + log->filled, record, bytes);
  log->filled += (uint32_t)bytes;
}

void log_write_due(struct log *log, uint64_t now_ns, bool everything) {
  if (!log->filled || (!everything && now_ns <= log->written_ns + LOG_WRITE_NS)) return;
  log_write(log);
  log->written_ns = now_ns;
}
