/*
 * graph_work.c - see graph_work.h. A graph runs as one kernel: its products take their operations, and memory is read
 * and written once for each tensor that lies there (tensors between operations are virtual).
 */
#include "simcuda/cudnn/graph_work.h"
#include "simcuda/cudnn/descriptors.h"
#include <stdlib.h>

int sc_dnn_find_dims(const struct sc_dnn_node *tensor, const int64_t **ret_dims) {
  const struct sc_dnn_value *value = sc_dnn_find_value(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS);
  if (value == NULL || value->element_type != CUDNN_TYPE_INT64) return 0;
  *ret_dims = value->elements;
  return (int)value->count;
}

static double count_elements(const struct sc_dnn_node *tensor) {
  const int64_t *dims;
  int rank = sc_dnn_find_dims(tensor, &dims);
  double count = rank > 0;
  for (int i = 0; i < rank; i++) count *= (double)dims[i];
  return count;
}

/* The dimension that is so many from the last one; 1: there are not as many. */
static double find_extent(const struct sc_dnn_node *tensor, int from_last) {
  const int64_t *dims;
  int rank = sc_dnn_find_dims(tensor, &dims);
  return from_last < rank ? (double)dims[rank - 1 - from_last] : 1;
}

static struct sc_dnn_node *find_tensor(const struct sc_dnn_node *operation, int attribute) {
  return sc_dnn_find_node(operation, attribute, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
}

/* ---- what operations compute ---- */

struct sum {
  double product_flops;
  double other_flops;
  int type; /* of the first product's input; -1: there is none */
  int convolution_count;
  int matmul_count;
  int normalization_count;
  bool is_attention;
  bool is_causal;
};

static void add_product(struct sum *sum, double flops, const struct sc_dnn_node *input) {
  sum->product_flops += flops;
  if (sum->type < 0) sum->type = (int)sc_dnn_find_integer(input, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
}

/* Each element of y (or dy) is a sum over a filter. */
static void add_convolution(struct sum *sum, const struct sc_dnn_node *operation, int filter_attribute,
                            int output_attribute) {
  const struct sc_dnn_node *filter = find_tensor(operation, filter_attribute);
  const int64_t *dims;
  double outputs = sc_dnn_find_dims(filter, &dims) > 0 ? (double)dims[0] : 1;
  double flops = 2 * count_elements(find_tensor(operation, output_attribute)) * count_elements(filter) / outputs;
  add_product(sum, flops, filter);
  sum->convolution_count++;
}

static void add_matmul(struct sum *sum, const struct sc_dnn_node *operation, int a_attribute, int c_attribute) {
  const struct sc_dnn_node *a = find_tensor(operation, a_attribute);
  add_product(sum, 2 * count_elements(find_tensor(operation, c_attribute)) * find_extent(a, 0), a);
  sum->matmul_count++;
}

/* Attention as one operation. Products over the heads of queries and keys, and of values: each as often as given. */
static void add_attention(struct sum *sum, const struct sc_dnn_node *operation, int q_attribute, int k_attribute,
                          int v_attribute, int key_products, int value_products) {
  const struct sc_dnn_node *q = find_tensor(operation, q_attribute), *k = find_tensor(operation, k_attribute);
  const struct sc_dnn_node *v = find_tensor(operation, v_attribute);
  double head = find_extent(q, 0), keys = find_extent(k, 1);
  double rows = head > 0 ? count_elements(q) / head : 0;
  add_product(sum, 2 * rows * keys * (key_products * head + value_products * find_extent(v, 0)), q);
  sum->is_attention = true;
}

static bool is_virtual(const struct sc_dnn_node *tensor) {
  return tensor != NULL && sc_dnn_find_integer(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0;
}

/* A causal mask compares indices of rows and columns, both made in the graph; one for padding compares with lengths. */
static bool compares_indices(const struct sc_dnn_node *operation) {
  const struct sc_dnn_node *pointwise =
      sc_dnn_find_node(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  int64_t mode = sc_dnn_find_integer(pointwise, CUDNN_ATTR_POINTWISE_MODE, -1);
  return mode >= CUDNN_POINTWISE_CMP_EQ && mode <= CUDNN_POINTWISE_CMP_LE &&
         is_virtual(find_tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)) &&
         is_virtual(find_tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
}

/* Operations that compute something for each element. */
static void add_elements(struct sum *sum, const struct sc_dnn_node *operation) {
  double largest = 0;
  for (int i = 0; i < operation->value_count; i++) {
    double count = count_elements(find_tensor(operation, operation->values[i].attribute));
    if (count > largest) largest = count;
  }
  sum->other_flops += largest;
}

static void add_operation(struct sum *sum, const struct sc_dnn_node *operation) {
  switch (operation->type) {
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    return add_convolution(sum, operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    return add_convolution(sum, operation, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    return add_convolution(sum, operation, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
  case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    return add_matmul(sum, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  case CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR:
    return add_matmul(sum, operation, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC,
                      CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC);
  case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR:
    return add_attention(sum, operation, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
                         CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, 1, 1);
  case CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR: /* the scores again, dQ and dK; dP and dV */
    return add_attention(sum, operation, CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC,
                         CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, 3, 2);
  case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR:
    sum->normalization_count++;
    break;
  case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    sum->is_causal |= compares_indices(operation);
    break;
  default:
    break;
  }
  add_elements(sum, operation);
}

static struct sum sum_operations(const struct sc_dnn_node *graph) {
  const struct sc_dnn_value *operations = sc_dnn_find_value(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  struct sum sum = {.type = -1};
  for (int64_t i = 0; operations != NULL && i < operations->count; i++)
    add_operation(&sum, ((struct sc_dnn_node **)operations->elements)[i]);
  /* two products with what makes probabilities between them */
  sum.is_attention |= sum.matmul_count > 1;
  if (sum.is_attention && sum.is_causal) sum.product_flops /= 2; /* blocks above the diagonal are left out */
  return sum;
}

/* ---- what lies in memory ---- */

struct tensors {
  int64_t *ids;
  int count;
  int space;
  double bytes;
};

static void add_tensor(struct tensors *tensors, const struct sc_dnn_node *tensor) {
  int64_t id = sc_dnn_find_integer(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  if (is_virtual(tensor) || sc_dnn_find_integer(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0) != 0) return;
  for (int i = 0; i < tensors->count; i++)
    if (tensors->ids[i] == id) return;
  if (tensors->count == tensors->space) {
    int space = 2 * tensors->space + 16;
    int64_t *ids = realloc(tensors->ids, (size_t)space * sizeof *ids);
    if (ids == NULL) return;
    tensors->ids = ids;
    tensors->space = space;
  }
  tensors->ids[tensors->count++] = id;
  int type = (int)sc_dnn_find_integer(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
  tensors->bytes += count_elements(tensor) * sc_dnn_find_element_bytes(type);
}

static double measure_bytes(const struct sc_dnn_node *graph) {
  const struct sc_dnn_value *operations = sc_dnn_find_value(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  struct tensors tensors = {0};
  for (int64_t i = 0; operations != NULL && i < operations->count; i++) {
    const struct sc_dnn_node *operation = ((struct sc_dnn_node **)operations->elements)[i];
    for (int j = 0; j < operation->value_count; j++) {
      const struct sc_dnn_value *value = &operation->values[j];
      for (int64_t k = 0; value->element_type == CUDNN_TYPE_BACKEND_DESCRIPTOR && k < value->count; k++) {
        const struct sc_dnn_node *node = ((struct sc_dnn_node **)value->elements)[k];
        if (node->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) add_tensor(&tensors, node);
      }
    }
  }
  free(tensors.ids);
  return tensors.bytes;
}

static enum sc_work find_kind(const struct sum *sum) {
  if (sum->convolution_count > 0) return SC_WORK_CONVOLUTION;
  if (sum->is_attention) return SC_WORK_ATTENTION;
  if (sum->matmul_count > 0) return SC_WORK_GEMM;
  return sum->normalization_count > 0 ? SC_WORK_NORMALIZATION : SC_WORK_ELEMENTWISE;
}

struct sc_dnn_work sc_dnn_measure_graph(const struct sc_dnn_node *graph, bool are_tensor_cores_allowed) {
  struct sum sum = sum_operations(graph);
  bool is_product = sum.type >= 0;
  return (struct sc_dnn_work){
      .kind = find_kind(&sum),
      /* beside a product, the rest is done by units that would idle */
      .cost = {.flops = is_product ? sum.product_flops : sum.other_flops,
               .bytes = measure_bytes(graph),
               .math =
                   sc_dnn_find_math(is_product ? sum.type : CUDNN_DATA_FLOAT, is_product && are_tensor_cores_allowed)},
  };
}

enum sc_math sc_dnn_find_graph_math(const struct sc_dnn_node *graph) {
  struct sum sum = sum_operations(graph);
  return sc_dnn_find_math(sum.type >= 0 ? sum.type : CUDNN_DATA_FLOAT, sum.type >= 0);
}
