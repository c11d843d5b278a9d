/* args.c - reads the command line of an OCI runtime (runc's, crun's) as far as it concerns us. Called by main.c.
 *
 * Nothing is checked here: the low-level runtime gets the same arguments and reports errors. The spellings of runc
 * (`-bundle X`, `--bundle=X`) and of crun (`-bX`, `-dbX`, `--bund X`) are read. */
#include "runtime/runtime.h"

#include <string.h>

/* Options whose value may be the next word. */
static const char *const global_valued[] = {"log",  "log-format",     "log-level", "root",
                                            "criu", "cgroup-manager", "rootless",  NULL};
static const char *const global_plain[] = {"debug", "systemd-cgroup", "help", "h", "version", "v", "V", "usage", NULL};
static const char *const create_valued[] = {
    "bundle", "b", "config", "f", "console-socket", "pid-file", "pidfd-socket", "preserve-fds", NULL};
/* Commands of runc and crun: distinguishes a command from the value of an option that we do not know. */
static const char *const commands[] = {"checkpoint", "create", "delete", "events", "exec",  "features", "help",
                                       "init",       "kill",   "list",   "mounts", "pause", "ps",       "restore",
                                       "resume",     "run",    "spec",   "start",  "state", "update",   NULL};

static bool is_one_of(const char *word, size_t length, const char *const *list) {
  for (; *list; list++)
    if (strlen(*list) == length && !strncmp(word, *list, length)) return true;
  return false;
}

/* A word that begins with a dash, taken apart. */
struct option {
  const char *name;
  size_t name_length;
  const char *value; /* behind `=`; NULL: none */
};

static struct option option_of(const char *word) {
  struct option option = {.name = word + 1 + (word[1] == '-')};
  option.name_length = strcspn(option.name, "=");
  if (option.name[option.name_length] == '=') option.value = option.name + option.name_length + 1;
  return option;
}

static bool is(const struct option *option, const char *name) {
  return strlen(name) == option->name_length && !strncmp(option->name, name, option->name_length);
}

/* Whether the option is one of the list; crun takes the beginning of a long name for it, which is written out then. */
static bool resolve(struct option *option, const char *word, const char *const *list) {
  if (is_one_of(option->name, option->name_length, list)) return true;
  for (; word[1] == '-' && option->name_length && *list; list++)
    if (!strncmp(*list, option->name, option->name_length)) {
      option->name = *list;
      option->name_length = strlen(*list);
      return true;
    }
  return false;
}

static void take_global(const struct option *option, struct vr_call *call) {
  if (is(option, "log")) call->log_path = option->value;
  if (is(option, "log-format")) call->log_is_json = !strcmp(option->value, "json");
}

/* Returns the index of the subcommand, or argc. */
static int parse_global(int argc, char **argv, struct vr_call *call) {
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] != '-' || !argv[i][1]) return i;
    if (!strcmp(argv[i], "--")) return i + 1;
    struct option option = option_of(argv[i]);
    bool is_valued = resolve(&option, argv[i], global_valued);
    if (!option.value && i + 1 < argc) {
      const char *next = argv[i + 1];
      bool is_known = is_valued || is_one_of(option.name, option.name_length, global_plain);
      /* An option of some other runtime: what follows is its value unless it is a command. */
      bool is_guess = !is_known && next[0] != '-' && !is_one_of(next, strlen(next), commands);
      if (is_valued || is_guess) {
        option.value = next;
        i++;
      }
    }
    if (is_valued && option.value) take_global(&option, call);
  }
  return argc;
}

/* crun's short options in one word, the value behind or in the next word: `-b/path`, `-db`. */
static bool split_short(const char *word, struct option *option) {
  size_t at = 1 + strspn(word + 1, "d");
  if (!word[at] || !strchr("bf", word[at])) return false;
  if (is_one_of(option->name, option->name_length, create_valued)) return false;
  *option = (struct option){.name = word + at, .name_length = 1, .value = word[at + 1] ? word + at + 1 : NULL};
  return true;
}

static void parse_create(int argc, char **argv, struct vr_call *call) {
  for (int i = 0; i < argc; i++) {
    if (argv[i][0] != '-' || !argv[i][1] || !strcmp(argv[i], "--")) {
      i += !strcmp(argv[i], "--");
      if (i < argc && argv[i][0]) call->id = argv[i];
      return;
    }
    struct option option = option_of(argv[i]);
    bool is_valued = split_short(argv[i], &option) || resolve(&option, argv[i], create_valued);
    if (is_valued && !option.value && i + 1 < argc) option.value = argv[++i];
    if (is(&option, "help") || is(&option, "h")) return;
    if (!is_valued || !option.value) continue;
    if (is(&option, "bundle") || is(&option, "b")) call->bundle = option.value;
    if (is(&option, "config") || is(&option, "f")) call->config = option.value;
  }
}

void vr_call_parse(int argc, char **argv, struct vr_call *ret_call) {
  *ret_call = (struct vr_call){0};
  int at = parse_global(argc, argv, ret_call);
  if (at >= argc) return;
  ret_call->subcommand = argv[at];
  if (strcmp(ret_call->subcommand, "create") && strcmp(ret_call->subcommand, "run")) return;
  parse_create(argc - at - 1, argv + at + 1, ret_call);
  ret_call->makes_container = ret_call->id != NULL;
}
