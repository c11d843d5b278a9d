/*
 * random_program_make.c - makes a random program (random_program.h) of a seed.
 *
 * Operations are drawn one after the other, and each waits for earlier ones only: the sequence is an order in which all
 * of them can be done, so the program ends on any device that runs every stream's work in order. Threads need not call
 * in this order: a wait for a value may be called, with work behind it, long before its thread writes the value. Such a
 * call must not make a later one of its thread wait, so nothing is called earlier than a synchronisation of the whole
 * context, than other work of its stream, or in streams that wait for each other implicitly.
 */
#include "random_program.h"
#include <string.h>

const char *const kind_names[KINDS] = {"kernel",
                                       "burst",
                                       "waves",
                                       "host function",
                                       "callback",
                                       "wait",
                                       "write",
                                       "batch",
                                       "signal",
                                       "wait for signal",
                                       "record",
                                       "wait for event",
                                       "copy",
                                       "memset",
                                       "graph",
                                       "sleep",
                                       "host write",
                                       "poll",
                                       "synchronize stream",
                                       "synchronize event",
                                       "synchronize context",
                                       "query"};

/* How often each kind is drawn, before the seed prefers some of them and leaves others out. */
static const int weights[KINDS] = {
    [KERNEL] = 30,     [BURST] = 6,      [WAVES] = 2,        [HOST_FUNCTION] = 6, [CALLBACK] = 2,   [WAIT] = 12,
    [WRITE] = 5,       [BATCH] = 4,      [SIGNAL] = 2,       [WAIT_SIGNAL] = 3,   [RECORD] = 7,     [WAIT_EVENT] = 9,
    [COPY] = 5,        [MEMSET] = 3,     [GRAPH] = 3,        [SLEEP] = 3,         [HOST_WRITE] = 5, [POLL] = 2,
    [SYNC_STREAM] = 4, [SYNC_EVENT] = 2, [SYNC_CONTEXT] = 1, [QUERY] = 3};

static const int lengths_us[] = KERNEL_LENGTHS_US;
enum { DRAWS_MAX = 20000 };
enum { SHORT_LENGTHS = 2, LENGTHS = sizeof lengths_us / sizeof *lengths_us };

struct maker {
  struct program *program;
  uint64_t state;
  int weight[KINDS];
  int64_t kernels_us, functions_us[THREADS_MAX], sleeps_us[THREADS_MAX], megabytes; /* the rest of each */
  int threads_in[2];
};

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t draw(struct maker *maker) {
  uint64_t z = maker->state += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

static int below(struct maker *maker, int bound) {
  return (int)(draw(maker) % (uint64_t)bound);
}

static bool chance(struct maker *maker, int percent) {
  return below(maker, 100) < percent;
}

static int between(struct maker *maker, int least, int most) {
  return least + below(maker, most - least + 1);
}

static int weighted(struct maker *maker, const int *weight, int count) {
  int sum = 0, at;
  for (int i = 0; i < count; i++) sum += weight[i];
  at = below(maker, sum);
  for (int i = 0; i < count; i++)
    if ((at -= weight[i]) < 0) return i;
  return 0;
}

/* ---- threads, streams, devices ---- */

static bool has_lane(const struct program *program, int thread, int device, enum lane_kind kind) {
  for (int i = 0; i < program->lanes; i++)
    if (program->lane[i].thread == thread && program->lane[i].device == device && program->lane[i].kind == kind)
      return true;
  return false;
}

/* Streams that wait for each other implicitly belong to one thread of a process, the first. */
static void make_lanes(struct maker *maker, int thread, bool implicit) {
  struct program *program = maker->program;
  int count = between(maker, 1, 4);
  for (int i = 0; i < count; i++) {
    struct lane *lane = &program->lane[program->lanes];
    *lane = (struct lane){.thread = thread, .device = below(maker, program->devices)};
    if (implicit) lane->kind = (enum lane_kind)below(maker, 4);
    if (lane->kind > BLOCKING && has_lane(program, thread, lane->device, lane->kind)) lane->kind = BLOCKING;
    program->lanes++;
  }
}

static void make_threads(struct maker *maker) {
  static const int few[] = {40, 35, 25};
  struct program *program = maker->program;
  program->processes = chance(maker, 30) ? 2 : 1;
  program->devices = chance(maker, 35) ? 2 : 1;
  for (int process = 0; process < program->processes; process++) {
    int count = 1 + weighted(maker, few, 3);
    maker->threads_in[process] = count;
    bool implicit = chance(maker, 20);
    for (int i = 0; i < count; i++) {
      program->process_of[program->threads] = process;
      make_lanes(maker, program->threads++, implicit && i == 0);
    }
  }
}

static void make_budgets(struct maker *maker, double scale) {
  maker->kernels_us = (int64_t)(between(maker, 40, 250) * 1000 * scale);
  maker->megabytes = (int64_t)(between(maker, 0, 600) * scale);
  int function_ms = between(maker, 0, 300), sleep_ms = between(maker, 0, 200);
  for (int i = 0; i < maker->program->threads; i++) {
    int of_process = maker->threads_in[maker->program->process_of[i]];
    maker->functions_us[i] = (int64_t)(function_ms * 1000 * scale / of_process);
    maker->sleeps_us[i] = (int64_t)(sleep_ms * 1000 * scale);
  }
  for (int kind = 0; kind < KINDS; kind++) { /* some seeds have much of a kind, others none */
    static const int factors[] = {0, 1, 2, 6}, percents[] = {15, 30, 35, 20};
    maker->weight[kind] = weights[kind] * factors[weighted(maker, percents, 4)];
  }
  if (!maker->weight[KERNEL]) maker->weight[KERNEL] = weights[KERNEL];
}

/* ---- what there is to wait for ---- */

static int make_word(struct maker *maker, int thread, int lane, bool by_host) {
  struct program *program = maker->program;
  struct word *word = &program->word[program->words];
  *word = (struct word){.process = program->process_of[thread], .writer = program->operations, .lane = lane};
  word->on_device = !by_host && chance(maker, 40);
  word->device = word->on_device ? below(maker, program->devices) : 0;
  return program->words++;
}

/* A recent word that this process can read, of another stream if possible; -1: there is none. */
static int choose_word(struct maker *maker, int thread, int lane, bool by_host) {
  struct program *program = maker->program;
  int found = -1, process = program->process_of[thread];
  for (int try = 0; try < 8 && program->words; try++) {
    int recent = chance(maker, 70) && program->words > 6 ? program->words - 6 : 0;
    int index = between(maker, recent, program->words - 1);
    const struct word *word = &program->word[index];
    if (word->on_device && (by_host || word->process != process)) continue;
    if (found < 0 || word->lane != lane) found = index;
    if (word->lane != lane) break;
  }
  return found;
}

static int choose_event(struct maker *maker, int thread, int lane) {
  struct program *program = maker->program;
  int found = -1;
  for (int try = 0; try < 8 && program->events; try++) {
    int recent = chance(maker, 70) && program->events > 6 ? program->events - 6 : 0;
    int index = between(maker, recent, program->events - 1);
    if (program->event[index].process != program->process_of[thread]) continue;
    found = index;
    if (program->event[index].lane != lane) break;
  }
  return found;
}

/* ---- operations ---- */

static int take_sleep_us(struct maker *maker, int64_t *left_us, int least_ms, int most_ms) {
  int us = between(maker, least_ms * 1000, most_ms * 1000);
  if (*left_us < us) return 0;
  *left_us -= us;
  return us;
}

static bool take_kernels(struct maker *maker, struct lane *lane, int count, int us) {
  if (lane->launches + count > LAUNCHES_MAX) return false;
  lane->launches += count;
  maker->kernels_us -= (int64_t)count * us;
  return true;
}

static bool make_node(struct maker *maker, struct graph *graph, struct node *node, int thread) {
  struct lane *lane = &maker->program->lane[graph->lane];
  static const int weight[] = {[KERNEL] = 50, [HOST_FUNCTION] = 15, [BATCH] = 15, [WAIT_EVENT] = 12, [MEMSET] = 8};
  node->kind = (enum kind)weighted(maker, weight, sizeof weight / sizeof *weight);
  node->wait = node->word = node->target = -1;
  switch (node->kind) {
  case KERNEL:
    node->amount = lengths_us[below(maker, LENGTHS)];
    graph->kernels++;
    graph->kernels_us += (uint64_t)node->amount;
    return true;
  case HOST_FUNCTION:
    node->amount = take_sleep_us(maker, &maker->functions_us[thread], 1, 10);
    return node->amount > 0;
  case BATCH:
    if (graph->captured) return false; /* values cannot be captured */
    node->wait = choose_word(maker, thread, graph->lane, false);
    if (node->wait < 0 || chance(maker, 50)) node->word = make_word(maker, thread, graph->lane, false);
    return true;
  case WAIT_EVENT:
    node->target = choose_event(maker, thread, graph->lane);
    return node->target >= 0;
  default:
    node->amount = between(maker, 1, 64);
    if (lane->megabytes < node->amount) lane->megabytes = node->amount;
    graph->kernels++; /* takes a place in the queue as a kernel does */
    return true;
  }
}

/* Nodes wait for and write what this operation, its first launch, may. */
static int make_graph(struct maker *maker, int thread, int lane) {
  struct program *program = maker->program;
  struct graph *graph = &program->graph[program->graphs];
  if (program->graphs == GRAPHS_MAX) return -1;
  *graph = (struct graph){.lane = lane, .captured = chance(maker, 40)};
  int count = between(maker, 2, NODES_MAX);
  for (int i = 0; i < count; i++) {
    struct node *node = &graph->nodes[graph->count];
    if (!make_node(maker, graph, node, thread)) continue;
    node->after = graph->count == 0 ? -1 : chance(maker, 75) ? graph->count - 1 : below(maker, graph->count);
    graph->count++;
  }
  return graph->count ? program->graphs++ : -1;
}

static bool make_graph_launch(struct maker *maker, struct operation *operation) {
  struct program *program = maker->program;
  operation->target = -1;
  for (int i = 0; i < program->graphs; i++)
    if (program->graph[i].lane == operation->lane && chance(maker, 60)) operation->target = i;
  if (operation->target < 0) operation->target = make_graph(maker, operation->thread, operation->lane);
  if (operation->target < 0) return false;
  const struct graph *graph = &program->graph[operation->target];
  struct lane *lane = &program->lane[operation->lane];
  if (lane->launches + graph->kernels > LAUNCHES_MAX) return false;
  lane->launches += graph->kernels;
  maker->kernels_us -= (int64_t)graph->kernels_us;
  return true;
}

static bool make_work(struct maker *maker, struct operation *operation, struct lane *lane) {
  static const int megabytes[] = {1, 4, 16, 64, 200}, sizes[] = {30, 30, 25, 12, 3};
  int length = lengths_us[between(maker, 1, LENGTHS - 1)];
  switch (operation->kind) {
  case KERNEL:
    operation->amount = length;
    return take_kernels(maker, lane, 1, length);
  case BURST:
    operation->amount = lengths_us[below(maker, SHORT_LENGTHS + 1)];
    operation->count = between(maker, 5, 40);
    return take_kernels(maker, lane, operation->count, operation->amount);
  case WAVES:
    operation->amount = between(maker, 1, 100);
    return take_kernels(maker, lane, 1, 2 + 2 * operation->amount);
  case HOST_FUNCTION:
  case CALLBACK:
    operation->amount = take_sleep_us(maker, &maker->functions_us[operation->thread], 1, 30);
    if (operation->amount && chance(maker, 40))
      operation->word = make_word(maker, operation->thread, operation->lane, true);
    return operation->amount > 0;
  case COPY:
    operation->amount = megabytes[weighted(maker, sizes, 5)];
    operation->count = below(maker, 3);
    if (maker->megabytes < operation->amount) return false;
    maker->megabytes -= operation->amount;
    if (lane->megabytes < operation->amount) lane->megabytes = operation->amount;
    return true;
  case MEMSET:
    operation->amount = between(maker, 1, 64);
    if (lane->megabytes < operation->amount) lane->megabytes = operation->amount;
    return take_kernels(maker, lane, 1, 0);
  default:
    return make_graph_launch(maker, operation);
  }
}

static bool make_signal(struct maker *maker, struct operation *operation) {
  struct program *program = maker->program;
  int thread = operation->thread, lane = operation->lane;
  switch (operation->kind) {
  case WRITE:
    operation->word = make_word(maker, thread, lane, false);
    return true;
  case SIGNAL:
    operation->target = program->semaphores;
    if (program->semaphores == SEMAPHORES_MAX) return false;
    program->signaller[program->semaphores++] = program->operations;
    return true;
  case RECORD:
    operation->target = program->events;
    if (program->events == EVENTS_MAX) return false;
    program->event[program->events++] = (struct event){lane, program->operations, program->process_of[thread]};
    return true;
  default: /* HOST_WRITE */
    operation->word = make_word(maker, thread, -1, true);
    return true;
  }
}

static bool make_wait(struct maker *maker, struct operation *operation) {
  struct program *program = maker->program;
  int thread = operation->thread, lane = operation->lane;
  switch (operation->kind) {
  case WAIT:
  case POLL:
    operation->waits[0] = choose_word(maker, thread, lane, operation->kind == POLL);
    return operation->waits[0] >= 0;
  case BATCH:
    for (int i = 0; i < BATCH_WAITS_MAX; i++) operation->waits[i] = choose_word(maker, thread, lane, false);
    if (chance(maker, 50)) operation->waits[1] = -1;
    operation->word = make_word(maker, thread, lane, false);
    return true;
  case WAIT_SIGNAL:
    operation->target = program->semaphores ? below(maker, program->semaphores) : -1;
    return operation->target >= 0;
  default: /* WAIT_EVENT, SYNC_EVENT */
    operation->target = choose_event(maker, thread, lane);
    return operation->target >= 0;
  }
}

static bool make_operation(struct maker *maker, struct operation *operation) {
  struct program *program = maker->program;
  struct lane *lane = &program->lane[operation->lane];
  switch (operation->kind) {
  case WRITE:
  case SIGNAL:
  case RECORD:
  case HOST_WRITE:
    return make_signal(maker, operation);
  case WAIT:
  case POLL:
  case BATCH:
  case WAIT_SIGNAL:
  case WAIT_EVENT:
  case SYNC_EVENT:
    return make_wait(maker, operation);
  case SLEEP:
    operation->amount = take_sleep_us(maker, &maker->sleeps_us[operation->thread], 1, 20);
    return operation->amount > 0;
  case SYNC_CONTEXT: /* else it would wait for what another thread has called early */
    return maker->threads_in[program->process_of[operation->thread]] == 1;
  case SYNC_STREAM:
  case QUERY:
    return true;
  default:
    return make_work(maker, operation, lane);
  }
}

/* ---- in which order threads call ---- */

static bool may_be_called_early(const struct program *program, const struct operation *operation) {
  switch (operation->kind) {
  case KERNEL:
  case BURST:
  case WAVES:
  case HOST_FUNCTION:
  case CALLBACK:
  case WAIT:
  case WRITE:
  case BATCH:
  case SIGNAL:
  case WAIT_SIGNAL:
  case RECORD:
  case COPY:
  case MEMSET:
    return program->lane[operation->lane].kind == NON_BLOCKING;
  default: /* what waits in the host for another thread's call, or for the device */
    return false;
  }
}

static bool comes_before(const struct operation *one, const struct operation *other) {
  bool in_lane = one->kind < SLEEP || one->kind == SYNC_STREAM || one->kind == QUERY;
  return one->thread == other->thread && (one->kind == SYNC_CONTEXT || (in_lane && one->lane == other->lane));
}

static void make_order(struct maker *maker) {
  struct program *program = maker->program;
  for (int i = 0; i < program->operations; i++) {
    const struct operation *operation = &program->operation[i];
    int place = i;
    bool waits = operation->kind == WAIT || operation->kind == WAIT_SIGNAL || operation->kind == BATCH;
    if (chance(maker, waits ? 50 : 25) && may_be_called_early(program, operation))
      while (place > 0 && !comes_before(&program->operation[program->order[place - 1]], operation)) place--;
    memmove(&program->order[place + 1], &program->order[place], (size_t)(i - place) * sizeof *program->order);
    program->order[place] = i;
  }
}

/* Draws one. What could not be made leaves nothing that a later one might wait for. */
static void add_operation(struct maker *maker) {
  struct program *program = maker->program;
  struct operation *operation = &program->operation[program->operations];
  int lane = below(maker, program->lanes), words = program->words, graphs = program->graphs;
  *operation = (struct operation){.lane = lane, .thread = program->lane[lane].thread, .target = -1, .word = -1};
  operation->waits[0] = operation->waits[1] = -1;
  operation->variant = below(maker, 8);
  operation->kind = (enum kind)weighted(maker, maker->weight, KINDS);
  if (make_operation(maker, operation)) {
    program->operations++;
  } else {
    program->words = words;
    program->graphs = graphs;
  }
}

void make_program(struct program *program, uint64_t seed, double scale) {
  memset(program, 0, sizeof *program);
  program->seed = seed;
  struct maker maker = {.program = program, .state = seed};
  make_threads(&maker);
  make_budgets(&maker, scale);
  for (int i = 0; i < DRAWS_MAX && maker.kernels_us > 0 && program->operations < OPERATIONS_MAX; i++)
    add_operation(&maker);
  make_order(&maker);
}

/* ---- for people ---- */

void print_operation(FILE *file, const struct program *program, int number) {
  static const char *const lane_kinds[] = {"non-blocking", "blocking", "legacy", "per-thread"};
  const struct operation *operation = &program->operation[number];
  const struct lane *lane = &program->lane[operation->lane];
  fprintf(file, "%d: thread %d of process %d, stream %d (%s, device %d): %s", number, operation->thread,
          program->process_of[operation->thread], operation->lane, lane_kinds[lane->kind], lane->device,
          kind_names[operation->kind]);
  if (operation->amount) fprintf(file, " %d", operation->amount);
  if (operation->count) fprintf(file, " x %d", operation->count);
  if (operation->target >= 0) fprintf(file, " #%d", operation->target);
  for (int i = 0; i < BATCH_WAITS_MAX; i++)
    if (operation->waits[i] >= 0)
      fprintf(file, " for word %d of %d", operation->waits[i], program->word[operation->waits[i]].writer);
  if (operation->word >= 0) fprintf(file, " writes word %d", operation->word);
  fprintf(file, "\n");
}

static void print_graph(FILE *file, const struct graph *graph, int number) {
  fprintf(file, "graph %d%s for stream %d:", number, graph->captured ? " (captured)" : "", graph->lane);
  for (int i = 0; i < graph->count; i++) {
    const struct node *node = &graph->nodes[i];
    fprintf(file, " %s", kind_names[node->kind]);
    if (node->amount) fprintf(file, " %d", node->amount);
    if (node->wait >= 0) fprintf(file, " for word %d", node->wait);
    if (node->word >= 0) fprintf(file, " writes word %d", node->word);
    if (node->target >= 0) fprintf(file, " #%d", node->target);
    fprintf(file, i + 1 < graph->count ? "," : "\n");
  }
}

void print_program(FILE *file, const struct program *program) {
  fprintf(file, "seed %llu: %d processes, %d threads, %d streams, %d devices\n", (unsigned long long)program->seed,
          program->processes, program->threads, program->lanes, program->devices);
  for (int i = 0; i < program->graphs; i++) print_graph(file, &program->graph[i], i);
  for (int i = 0; i < program->operations; i++) print_operation(file, program, program->order[i]);
}
