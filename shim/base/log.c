/*
 * log.c - the shim's log, for every part of the shim. Must hold: silent unless VGPU_LOG is set, keeps no descriptor
 * (programs close descriptors that they do not know), one write(2) a line so that lines of several processes do not
 * mix, errno is kept.
 */
#define _GNU_SOURCE
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 512

/* A descriptor to write to, or -1. Only a descriptor other than stderr is the caller's to close. */
static int log_open(void) {
  const char *target = secure_getenv("VGPU_LOG");
  if (target == NULL || *target == '\0') return -1;
  if (strcmp(target, "stderr") == 0) return STDERR_FILENO;
  return open(target, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
}

void vg_log(const char *format, ...) {
  int saved_errno = errno;
  int descriptor = log_open();
  if (descriptor >= 0) {
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof line, "vgpu[%d]: ", (int)getpid());
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    size_t length = more < 0 ? (size_t)used : (size_t)used + (size_t)more;
    if (length > sizeof line - 1) length = sizeof line - 1;
    line[length] = '\n'; /* in place of the final NUL */
    if (write(descriptor, line, length + 1) < 0)
      errno = saved_errno; /* a log that cannot be written is no reason to fail */
    if (descriptor != STDERR_FILENO) close(descriptor);
  }
  errno = saved_errno;
}
