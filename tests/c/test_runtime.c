/* test_runtime.c - the parts of vgpu-runtime that need no process of their own: arguments, messages, JSON,
 * configuration, the engine's log record, and waiting for a daemon that hangs, with less patience than the program has.
 *
 * Whatever comes from outside is also fed in cut short and with flipped bytes: under AddressSanitizer and UBSan that
 * shows reads beyond the end. */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"

#define ARGUMENTS_MAX 16

static struct vr_call parsed(const char *line) {
  static char words[4096];
  static char *arguments[ARGUMENTS_MAX + 1];
  int count = 0;
  strcpy(words, line);
  for (char *word = strtok(words, " "); word && count < ARGUMENTS_MAX; word = strtok(NULL, " "))
    arguments[count++] = word;
  arguments[count] = NULL;
  struct vr_call call;
  vr_call_parse(count, arguments, &call);
  return call;
}

static void test_arguments(void) {
  struct vr_call call = parsed("vgpu-runtime --root /r --log L --log-format json create --bundle /b --pid-file p c1");
  CHECK(call.makes_container && call.log_is_json);
  CHECK(!strcmp(call.log_path, "L") && !strcmp(call.bundle, "/b") && !strcmp(call.id, "c1"));
  call = parsed("vgpu-runtime --log create --log-format text delete c1");
  CHECK(!call.makes_container && !call.log_is_json && !strcmp(call.subcommand, "delete"));
  CHECK(parsed("vgpu-runtime").subcommand == NULL);
  CHECK(parsed("vgpu-runtime --log").log_path == NULL);
  CHECK(parsed("vgpu-runtime create -b").makes_container == false);
  CHECK(!strcmp(parsed("vgpu-runtime run -f/x/c.json -b/b c1").config, "/x/c.json"));
  CHECK(!strcmp(parsed("vgpu-runtime -- run c1").id, "c1"));
  CHECK(parsed("vgpu-runtime --").subcommand == NULL);
  CHECK(parsed("vgpu-runtime create --").makes_container == false);
}

/* A copy of exactly that length on the heap, so that AddressSanitizer knows its end. */
static char *exact(const char *bytes, size_t count) {
  char *copy = malloc(count ? count : 1);
  memcpy(copy, bytes, count);
  return copy;
}

static int reply_of(const char *bytes, size_t count, struct vr_reply *ret_reply) {
  *ret_reply = (struct vr_reply){0};
  char *copy = exact(bytes, count);
  int result = vr_wire_reply(copy, count, ret_reply);
  CHECK(result != 1 || ret_reply->body + ret_reply->body_bytes == copy + count);
  free(copy);
  return result;
}

static void test_replies(void) {
  static const char whole[] = "vgpu-runtime 1\nstatus config\nmore to come\nbody 5\n\nabcde";
  struct vr_reply reply;
  CHECK(reply_of(whole, strlen(whole), &reply) == 1);
  CHECK(reply.status == VR_CONFIG && reply.body_bytes == 5);
  for (size_t count = 0; count < strlen(whole); count++) CHECK(reply_of(whole, count, &reply) == 0);
  CHECK(reply_of("vgpu-runtime 2\n", 15, &reply) == -EPROTONOSUPPORT);
  CHECK(reply_of("vgpu-runtime 1\nstatus ok\nbody 4194305\n\n", 39, &reply) == -EMSGSIZE);
  CHECK(reply_of("vgpu-runtime 1\nstatus ok\nbody 0\n\nx", 34, &reply) == -EPROTO);
  struct check_random random = {1};
  for (int round = 0; round < 200000; round++) {
    char bytes[sizeof whole];
    memcpy(bytes, whole, sizeof whole);
    for (int flips = 1 + round % 3; flips; flips--)
      bytes[check_below(&random, strlen(whole))] = (char)check_random(&random);
    reply_of(bytes, check_below(&random, sizeof whole), &reply);
  }
}

static void test_header(void) {
  char header[256];
  struct vr_request request = {"create", "c1", "/b", "/vgpu-runtime", "{}", 2, "container"};
  static const char wanted[] = "vgpu-runtime 1\nop create\nid c1\nbundle /b\nself /vgpu-runtime\nbody 2\n\n";
  CHECK(vr_wire_header(&request, header, sizeof header) == (int)strlen(wanted) && !strcmp(header, wanted));
  CHECK(vr_wire_header(&request, header, strlen(wanted)) == -E2BIG);
  request.id = "c1\nop stopped";
  CHECK(vr_wire_header(&request, header, sizeof header) == -EINVAL);
}

static int string_of(const char *json, size_t count, char *ret_value, size_t value_bytes) {
  char *copy = exact(json, count);
  int error = vr_json_string(copy, count, "id", ret_value, value_bytes);
  free(copy);
  return error;
}

static void test_json(void) {
  static const char state[] =
      "{\"a\":[{\"id\":\"no\"},[1,\"]\\\"\"]],\"b\":-1e3,\"id\":\"c\\u00e9\\ud83d\\ude80\\n\",\"z\":{}}";
  char value[32];
  CHECK(string_of(state, strlen(state), value, sizeof value) == 0 && !strcmp(value, "c\xc3\xa9\xf0\x9f\x9a\x80\n"));
  CHECK(string_of(state, strlen(state), value, 8) == -E2BIG);
  CHECK(string_of(state, strlen(state), value, 9) == 0);
  CHECK(string_of("{}", 2, value, sizeof value) == -ENOENT);
  CHECK(string_of("{\"id\":\"\\u0000\"}", 15, value, sizeof value) == -EINVAL);
  CHECK(string_of("{\"id\":\"\\ud83d\"}", 15, value, sizeof value) == -EINVAL);
  for (size_t count = 0; count < strlen(state); count++) {
    int error = string_of(state, count, value, sizeof value);
    CHECK(error == -EINVAL || (error == 0 && count > strlen(state) - 9)); /* complete once the string is */
  }
  struct check_random random = {2};
  for (int round = 0; round < 200000; round++) {
    char bytes[sizeof state];
    memcpy(bytes, state, sizeof state);
    for (int flips = 1 + round % 3; flips; flips--)
      bytes[check_below(&random, strlen(state))] = (char)check_random(&random);
    if (!string_of(bytes, check_below(&random, sizeof state), value, sizeof value)) CHECK(strlen(value) < sizeof value);
  }
}

static void test_configuration(void) {
  struct vr_conf conf = {0};
  char text[] = "# all\n\n socket = /s \r\nruntime=crun\nlast = x";
  vr_conf_parse("f", text, &conf);
  CHECK(!strcmp(conf.socket, "/s") && !strcmp(conf.runtime, "crun"));
  CHECK(strstr(conf.problem, "f line 5") && strstr(conf.problem, "`last`"));
  char empty[] = "";
  conf = (struct vr_conf){0};
  vr_conf_parse("f", empty, &conf);
  CHECK(!*conf.problem);
}

static void test_plain_words(void) {
  char text[] = "[Errno 2] No such file or directory: 'x': not a directory, PERMISSION DENIED permission denied";
  vr_plain_words(text);
  CHECK(!strcmp(text, "[Errno 2] it does not exist: 'x': no directory, access denied access denied"));
  char plain[] = "vgpud is not running";
  vr_plain_words(plain);
  CHECK(!strcmp(plain, "vgpud is not running"));
  vr_plain_words(text + strlen(text));
}

static void test_records(void) {
  static char text[VR_TEXT_BYTES], record[6 * VR_TEXT_BYTES + 128];
  strcpy(text, "a \"b\" \\c");
  size_t length = vr_report_record(true, 1767323045, text, record, sizeof record);
  static const char json[] = "{\"time\":\"2026-01-02T03:04:05Z\",\"level\":\"error\",\"msg\":\"a \\\"b\\\" \\\\c\"}\n";
  CHECK(length == strlen(json) && !memcmp(record, json, length));
  length = vr_report_record(false, 1767323045, text, record, sizeof record);
  static const char plain[] = "time=\"2026-01-02T03:04:05Z\" level=error msg=\"a \\\"b\\\" \\\\c\"\n";
  CHECK(length == strlen(plain) && !memcmp(record, plain, length));
  memset(text, 1, sizeof text - 1);
  length = vr_report_record(true, INT64_MAX, text, record, sizeof record);
  CHECK(length < sizeof record && record[length - 1] == '\n');
  strcpy(text, "two\nlines\t\n \n");
  vr_one_line(text);
  CHECK(!strcmp(text, "two lines"));
}

static void test_marks(void) {
  CHECK(vr_bundle_asks("[\"VGPU=1\"]", 10));
  CHECK(!vr_bundle_asks("[\"VGPU=1\"]", 6));
  CHECK(!vr_bundle_asks("", 0));
}

/* Daemons that listen and do nothing: with space in the queue a connection is made, without it is not. */
static void test_hanging(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "hanging-%d", (int)getpid());
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(!bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 0));
  static char body[VR_BODY_BYTES_MAX], text[VR_TEXT_BYTES];
  struct vr_request request = {"create", "c1", "/b", "/self", body, sizeof body, "container"};
  struct vr_patience patience = {.answer_ns = 100 * VR_NS_PER_MS, .missing_ns = 1, .restart_ns = 1};
  struct vr_reply reply;
  uint64_t begin_ns = vr_now_ns();
  CHECK(vr_ask(address.sun_path, &request, &patience, &reply, text) == -ETIMEDOUT); /* while it sends */
  CHECK(vr_now_ns() - begin_ns >= patience.answer_ns && strstr(text, "did not answer"));
  CHECK(!reply.buffer);
  int waiting = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  while (!connect(waiting, (struct sockaddr *)&address, sizeof address)) { /* until the queue is full */
    close(waiting);
    waiting = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  }
  begin_ns = vr_now_ns();
  CHECK(vr_ask(address.sun_path, &request, &patience, &reply, text) == -EAGAIN);
  CHECK(vr_now_ns() - begin_ns >= patience.answer_ns && strstr(text, "did not answer"));
  close(waiting);
  close(listener);
  CHECK(vr_ask(address.sun_path, &request, &patience, &reply, text) == -ECONNREFUSED);
  unlink(address.sun_path);
  CHECK(vr_ask(address.sun_path, &request, &patience, &reply, text) == -ENOENT);
}

static void test_reading(void) {
  int ends[2];
  char *buffer = NULL;
  CHECK(!pipe(ends));
  CHECK(write(ends[1], "abcdef", 6) == 6);
  CHECK(vr_read_all(ends[0], 100, 20 * VR_NS_PER_MS, &buffer) == -ETIMEDOUT && !buffer); /* no end of file */
  CHECK(write(ends[1], "abcdef", 6) == 6);
  close(ends[1]);
  CHECK(vr_read_all(ends[0], 3, UINT64_MAX, &buffer) == 4 && !strcmp(buffer, "abcd")); /* one more than allowed */
  free(buffer);
  CHECK(vr_read_all(ends[0], 3, UINT64_MAX, &buffer) == 0 && !*buffer);
  free(buffer);
  close(ends[0]);
  CHECK(vr_read_all(ends[0], 3, UINT64_MAX, &buffer) == -EBADF);
}

int main(void) {
  RUN(test_arguments);
  RUN(test_replies);
  RUN(test_header);
  RUN(test_json);
  RUN(test_configuration);
  RUN(test_plain_words);
  RUN(test_records);
  RUN(test_marks);
  RUN(test_hanging);
  RUN(test_reading);
  return 0;
}
