/* cudnn_graph: cuDNN's graph interface as PyTorch's frontend uses it: from tensors to plans that run, and what it
 * refuses. */
#include "cudnn.h"

int cudnnBackendCreateDescriptor(int type, void **descriptor);
int cudnnBackendDestroyDescriptor(void *descriptor);
int cudnnBackendSetAttribute(void *descriptor, int name, int type, int64_t count, const void *elements);
int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t requested, int64_t *count, void *elements);
int cudnnBackendFinalize(void *descriptor);
int cudnnBackendExecute(void *handle, void *plan, void *pack);

enum { CONVOLUTION = 1, ENGINE, ENGINECFG, ENGINEHEUR, PLAN, CONVOLUTION_FORWARD = 10, GRAPH = 15, PACK, TENSOR };
enum { POINTWISE = 0, MATMUL = 18, OP_POINTWISE = 13, OP_MATMUL = 19 };
enum { T_HANDLE, T_DATA_TYPE, T_BOOLEAN, T_INT64, T_FLOAT, T_DOUBLE, T_POINTER, T_CONVOLUTION_MODE, T_HEUR_MODE };
enum { T_NUMERICAL_NOTE = 11, T_POINTWISE_MODE = 14, T_DESCRIPTOR = 15, T_BEHAVIOR_NOTE = 19, T_INT32 = 23 };

static void *handle;

static void *make(int type) {
  void *made;
  SAYS(OK, cudnnBackendCreateDescriptor(type, &made));
  return made;
}

static void set(void *descriptor, int name, int type, int64_t count, const void *elements) {
  SAYS(OK, cudnnBackendSetAttribute(descriptor, name, type, count, elements));
}

static void set_one(void *descriptor, int name, void *other) {
  set(descriptor, name, T_DESCRIPTOR, 1, &other);
}

static void *finalize(void *descriptor) {
  SAYS(OK, cudnnBackendFinalize(descriptor));
  return descriptor;
}

static int64_t next_id;

static void *make_tensor(int type, bool is_virtual, const int64_t *dims) {
  int64_t strides[4] = {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}, alignment = 16, id = ++next_id;
  void *tensor = make(TENSOR);
  set(tensor, 900, T_INT64, 1, &alignment);
  set(tensor, 901, T_DATA_TYPE, 1, &type);
  set(tensor, 902, T_INT64, 4, dims);
  set(tensor, 903, T_INT64, 4, strides);
  set(tensor, 906, T_INT64, 1, &id);
  set(tensor, 907, T_BOOLEAN, 1, &is_virtual);
  return finalize(tensor);
}

/* A convolution of 118.4e9 operations. */
static void *make_convolution(int type, void *x, int64_t pixels) {
  const int64_t one[] = {1, 1}, rank = 2;
  const int compute = FLOAT, mode = 1;
  void *operation = make(CONVOLUTION_FORWARD), *convolution = make(CONVOLUTION);
  set(convolution, 100, T_DATA_TYPE, 1, &compute);
  set(convolution, 101, T_CONVOLUTION_MODE, 1, &mode);
  for (int name = 102; name <= 105; name++) set(convolution, name, T_INT64, 2, one);
  set(convolution, 106, T_INT64, 1, &rank);
  SAYS(NOT_FINAL, cudnnBackendSetAttribute(operation, 702, T_DESCRIPTOR, 1, &convolution));
  set_one(operation, 702, finalize(convolution));
  set_one(operation, 703, make_tensor(type, false, (int64_t[]){128, 64, 3, 3}));
  set_one(operation, 704, x);
  set_one(operation, 705, make_tensor(type, false, (int64_t[]){256, 128, 56, pixels}));
  SAYS(OK, cudnnBackendDestroyDescriptor(convolution)); /* the operation keeps it */
  return operation;
}

static void *make_graph(int64_t count, void **operations) {
  void *graph = make(GRAPH);
  set(graph, 800, T_HANDLE, 1, &handle);
  set(graph, 801, T_DESCRIPTOR, count, operations);
  return finalize(graph);
}

/* The plan of the engine that is in that place of the heuristics' answer. */
static void *make_plan(void *graph, int mode, int64_t place, int64_t count) {
  void *heuristics = make(ENGINEHEUR), *configurations[4], *plan = make(PLAN);
  int64_t got = -1, workspace = -1;
  int32_t shared = -1;
  set_one(heuristics, 201, graph);
  set(heuristics, 200, T_HEUR_MODE, 1, &mode);
  finalize(heuristics);
  SAYS(OK, cudnnBackendGetAttribute(heuristics, 202, T_DESCRIPTOR, 0, &got, NULL));
  TRUE(got == count);
  for (int i = 0; i < 4; i++) configurations[i] = make(ENGINECFG);
  SAYS(OK, cudnnBackendGetAttribute(heuristics, 202, T_DESCRIPTOR, 4, &got, configurations));
  TRUE(got == count);
  SAYS(OK, cudnnBackendDestroyDescriptor(heuristics));
  SAYS(OK, cudnnBackendGetAttribute(configurations[place], 303, T_INT64, 1, NULL, &workspace));
  SAYS(OK, cudnnBackendGetAttribute(configurations[place], 304, T_INT32, 1, NULL, &shared));
  TRUE(workspace == 0 && shared == 0);
  set_one(plan, 401, configurations[place]);
  finalize(plan);
  SAYS(OK, cudnnBackendGetAttribute(plan, 402, T_INT64, 1, NULL, &workspace));
  TRUE(workspace == 0);
  for (int i = 0; i < 4; i++) SAYS(OK, cudnnBackendDestroyDescriptor(configurations[i]));
  return plan;
}

/* How many notes of tensor cores a plan's engine has. */
static int64_t count_notes(void *plan) {
  void *configuration = make(ENGINECFG), *engine = make(ENGINE);
  int64_t count = -1, notes = -1;
  int note = -1;
  SAYS(OK, cudnnBackendGetAttribute(plan, 401, T_DESCRIPTOR, 1, &count, &configuration));
  SAYS(OK, cudnnBackendGetAttribute(configuration, 300, T_DESCRIPTOR, 1, &count, &engine));
  SAYS(OK, cudnnBackendGetAttribute(engine, 1303, T_NUMERICAL_NOTE, 10, &notes, &note));
  TRUE(notes == 0 || note == 0);
  SAYS(OK, cudnnBackendGetAttribute(engine, 1305, T_BEHAVIOR_NOTE, 5, &count, NULL));
  TRUE(count == 0);
  SAYS(OK, cudnnBackendGetAttribute(configuration, 302, T_DESCRIPTOR, 40, &count, NULL));
  TRUE(count == 0);
  return notes;
}

static float run_ms(void *plan, CUstream stream) {
  const int64_t ids[] = {1, 2};
  void *pointers[] = {NULL, NULL}, *pack = make(PACK);
  set(pack, 1000, T_INT64, 2, ids);
  SAYS(BAD, cudnnBackendFinalize(pack)); /* no pointers */
  set(pack, 1001, T_POINTER, 2, pointers);
  SAYS(NOT_FINAL, cudnnBackendExecute(handle, plan, pack));
  finalize(pack);
  lap_ms(stream);
  for (int i = 0; i < 2; i++) SAYS(OK, cudnnBackendExecute(handle, plan, pack));
  float ms = lap_ms(stream) / 2;
  SAYS(BAD_DESCRIPTOR, cudnnBackendExecute(handle, pack, plan));
  SAYS(BAD, cudnnBackendExecute(NULL, plan, pack));
  SAYS(OK, cudnnBackendDestroyDescriptor(pack));
  return ms;
}

static void convolutions(CUstream stream) {
  for (int type = FLOAT; type <= HALF; type++) {
    void *x = make_tensor(type, false, (int64_t[]){256, 64, 56, 56});
    void *operation = finalize(make_convolution(type, x, 56)), *graph = make_graph(1, &operation);
    int engines = type == FLOAT ? 2 : 1;
    void *best = make_plan(graph, 0, 0, engines), *other = make_plan(graph, 2, 0, 1);
    TRUE(count_notes(best) == (type != DOUBLE) && count_notes(other) == (type == HALF));
    float ms = run_ms(best, stream);
    TRUE(ms >= 118.4 / (type == HALF ? 989.5 : type == FLOAT ? 494.5 : 67));
    TRUE(run_ms(other, stream) >= (type == FLOAT ? 118.4 / 67 : 0));
    void *wrong = make_convolution(type, x, 57);
    SAYS(MISMATCH, cudnnBackendFinalize(wrong));
  }
}

static void *make_matmul(void *a, void *b, void *c) {
  const int compute = FLOAT;
  void *operation = make(OP_MATMUL), *matmul = make(MATMUL);
  set(matmul, 1500, T_DATA_TYPE, 1, &compute);
  set_one(operation, 1520, a);
  set_one(operation, 1521, b);
  set_one(operation, 1522, c);
  set_one(operation, 1523, finalize(matmul));
  return finalize(operation);
}

static void *make_pointwise(int mode, void *x, void *b, void *y) {
  void *operation = make(OP_POINTWISE), *pointwise = make(POINTWISE);
  set(pointwise, 0, T_POINTWISE_MODE, 1, &mode);
  set_one(operation, 750, finalize(pointwise));
  set_one(operation, 751, x);
  if (b != NULL) set_one(operation, 752, b);
  set_one(operation, 753, y);
  return finalize(operation);
}

/* Attention of 2 x 137.4e9 operations, half of them where a mask compares indices. */
static void attention(CUstream stream) {
  enum { MUL = 1, CMP_GE = 303, GEN_INDEX = 501 };
  const int64_t heads[] = {4, 16, 4096, 64}, keys[] = {4, 16, 64, 4096}, scores[] = {4, 16, 4096, 4096};
  void *q = make_tensor(HALF, false, heads), *k = make_tensor(HALF, false, keys), *v = make_tensor(HALF, false, heads);
  void *o = make_tensor(HALF, false, heads), *s = make_tensor(FLOAT, true, scores);
  void *rows = make_tensor(FLOAT, true, scores), *columns = make_tensor(FLOAT, true, scores);
  void *mask = make_tensor(FLOAT, true, scores), *p = make_tensor(HALF, true, scores);
  void *operations[] = {make_matmul(q, k, s),
                        make_pointwise(MUL, s, NULL, p),
                        make_matmul(p, v, o),
                        make_pointwise(GEN_INDEX, s, NULL, rows),
                        make_pointwise(GEN_INDEX, s, NULL, columns),
                        make_pointwise(CMP_GE, rows, columns, mask)};
  float whole_ms = 2 * 137.4f / 989.5f;
  float ms = run_ms(make_plan(make_graph(3, operations), 3, 0, 1), stream);
  TRUE(ms >= whole_ms);
  TRUE(run_ms(make_plan(make_graph(6, operations), 3, 0, 1), stream) >= whole_ms / 2);
}

static void refusals(void) {
  void *tensor = make(TENSOR), *nothing = NULL;
  int64_t dims[] = {1, 2, 0}, count, big = INT64_MAX;
  int type = FLOAT;
  SAYS(NOT_SUPPORTED, cudnnBackendCreateDescriptor(51, &nothing));
  SAYS(NOT_SUPPORTED, cudnnBackendCreateDescriptor(-1, &nothing));
  SAYS(BAD_NULL, cudnnBackendCreateDescriptor(TENSOR, NULL));
  SAYS(BAD_NULL, cudnnBackendSetAttribute(NULL, 901, T_DATA_TYPE, 1, &type));
  SAYS(BAD_NULL, cudnnBackendSetAttribute(tensor, 901, T_DATA_TYPE, 1, NULL));
  SAYS(BAD, cudnnBackendSetAttribute(tensor, 801, T_DATA_TYPE, 1, &type));
  SAYS(BAD_TYPE, cudnnBackendSetAttribute(tensor, 901, 99, 1, &type));
  SAYS(OUT_OF_BOUND, cudnnBackendSetAttribute(tensor, 902, T_INT64, INT64_MAX, dims));
  SAYS(OUT_OF_BOUND, cudnnBackendSetAttribute(tensor, 902, T_INT64, -1, dims));
  SAYS(BAD, cudnnBackendSetAttribute(tensor, 913, T_DESCRIPTOR, 1, &nothing));
  SAYS(NOT_FINAL, cudnnBackendGetAttribute(tensor, 902, T_INT64, 3, &count, dims));
  SAYS(BAD, cudnnBackendFinalize(tensor));
  set(tensor, 901, T_DATA_TYPE, 1, &type);
  set(tensor, 902, T_INT64, 3, dims);
  set(tensor, 903, T_INT64, 3, dims);
  set(tensor, 906, T_INT64, 1, dims);
  SAYS(BAD, cudnnBackendFinalize(tensor)); /* a dimension of 0 */
  dims[2] = 3;
  set(tensor, 902, T_INT64, 3, dims);
  finalize(tensor);
  SAYS(NOT_INITIALIZED, cudnnBackendSetAttribute(tensor, 902, T_INT64, 3, dims));
  SAYS(BAD_TYPE, cudnnBackendGetAttribute(tensor, 902, T_DOUBLE, 3, &count, dims));
  SAYS(NOT_SUPPORTED, cudnnBackendGetAttribute(tensor, 904, T_INT64, 3, &count, dims));
  SAYS(OK, cudnnBackendGetAttribute(tensor, 902, T_INT64, 2, &count, dims));
  TRUE(count == 3);
  void *graph = make(GRAPH), *plan = make(PLAN), *engine = make(ENGINE);
  SAYS(BAD, cudnnBackendFinalize(graph));
  set(graph, 801, T_DESCRIPTOR, 1, &tensor);
  SAYS(BAD_DESCRIPTOR, cudnnBackendFinalize(graph));
  SAYS(NOT_SUPPORTED, cudnnBackendFinalize(plan));
  SAYS(BAD, cudnnBackendFinalize(engine));
  void *operation = make_pointwise(1, tensor, NULL, tensor);
  set_one(engine, 1300, make_graph(1, &operation));
  set(engine, 1301, T_INT64, 1, &big);
  SAYS(NOT_SUPPORTED, cudnnBackendFinalize(engine));
  SAYS(OK, cudnnBackendDestroyDescriptor(NULL));
}

int main(void) {
  begin();
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SAYS(OK, cudnnCreate(&handle));
  SAYS(OK, cudnnSetStream(handle, stream));
  convolutions(stream);
  attention(stream);
  refusals();
  SAYS(OK, cudnnDestroy(handle));
  CHECK(cuCtxDestroy_v2(context));
  puts("ok");
}
