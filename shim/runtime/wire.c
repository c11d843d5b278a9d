/* wire.c - the messages between vgpu-runtime and vgpud, as bytes. Called by ask.c. No IO.
 *
 * Both ways: a line with the protocol and its version, lines `key value`, an empty line, the body. */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROTOCOL "vgpu-runtime "
#define VERSION "1"
#define HEADER_BYTES_MAX 4096

int vr_wire_header(const struct vr_request *request, char *ret_header, size_t header_bytes) {
  const char *values[] = {request->op, request->id, request->bundle, request->self};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    if (strpbrk(values[i], "\r\n")) return -EINVAL;
  int length = snprintf(ret_header, header_bytes, PROTOCOL VERSION "\nop %s\nid %s\nbundle %s\nself %s\nbody %zu\n\n",
                        request->op, request->id, request->bundle, request->self, request->body_bytes);
  return length < 0 || (size_t)length >= header_bytes ? -E2BIG : length;
}

static int parse_status(const char *word, size_t length, enum vr_status *ret_status) {
  static const char *const words[] = {
      [VR_PASS] = "pass", [VR_CONFIG] = "config", [VR_OK] = "ok", [VR_REFUSED] = "refused"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strlen(words[i]) == length && !strncmp(words[i], word, length)) {
      *ret_status = (enum vr_status)i;
      return 0;
    }
  return -EPROTO;
}

/* Digits only, and at most what a body may have. */
static int parse_length(const char *word, size_t length, size_t *ret_bytes) {
  if (length == 0 || length > 9 || strspn(word, "0123456789") < length) return -EPROTO;
  *ret_bytes = strtoul(word, NULL, 10);
  return *ret_bytes > VR_BODY_BYTES_MAX ? -EMSGSIZE : 0;
}

/* The lines between the first one and the empty one; `end` is where the empty one begins. */
static int parse_lines(const char *line, const char *end, struct vr_reply *reply) {
  bool has_status = false, has_body = false;
  while (line < end) {
    const char *next = memchr(line, '\n', (size_t)(end - line) + 1);
    const char *space = memchr(line, ' ', (size_t)(next - line));
    if (!space) return -EPROTO;
    const char *value = space + 1;
    size_t key_length = (size_t)(space - line), length = (size_t)(next - value);
    int error = 0; /* an unknown key is a newer daemon's, and ignored */
    if (key_length == 6 && !strncmp(line, "status", 6)) {
      error = parse_status(value, length, &reply->status);
      has_status = true;
    } else if (key_length == 4 && !strncmp(line, "body", 4)) {
      error = parse_length(value, length, &reply->body_bytes);
      has_body = true;
    }
    if (error) return error;
    line = next + 1;
  }
  return has_status && has_body ? 0 : -EPROTO;
}

int vr_wire_reply(char *buffer, size_t bytes, struct vr_reply *ret_reply) {
  size_t known = strlen(PROTOCOL);
  if (memcmp(buffer, PROTOCOL, bytes < known ? bytes : known)) return -EPROTO;
  char *version_end = memchr(buffer, '\n', bytes);
  if (!version_end) return bytes > HEADER_BYTES_MAX ? -EPROTO : 0;
  *version_end = 0;
  bool is_ours = !strcmp(buffer + known, VERSION);
  *version_end = '\n';
  if (!is_ours) return -EPROTONOSUPPORT;
  char *end = memmem(version_end, bytes - (size_t)(version_end - buffer), "\n\n", 2);
  if (!end) return bytes > HEADER_BYTES_MAX ? -EPROTO : 0;
  int error = parse_lines(version_end + 1, end, ret_reply);
  if (error) return error;
  ret_reply->body = end + 2;
  size_t there = bytes - (size_t)(ret_reply->body - buffer);
  if (there > ret_reply->body_bytes) return -EPROTO;
  return there == ret_reply->body_bytes;
}
