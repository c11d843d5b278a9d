/*
 * finalize.c - see finalize.h. A graph has one engine, which uses tensor cores where its products are of types that
 * these take; products of FP32 have a second one that does without, as programs filter those that round to TF32. An
 * engine has no knobs. How much memory it works in is known to cuDNN alone: 0 is answered.
 */
#include "simcuda/cudnn/finalize.h"
#include "simcuda/cudnn/descriptors.h"
#include "simcuda/cudnn/graph_work.h"
#include "simcuda/cudnn/workspace.h"

#define ENGINE_WITHOUT_TENSOR_CORES 1 /* engine 0 uses them */

static int miss(const char *reason) {
  return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, reason);
}

/* ---- tensors and convolutions ---- */

static int finalize_tensor(const struct sc_dnn_node *node) {
  const int64_t *dims;
  int rank = sc_dnn_find_dims(node, &dims);
  const struct sc_dnn_value *strides = sc_dnn_find_value(node, CUDNN_ATTR_TENSOR_STRIDES);
  if (rank < 1 || rank > CUDNN_DIM_MAX || strides == NULL || strides->count != rank ||
      sc_dnn_find_value(node, CUDNN_ATTR_TENSOR_UNIQUE_ID) == NULL)
    return miss("a tensor has dimensions, as many strides, and an identifier");
  for (int i = 0; i < rank; i++)
    if (dims[i] < 1) return miss("each dimension of a tensor is at least 1");
  int type = (int)sc_dnn_find_integer(node, CUDNN_ATTR_TENSOR_DATA_TYPE, -1);
  return sc_dnn_find_element_bytes(type) > 0 ? CUDNN_STATUS_SUCCESS : miss("a tensor has a type of data");
}

static const int64_t *find_extents(const struct sc_dnn_node *convolution, int attribute, int count) {
  const struct sc_dnn_value *value = sc_dnn_find_value(convolution, attribute);
  if (value == NULL || value->element_type != CUDNN_TYPE_INT64 || value->count != count) return NULL;
  return value->elements;
}

/* Whether y is what the convolution makes of x; the attributes name them in each direction's words. */
static int finalize_convolution(const struct sc_dnn_node *node, int convolution_attribute, int w_attribute,
                                int x_attribute, int y_attribute) {
  const struct sc_dnn_node *convolution =
      sc_dnn_find_node(node, convolution_attribute, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const int64_t *w, *x, *y;
  int rank = sc_dnn_find_dims(sc_dnn_find_node(node, w_attribute, CUDNN_BACKEND_TENSOR_DESCRIPTOR), &w);
  if (convolution == NULL || rank < 3 ||
      sc_dnn_find_dims(sc_dnn_find_node(node, x_attribute, CUDNN_BACKEND_TENSOR_DESCRIPTOR), &x) != rank ||
      sc_dnn_find_dims(sc_dnn_find_node(node, y_attribute, CUDNN_BACKEND_TENSOR_DESCRIPTOR), &y) != rank)
    return miss("a convolution has its descriptor and three tensors of as many dimensions");
  const int64_t *dilations = find_extents(convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, rank - 2);
  const int64_t *strides = find_extents(convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, rank - 2);
  const int64_t *before = find_extents(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, rank - 2);
  const int64_t *after = find_extents(convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, rank - 2);
  if (dilations == NULL || strides == NULL || before == NULL || after == NULL)
    return miss("a convolution has dilations, strides and paddings for each extent");
  if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "batch or channels of a convolution do not fit");
  for (int i = 0; i < rank - 2; i++) {
    double window = (double)dilations[i] * (double)(w[i + 2] - 1) + 1;
    double space = (double)x[i + 2] + (double)before[i] + (double)after[i] - window;
    if (strides[i] < 1 || dilations[i] < 1 || space < 0 || space >= (double)y[i + 2] * (double)strides[i] ||
        space < (double)(y[i + 2] - 1) * (double)strides[i])
      return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "extents of a convolution do not fit");
  }
  return CUDNN_STATUS_SUCCESS;
}

/* ---- graphs and what runs them ---- */

static bool is_operation(const struct sc_dnn_node *node) {
  switch (node->type) {
  case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
  case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
  case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
  case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
  case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
  case CUDNN_BACKEND_RESAMPLE_DESCRIPTOR:
  case CUDNN_BACKEND_RNG_DESCRIPTOR:
  case CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR:
  case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
    return false;
  default:
    return node->type >= CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  }
}

static int set_integer(struct sc_dnn_node *node, int attribute, int64_t value) {
  return sc_dnn_set_value(node, attribute, CUDNN_TYPE_INT64, 1, &value);
}

static int set_nothing(struct sc_dnn_node *node, int attribute, int element_type) {
  if (sc_dnn_find_value(node, attribute) != NULL) return CUDNN_STATUS_SUCCESS;
  return sc_dnn_set_value(node, attribute, element_type, 0, NULL);
}

static int finalize_graph(struct sc_dnn_node *node) {
  const struct sc_dnn_value *operations = sc_dnn_find_value(node, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (operations == NULL || operations->element_type != CUDNN_TYPE_BACKEND_DESCRIPTOR || operations->count == 0)
    return miss("a graph has operations");
  for (int64_t i = 0; i < operations->count; i++)
    if (!is_operation(((struct sc_dnn_node **)operations->elements)[i]))
      return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "what a graph consists of are operations");
  int64_t engines = sc_dnn_find_graph_math(node) == SC_MATH_TF32 ? 2 : 1;
  return set_integer(node, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, engines);
}

static int finalize_engine(struct sc_dnn_node *node) {
  const struct sc_dnn_node *graph =
      sc_dnn_find_node(node, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (graph == NULL) return miss("an engine is of a graph");
  int64_t index = sc_dnn_find_integer(node, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
  if (index < 0 || index >= sc_dnn_find_integer(graph, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, 0))
    return sc_dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "the graph has no engine of that number");
  enum sc_math math = sc_dnn_find_graph_math(graph);
  bool are_tensor_cores_used = math >= SC_MATH_TF32 && index != ENGINE_WITHOUT_TENSOR_CORES;
  int note = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  int status =
      sc_dnn_set_value(node, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, are_tensor_cores_used, &note);
  if (status == CUDNN_STATUS_SUCCESS)
    status = set_nothing(node, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
  if (status == CUDNN_STATUS_SUCCESS)
    status = set_nothing(node, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  if (status == CUDNN_STATUS_SUCCESS)
    status = set_nothing(node, CUDNN_ATTR_ENGINE_LAYOUT_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  return status;
}

static int finalize_configuration(struct sc_dnn_node *node) {
  if (sc_dnn_find_node(node, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR) == NULL)
    return miss("a configuration is of an engine");
  int32_t shared_bytes = 0;
  int status = set_integer(node, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, 0);
  if (status == CUDNN_STATUS_SUCCESS)
    status = sc_dnn_set_value(node, CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, CUDNN_TYPE_INT32, 1, &shared_bytes);
  if (status == CUDNN_STATUS_SUCCESS)
    status = set_nothing(node, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  if (status == CUDNN_STATUS_SUCCESS)
    status = set_nothing(node, CUDNN_ATTR_ENGINECFG_INTERMEDIATE_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  return status;
}

/* NULL: no memory. A node whose only attributes are these, finalized. */
static struct sc_dnn_node *create_configuration(struct sc_dnn_node *graph, int64_t index) {
  struct sc_dnn_node *engine = sc_dnn_create_node(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  struct sc_dnn_node *configuration = sc_dnn_create_node(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  bool is_made = engine != NULL && configuration != NULL &&
                 sc_dnn_set_value(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                  &graph) == CUDNN_STATUS_SUCCESS &&
                 set_integer(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index) == CUDNN_STATUS_SUCCESS &&
                 finalize_engine(engine) == CUDNN_STATUS_SUCCESS &&
                 sc_dnn_set_value(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                  &engine) == CUDNN_STATUS_SUCCESS &&
                 finalize_configuration(configuration) == CUDNN_STATUS_SUCCESS;
  if (is_made) engine->is_final = configuration->is_final = true;
  sc_dnn_release(engine);
  if (is_made) return configuration;
  sc_dnn_release(configuration);
  return NULL;
}

/* The best engine first; the one that falls back is the last. */
static int finalize_heuristics(struct sc_dnn_node *node) {
  struct sc_dnn_node *graph =
      sc_dnn_find_node(node, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (graph == NULL) return miss("heuristics are of a graph");
  int engines = (int)sc_dnn_find_integer(graph, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, 1);
  bool is_fallback = sc_dnn_find_integer(node, CUDNN_ATTR_ENGINEHEUR_MODE, -1) == CUDNN_HEUR_MODE_FALLBACK;
  struct sc_dnn_node *configurations[2];
  int count = 0, status = CUDNN_STATUS_SUCCESS;
  for (int i = is_fallback ? engines - 1 : 0; i < engines && status == CUDNN_STATUS_SUCCESS; i++) {
    struct sc_dnn_node *made = create_configuration(graph, i);
    if (made == NULL) status = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    if (made != NULL) configurations[count++] = made;
  }
  if (status == CUDNN_STATUS_SUCCESS)
    status =
        sc_dnn_set_value(node, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, configurations);
  for (int i = 0; i < count; i++) sc_dnn_release(configurations[i]);
  return status;
}

static int finalize_plan(struct sc_dnn_node *node) {
  const struct sc_dnn_node *configuration =
      sc_dnn_find_node(node, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (configuration == NULL)
    return sc_dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "a plan is made of a configuration, not of text");
  const struct sc_dnn_node *engine =
      sc_dnn_find_node(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  const struct sc_dnn_node *graph =
      sc_dnn_find_node(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  bool are_tensor_cores_used =
      sc_dnn_find_integer(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0) != ENGINE_WITHOUT_TENSOR_CORES;
  node->work = sc_dnn_measure_graph(graph, are_tensor_cores_used);
  sc_dnn_note_workspaces(graph, are_tensor_cores_used && sc_dnn_find_graph_math(graph) >= SC_MATH_TF32);
  int status = set_integer(node, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 0);
  if (status == CUDNN_STATUS_SUCCESS)
    status = set_nothing(node, CUDNN_ATTR_EXECUTION_PLAN_COMPUTED_INTERMEDIATE_UIDS, CUDNN_TYPE_INT64);
  if (status == CUDNN_STATUS_SUCCESS)
    status = set_nothing(node, CUDNN_ATTR_EXECUTION_PLAN_RUN_ONLY_INTERMEDIATE_UIDS, CUDNN_TYPE_INT64);
  return status;
}

static int finalize_pack(const struct sc_dnn_node *node) {
  const struct sc_dnn_value *ids = sc_dnn_find_value(node, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const struct sc_dnn_value *pointers = sc_dnn_find_value(node, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  int64_t id_count = ids == NULL ? 0 : ids->count, pointer_count = pointers == NULL ? 0 : pointers->count;
  return id_count == pointer_count ? CUDNN_STATUS_SUCCESS : miss("a variant pack has a pointer for each identifier");
}

int sc_dnn_finalize(struct sc_dnn_node *node) {
  switch (node->type) {
  case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
    return finalize_tensor(node);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    return finalize_convolution(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    return finalize_convolution(
        node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    return finalize_convolution(
        node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
  case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
    return finalize_graph(node);
  case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    return finalize_engine(node);
  case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
    return finalize_configuration(node);
  case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
    return finalize_heuristics(node);
  case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
    return finalize_plan(node);
  case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
    return finalize_pack(node);
  default:
    return CUDNN_STATUS_SUCCESS;
  }
}
