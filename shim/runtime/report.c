/* report.c - how a refusal reaches the user through the engine. Called by main.c and hook.c, just before they exit,
 * since it ignores SIGPIPE.
 *
 * containerd's shim shows the last record of the log with level "error", and its `time` must be RFC 3339; podman shows
 * stderr, or the log where it knows the runtime as one that writes JSON. */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int vr_say(char *text, int error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, VR_TEXT_BYTES, format, arguments);
  va_end(arguments);
  vr_one_line(text);
  return -error;
}

const char *vr_reason(int error) {
  if (error == ENOENT) return "it does not exist";
  if (error == EACCES || error == EPERM) return "access denied";
  return strerror(error);
}

void vr_one_line(char *text) {
  size_t length = strlen(text);
  while (length && (unsigned char)text[length - 1] <= ' ') text[--length] = 0;
  for (char *at = text; *at; at++)
    if ((unsigned char)*at < ' ' || *at == 0x7f) *at = ' ';
}

/* Engines search our line, in whatever case, for these words, take them for a fault of the container's command and
 * change the exit status by them (moby: errors.go; podman: oci_util.go). None may come back longer. */
static const struct {
  const char *theirs, *ours;
} misread[] = {
    {"no such file or directory", "it does not exist"},
    {"executable file not found", "program missing"},
    {"system cannot find the file specified", "file missing"},
    {"failed to run runc create/exec call", "runc failed"},
    {"permission denied", "access denied"},
    {"operation not permitted", "not allowed"},
    {"not a directory", "no directory"},
    {"open executable", "open program"},
};

void vr_plain_words(char *text) {
  for (size_t i = 0; i < sizeof misread / sizeof *misread; i++) {
    size_t theirs = strlen(misread[i].theirs), ours = strlen(misread[i].ours);
    for (char *at = text; (at = strcasestr(at, misread[i].theirs)); at += ours) {
      memcpy(at, misread[i].ours, ours);
      memmove(at + ours, at + theirs, strlen(at + theirs) + 1);
    }
  }
}

/* The inside of a JSON string; logrus' text format quotes the same way. */
static size_t quote(const char *text, char *out) {
  char *at = out;
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') *at++ = '\\';
    if ((unsigned char)*text < ' ')
      at += sprintf(at, "\\u%04x", (unsigned)(unsigned char)*text);
    else
      *at++ = *text;
  }
  *at = 0;
  return (size_t)(at - out);
}

size_t vr_report_record(bool is_json, int64_t wall_s, const char *text, char *ret_record, size_t record_bytes) {
  char quoted[6 * VR_TEXT_BYTES];
  quote(text, quoted);
  time_t seconds = (time_t)wall_s;
  struct tm utc;
  char stamp[32] = "1970-01-01T00:00:00Z";
  if (gmtime_r(&seconds, &utc)) strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &utc);
  const char *format =
      is_json ? "{\"time\":\"%s\",\"level\":\"error\",\"msg\":\"%s\"}\n" : "time=\"%s\" level=error msg=\"%s\"\n";
  int length = snprintf(ret_record, record_bytes, format, stamp, quoted);
  return length < 0 ? 0 : (size_t)length < record_bytes ? (size_t)length : record_bytes - 1;
}

static void append_to_log(const struct vr_call *call, const char *text) {
  const char *path = call->log_path;
  if (!path || !*path) return;
  if (!strncmp(path, "journald:", 9) || !strncmp(path, "syslog:", 7)) return; /* crun's; stderr has the line as well */
  if (!strncmp(path, "file:", 5)) path += 5;
  /* Not blocking: a pipe that no process reads must not hold us. */
  int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
  if (fd < 0) return;
  char record[6 * VR_TEXT_BYTES + 128];
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  vr_write_all(fd, record, vr_report_record(call->log_is_json, now.tv_sec, text, record, sizeof record));
  close(fd);
}

void vr_report(const struct vr_call *call, const char *text) {
  signal(SIGPIPE, SIG_IGN);
  char line[VR_TEXT_BYTES + 1];
  snprintf(line, VR_TEXT_BYTES, "%s", text);
  vr_plain_words(line);
  append_to_log(call, line);
  int length = (int)strlen(line);
  line[length++] = '\n';
  vr_write_all(STDERR_FILENO, line, (size_t)length);
}
