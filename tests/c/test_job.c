/* test_job.c - instructions for vgpu-job: read back as they were sent, and refused as a whole when they are cut short,
 * have flipped bytes or strings in another order. Under AddressSanitizer and UBSan that shows reads and writes beyond
 * the ends. */
#define _GNU_SOURCE
#include "job/job.h"

#include <errno.h>
#include <string.h>

#include "check.h"

#define BYTES_MAX 4096
#define ROUNDS 200000

struct words {
  char bytes[BYTES_MAX];
  size_t count;
};

static void say(struct words *words, const char *key, const char *value) {
  for (int i = 0; i < 2; i++) {
    const char *word = i ? value : key;
    memcpy(words->bytes + words->count, word, strlen(word) + 1);
    words->count += strlen(word) + 1;
  }
}

static struct words usual(void) {
  static const char *const pairs[][2] = {
      {"directory", "/d"},
      {"name", "17.2"},
      {"cwd", "/home"},
      {"umask", "18"},
      {"uid", "1000"},
      {"gid", "1000"},
      {"group", "4"},
      {"group", "27"},
      {"limit", "7 64 128"},
      {"cpu_milli", "500"},
      {"ram_bytes", "65536"},
      {"pids_max", "9"},
      {"grace_ms", "250"},
      {"signal", "10"},
      {"client", "1"},
      {"cleanup", "/e rm x"},
      {"first", "/e inspect x"},
      {"member", "/log"},
      {"env", "PATH=/bin"},
      {"env", ""},
      {"arg", "sh"},
      {"arg", ""},
      {"member", ""},
      {"arg", "true"},
      {"end", ""},
  };
  struct words words = {.count = 0};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) say(&words, pairs[i][0], pairs[i][1]);
  return words;
}

static void release(struct vj_launch *launch) {
  free(launch->groups);
  free(launch->members);
  free(launch->strings);
}

/* In a block of exactly its size, so that a read beyond the end is seen. */
static int parse(const struct words *words, struct vj_launch *ret_launch, char **ret_bytes, char *text) {
  *ret_bytes = malloc(words->count + 1);
  memcpy(*ret_bytes, words->bytes, words->count);
  (*ret_bytes)[words->count] = 0;
  *text = 0;
  return vj_launch_parse(*ret_bytes, words->count, ret_launch, text);
}

static void test_read_back(void) {
  struct words words = usual();
  struct vj_launch launch;
  char text[VJ_TEXT_BYTES], *bytes;
  CHECK(!parse(&words, &launch, &bytes, text));
  CHECK(!strcmp(launch.directory, "/d") && !strcmp(launch.name, "17.2") && !strcmp(launch.cwd, "/home"));
  CHECK(launch.uid == 1000 && launch.gid == 1000 && launch.umask == 022);
  CHECK(launch.group_count == 2 && launch.groups[0] == 4 && launch.groups[1] == 27);
  CHECK(launch.has_limit[7] && launch.limits[7].rlim_cur == 64 && launch.limits[7].rlim_max == 128);
  CHECK(launch.cpu_milli == 500 && launch.ram_bytes == 65536 && launch.pids_max == 9);
  CHECK(launch.grace_ns == 250 * VJ_NS_PER_MS && launch.is_client && !strcmp(launch.cleanup, "/e rm x"));
  CHECK(launch.member_count == 2 && launch.signal == 10);
  const struct vj_member *first = &launch.members[0], *second = &launch.members[1];
  CHECK(!strcmp(first->log, "/log") && !strcmp(first->env[0], "PATH=/bin") && !*first->env[1] && !first->env[2]);
  CHECK(!strcmp(first->argv[0], "sh") && !*first->argv[1] && !first->argv[2]);
  CHECK(!*second->log && !second->env[0] && !strcmp(second->argv[0], "true") && !second->argv[1]);
  release(&launch);
  free(bytes);
}

/* What was accepted is whole: every list ends, and every string is within the bytes. */
static void check_whole(const struct vj_launch *launch, const char *bytes, size_t count) {
  CHECK(*launch->directory == '/' && *launch->cwd == '/' && launch->member_count);
  CHECK(strspn(launch->name, "0123456789.") == strlen(launch->name) && strlen(launch->name) < VJ_NAME_BYTES);
  for (size_t i = 0; i < launch->member_count; i++) {
    CHECK(launch->members[i].argv[0]);
    for (char **at = launch->members[i].env; *at; at++) CHECK(*at >= bytes && *at < bytes + count);
    for (char **at = launch->members[i].argv; *at; at++) CHECK(*at >= bytes && *at < bytes + count);
  }
}

static void try(const struct words *words, bool *ret_accepted) {
  struct vj_launch launch;
  char text[VJ_TEXT_BYTES], *bytes;
  int error = parse(words, &launch, &bytes, text);
  *ret_accepted = !error;
  if (error)
    CHECK(*text);
  else
    check_whole(&launch, bytes, words->count);
  release(&launch);
  free(bytes);
}

static void test_cut_short(void) {
  struct words words = usual();
  bool accepted;
  for (size_t whole = words.count; words.count-- > 0;) {
    try(&words, &accepted);
    CHECK(!accepted && words.count < whole);
  }
}

static void test_spoilt(void) {
  struct check_random random = {17};
  size_t accepted_ones = 0;
  for (int round = 0; round < ROUNDS; round++) {
    struct words words = usual();
    for (uint64_t spoils = 1 + check_below(&random, 3); spoils; spoils--) {
      size_t at = check_below(&random, words.count), other = check_below(&random, words.count);
      if (check_below(&random, 2))
        words.bytes[at] = (char)check_random(&random);
      else /* a piece of it comes twice */
        memcpy(words.bytes + at, usual().bytes + other, check_below(&random, words.count - (at > other ? at : other)));
    }
    bool accepted;
    try(&words, &accepted);
    accepted_ones += accepted;
  }
  CHECK(accepted_ones > 0 && accepted_ones < ROUNDS);
}

static void test_too_many_members(void) {
  static struct words words;
  static char many[(VJ_MEMBERS_MAX + 1) * 24];
  struct vj_launch launch;
  char text[VJ_TEXT_BYTES];
  words = (struct words){.count = 0};
  static const char *const common[][2] = {
      {"directory", "/d"}, {"name", "1.1"}, {"cwd", "/"}, {"uid", "1"}, {"gid", "1"}};
  for (size_t i = 0; i < 5; i++) say(&words, common[i][0], common[i][1]);
  for (size_t members = VJ_MEMBERS_MAX; members <= VJ_MEMBERS_MAX + 1; members++) {
    size_t used = words.count;
    memcpy(many, words.bytes, used);
    for (size_t i = 0; i < members; i++) {
      memcpy(many + used, "member\0\0arg\0x", 14);
      used += 14;
    }
    memcpy(many + used, "end\0", 5);
    CHECK(vj_launch_parse(many, used + 5, &launch, text) == (members > VJ_MEMBERS_MAX ? -EINVAL : 0));
    release(&launch);
  }
}

int main(void) {
  RUN(test_read_back);
  RUN(test_cut_short);
  RUN(test_spoilt);
  RUN(test_too_many_members);
  return 0;
}
