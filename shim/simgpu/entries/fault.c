/*
 * fault.c - see fault.h. Counts are atomic: the call that fails is the N-th in the order in which threads come here.
 */
#define _GNU_SOURCE
#include "simgpu/entries/fault.h"
#include "simgpu/base/strict.h"
#include "simgpu/entries/names.h"
#include "simgpu/process/current.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS_MAX 256

struct request {
  bool forms[VG_ENTRY_COUNT]; /* the entry points that it means */
  uint64_t number;            /* of the call that fails; 0: each */
  uint64_t calls;             /* so far */
  CUresult code;
};

uint32_t sim_faults = 1;
static struct request *requests;
static int request_count;
static uint64_t calls[VG_ENTRY_COUNT];
static const char *count_path;
static pthread_once_t looked = PTHREAD_ONCE_INIT;

static void write_counts(void) {
  FILE *file = fopen(count_path, "we");
  if (!file) return;
  for (int i = 0; i < VG_ENTRY_COUNT; i++)
    if (calls[i]) fprintf(file, "%s %llu\n", vg_entry_name(i), (unsigned long long)calls[i]);
  fclose(file);
}

/* Whether an entry point is a form of a name: the name itself, or with version and per-thread suffix behind it. */
static bool is_form(const char *entry, const char *name, size_t length) {
  if (length == 1 && *name == '*') return true;
  if (strncmp(entry, name, length) != 0) return false;
  const char *rest = entry + length;
  if (rest[0] == '_' && rest[1] == 'v') rest += 2 + strspn(rest + 2, "0123456789");
  return !*rest || strcmp(rest, "_ptsz") == 0 || strcmp(rest, "_ptds") == 0;
}

static bool read_code(const char *text, CUresult *ret_code) {
  for (unsigned i = 0; i < sim_error_count; i++)
    if (strcmp(sim_errors[i].name, text) == 0) return *ret_code = (CUresult)sim_errors[i].code, true;
  char *end;
  *ret_code = (CUresult)strtol(text, &end, 10);
  return *text && !*end;
}

static bool read_number(const char *text, uint64_t *ret_number) {
  char *end;
  *ret_number = strcmp(text, "*") == 0 ? 0 : strtoull(text, &end, 10);
  return strcmp(text, "*") == 0 || (*text && !*end && *ret_number);
}

static bool read_request(char *text, struct request *request) {
  char *number = strchr(text, ':'), *code = number ? strchr(number, '=') : NULL;
  if (!code) return false;
  *number++ = *code++ = '\0';
  bool known = false;
  for (int i = 0; i < VG_ENTRY_COUNT; i++) known |= request->forms[i] = is_form(vg_entry_name(i), text, strlen(text));
  return known && read_number(number, &request->number) && read_code(code, &request->code);
}

static void read_requests(const char *setting) {
  char *words = strdup(setting), *rest = words;
  requests = calloc(REQUESTS_MAX, sizeof *requests);
  for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
    if (request_count < REQUESTS_MAX && read_request(word, &requests[request_count++])) continue;
    fprintf(stderr, "simulated driver: VGPU_SIM_FAIL=%s is not NAME:N=CODE[,...]\n", setting);
    exit(2);
  }
  free(words);
}

static void look(void) {
  const char *setting = getenv("VGPU_SIM_FAIL");
  count_path = getenv("VGPU_SIM_COUNT_CALLS");
  if (setting && *setting) read_requests(setting);
  if (count_path && *count_path) atexit(write_counts);
  const char *strict = getenv("VGPU_SIM_STRICT");
  if (strict) sim_strict_begin(strict);
  VG_STORE(&sim_faults, (setting && *setting) || (count_path && *count_path) || sim_strict);
}

/* Where a program learns of faults of its kernels. */
static bool tells_faults(const char *entry) {
  return strncmp(entry, "cuLaunch", 8) == 0 || strncmp(entry, "cuGraphLaunch", 13) == 0 ||
         strstr(entry, "Synchronize") || strncmp(entry, "cuStreamQuery", 13) == 0 || strcmp(entry, "cuEventQuery") == 0;
}

int sim_fault(enum vg_entry entry) {
  pthread_once(&looked, look);
  sim_strict_call = vg_entry_name(entry);
  __atomic_fetch_add(&calls[entry], 1, __ATOMIC_RELAXED);
  int code = SIM_NO_FAULT;
  for (int i = 0; i < request_count; i++) {
    struct request *request = &requests[i];
    if (!request->forms[entry]) continue;
    uint64_t call = __atomic_add_fetch(&request->calls, 1, __ATOMIC_RELAXED);
    if (code == SIM_NO_FAULT && (!request->number || request->number == call)) code = (int)request->code;
  }
  if (code != SIM_NO_FAULT && tells_faults(vg_entry_name(entry))) sim_fault_struck((CUresult)code);
  return code;
}
