/*
 * ledger.c - the stress of the memory ledger. Linked to libcuda.so.1; run by benchmarks/ledger.py in a slice.
 *
 *   ledger THREADS SEED [FAMILY...]
 *                               each line on stdin, a number, has every thread do so many operations; then all meet,
 *                               the primary context is reset at times, everything is synchronised, and a line is
 *                               printed: what was done, what is shown. LEDGER_SHELF names the file of what is shared.
 *   ledger once                 one object of every family, made and dropped in turn, whatever a call answers, beside
 *                               a child that shares; a reset; a line; waits for the end of stdin
 *   ledger large BYTES          an object of so many bytes of every family: a line, family -> how many of its calls
 *                               were refused as out of memory
 */
#define _GNU_SOURCE
#include "ledger.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS_MAX 16
#define MIB (1ull << 20)
#define RESET_EVERY 4 /* quiet points, on average */

bool forgiving;
static struct worker workers[THREADS_MAX];
static unsigned threads;
static pid_t peer;          /* of "once": the child that shares */
static char **wanted_names; /* of families; none: all of them */
static uint64_t round_operations;
static unsigned resets; /* of the primary context: a thread that sees a new one enters again */
static pthread_barrier_t begin_barrier, end_barrier;

/* What one worker leaves for another to drop: memory is often freed by another thread than the one that took it. */
static pthread_mutex_t mailbox_lock = PTHREAD_MUTEX_INITIALIZER;
static struct object mailbox[8];

static void die(const char *call, CUresult code) {
  fprintf(stderr, "%s: %d\n", call, (int)code);
  exit(1);
}

bool may(struct worker *worker, CUresult code, const char *call) {
  if (code == CUDA_SUCCESS) return true;
  if (code == CUDA_ERROR_OUT_OF_MEMORY)
    worker->refused++;
  else if (code == CUDA_ERROR_NOT_SUPPORTED)
    worker->unsupported++;
  else if (!forgiving)
    die(call, code);
  return false;
}

bool must(CUresult code, const char *call) {
  if (code == CUDA_SUCCESS) return true;
  if (!forgiving || !call) die(call ? call : "a second try", code);
  return false;
}

uint64_t draw(struct worker *worker, uint64_t below) {
  worker->random ^= worker->random << 13;
  worker->random ^= worker->random >> 7;
  worker->random ^= worker->random << 17;
  return worker->random % below;
}

uint64_t draw_bytes(struct worker *worker) {
  switch (draw(worker, 4)) {
  case 0:
    return 1 + draw(worker, 4096);
  case 1:
    return 1 + draw(worker, 2 * MIB);
  case 2:
    return (1 + draw(worker, 16)) * 2 * MIB;
  default:
    return 1 + draw(worker, 40 * MIB);
  }
}

static bool wanted(const struct family *family) {
  for (char **name = wanted_names; *name; name++)
    if (strcmp(*name, family->name) == 0) return true;
  return !*wanted_names;
}

static const struct family *draw_family(struct worker *worker) {
  uint64_t all = 0;
  for (unsigned i = 0; i < family_count; i++) all += wanted(&families[i]) ? families[i].weight : 0;
  uint64_t left = draw(worker, all);
  const struct family *family = families;
  for (; !wanted(family) || left >= family->weight; family++) left -= wanted(family) ? family->weight : 0;
  return family;
}

static void drop(struct worker *worker, struct object *object) {
  object->family->drop(worker, object);
  object->family = NULL;
}

static void make(struct worker *worker, struct object *object, const struct family *family) {
  *object = (struct object){.bytes = draw_bytes(worker)};
  if (family->make(worker, object)) object->family = family;
}

static void swap_with_mailbox(struct worker *worker, struct object *object) {
  pthread_mutex_lock(&mailbox_lock);
  struct object *place = &mailbox[draw(worker, sizeof mailbox / sizeof mailbox[0])];
  struct object theirs = *place;
  *place = *object;
  *object = theirs;
  pthread_mutex_unlock(&mailbox_lock);
}

static void operate(struct worker *worker) {
  struct object *object = &worker->objects[draw(worker, OBJECTS_MAX)];
  worker->operations++;
  if (!draw(worker, 40)) (void)MAY(cuStreamSynchronize(worker->streams[draw(worker, STREAMS)]));
  if (!draw(worker, 60) && worker->pool) (void)MAY(cuMemPoolTrimTo(worker->pool, draw(worker, 3) * 2 * MIB));
  if (!draw(worker, 12)) swap_with_mailbox(worker, object);
  if (object->family)
    drop(worker, object);
  else
    make(worker, object, draw_family(worker));
}

/* Again after each reset; a pool is the device's, and stays. */
static void enter(struct worker *worker) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  cuuint64_t threshold = 8 * MIB;
  worker->resets = resets;
  MUST(cuDevicePrimaryCtxRetain(&worker->context, 0));
  MUST(cuCtxSetCurrent(worker->context));
  for (int i = 0; i < STREAMS; i++) MUST(cuStreamCreate(&worker->streams[i], i ? CU_STREAM_NON_BLOCKING : 0));
  MUST(cuStreamCreate(&worker->capturing, CU_STREAM_NON_BLOCKING));
  if (worker->pool) return;
  if (!MAY(cuMemPoolCreate(&worker->pool, &props))) worker->pool = NULL;
  if (worker->pool) (void)MAY(cuMemPoolSetAttribute(worker->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
}

static void *work(void *argument) {
  struct worker *worker = argument;
  enter(worker);
  for (;;) {
    pthread_barrier_wait(&begin_barrier);
    if (worker->resets != resets) enter(worker);
    for (uint64_t left = round_operations; left; left--) operate(worker);
    for (int i = 0; i < OBJECTS_MAX; i++) /* leaves memory for the context of a process started after a kill */
      if (worker->objects[i].family && draw(worker, 4)) drop(worker, &worker->objects[i]);
    for (int i = 0; i < STREAMS; i++) MUST(cuStreamSynchronize(worker->streams[i]));
    pthread_barrier_wait(&end_barrier);
  }
  return NULL;
}

/* What ends with the context is left to it; the rest is released before. */
static void drop_before_reset(struct worker *worker, struct object *objects, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (objects[i].family && !objects[i].family->of_primary) drop(worker, &objects[i]);
    objects[i].family = NULL;
  }
}

/* While no other thread does anything. Others may take what becomes free, so that the new context waits for memory. */
static void reset_primary(struct worker *worker) {
  MUST(cuDevicePrimaryCtxReset_v2(0));
  resets++;
  while (!MAY(cuDevicePrimaryCtxRetain(&worker->context, 0))) usleep(1000);
  MUST(cuCtxSetCurrent(worker->context));
}

static void sometimes_reset(struct worker *worker) {
  if (draw(worker, RESET_EVERY)) return;
  for (unsigned i = 0; i < threads; i++) drop_before_reset(worker, workers[i].objects, OBJECTS_MAX);
  drop_before_reset(worker, mailbox, sizeof mailbox / sizeof mailbox[0]);
  reset_primary(worker);
}

static void quiet(void) {
  size_t free_bytes = 0, total_bytes = 0;
  uint64_t operations = 0, refused = 0, unsupported = 0, opened = 0, objects = 0;
  MUST(cuCtxSynchronize());
  for (int looks = 0; looks < 2; looks++) /* and the ledger looks at the pools, again where the driver did not say */
    MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  for (unsigned i = 0; i < threads; i++) {
    operations += workers[i].operations;
    refused += workers[i].refused;
    unsupported += workers[i].unsupported;
    opened += workers[i].opened;
    for (int j = 0; j < OBJECTS_MAX; j++) objects += workers[i].objects[j].family != NULL;
  }
  printf("{\"event\": \"quiet\", \"pid\": %d, \"operations\": %" PRIu64 ", \"refused\": %" PRIu64
         ", \"unsupported\": %" PRIu64 ", \"opened\": %" PRIu64 ", \"resets\": %u, \"objects\": %" PRIu64
         ", \"free_bytes\": %zu, \"total_bytes\": %zu, \"peer\": %d}\n",
         getpid(), operations, refused, unsupported, opened, resets, objects, free_bytes, total_bytes, (int)peer);
  fflush(stdout);
}

static void begin(struct worker *worker, unsigned index, uint64_t seed) {
  worker->index = index;
  worker->random = (seed * 1000003 + index + 1) * 0x9E3779B97F4A7C15ull | 1;
}

static int stress(uint64_t seed) {
  char line[64];
  struct worker own = {0}, *worker = &own;
  begin(worker, THREADS_MAX, seed);
  MUST(cuInit(0));
  while (!MAY(cuDevicePrimaryCtxRetain(&own.context, 0))) usleep(1000); /* others may have taken all of the slice */
  MUST(cuCtxSetCurrent(own.context));
  pthread_barrier_init(&begin_barrier, NULL, threads + 1);
  pthread_barrier_init(&end_barrier, NULL, threads + 1);
  for (unsigned i = 0; i < threads; i++) {
    pthread_t thread;
    begin(&workers[i], i, seed);
    if (pthread_create(&thread, NULL, work, &workers[i])) return 1;
  }
  quiet();
  while (fgets(line, sizeof line, stdin)) {
    round_operations = strtoull(line, NULL, 10);
    pthread_barrier_wait(&begin_barrier);
    pthread_barrier_wait(&end_barrier);
    sometimes_reset(worker);
    quiet();
  }
  _exit(0); /* the threads stand at the barrier */
}

/* ---- once ---- */

static void one_of_each(struct worker *worker, struct object *objects) {
  for (unsigned i = 0; i < family_count; i++) make(worker, &objects[i], &families[i]);
}

static void drop_each_other(struct worker *worker, struct object *objects, unsigned first) {
  for (unsigned i = first; i < family_count; i += 2)
    if (objects[i].family) drop(worker, &objects[i]);
}

/* The child: offers what can be shared, until the parent writes; drops some, answers, and ends with the parent. */
static void share(struct worker *worker, int words) {
  const char *counts = getenv("VGPU_SIM_COUNT_CALLS"); /* a file of its own */
  char path[256], word = 'w';
  snprintf(path, sizeof path, "%s.peer", counts ? counts : "");
  if (counts) setenv("VGPU_SIM_COUNT_CALLS", path, 1);
  MUST(cuInit(0));
  enter(worker);
  for (unsigned i = 0; i < family_count; i++)
    if (strncmp(families[i].name, "shared", 6) == 0) make(worker, &worker->objects[i], &families[i]);
  while (write(words, &word, 1) == 1 && read(words, &word, 1) == 1) drop_each_other(worker, worker->objects, 0);
  exit(0);
}

static void start_peer(struct worker *worker, int *ret_words) {
  int ends[2];
  char word;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || (peer = fork()) < 0) exit(1);
  *ret_words = ends[peer == 0];
  close(ends[peer != 0]);
  if (peer == 0) share(worker, *ret_words);
  if (read(*ret_words, &word, 1) != 1) exit(1);
}

static int once(void) {
  static struct object objects[3][64];
  struct worker *worker = &workers[0];
  int words;
  char word = 'w';
  forgiving = true;
  threads = 1;
  begin(worker, 0, 1);
  start_peer(worker, &words);
  MUST(cuInit(0));
  enter(worker);
  for (unsigned pass = 0; pass < 3; pass++) {
    one_of_each(worker, objects[pass]);
    if (pass < 2) drop_each_other(worker, objects[pass], pass);
  }
  if (write(words, &word, 1) != 1 || read(words, &word, 1) != 1) return 1;
  for (unsigned pass = 0; pass < 2; pass++) drop_before_reset(worker, objects[pass], family_count);
  drop_before_reset(worker, objects[2], family_count);
  reset_primary(worker);
  enter(worker);
  one_of_each(worker, objects[0]);
  drop_each_other(worker, objects[0], 1);
  for (int i = 0; i < STREAMS; i++) MUST(cuStreamSynchronize(worker->streams[i]));
  quiet();
  return getchar() != EOF;
}

static int large(uint64_t bytes) {
  struct worker *worker = &workers[0];
  begin(worker, 0, 1);
  MUST(cuInit(0));
  enter(worker);
  printf("{\"event\": \"large\"");
  for (unsigned i = 0; i < family_count; i++) {
    if (families[i].takes_no_memory) continue;
    struct object object = {.bytes = bytes};
    uint64_t before = worker->refused;
    if (families[i].make(worker, &object)) families[i].drop(worker, &object);
    printf(", \"%s\": %" PRIu64, families[i].name, worker->refused - before);
  }
  printf("}\n");
  return 0;
}

int main(int count, char **words) {
  shelf_open(getenv("LEDGER_SHELF"));
  if (count == 2 && strcmp(words[1], "once") == 0) return once();
  if (count == 3 && strcmp(words[1], "large") == 0) return large(strtoull(words[2], NULL, 10));
  if (count < 3) return 2;
  wanted_names = words + 3;
  threads = (unsigned)atoi(words[1]);
  return threads && threads <= THREADS_MAX ? stress(strtoull(words[2], NULL, 10)) : 2;
}
