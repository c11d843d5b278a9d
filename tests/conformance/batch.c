/*
 * batch: copies by the batch, values that streams write and wait for, singly, in batches and as a node.
 */
#include "row.h"

static CUstream stream;
static CUdeviceptr block;

static void begin_batch(void) {
  begin();
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuMemAlloc_v2(&block, 4096));
  NEED(cuMemsetD8_v2(block, 0, 4096));
}

static void batch_copies(void) {
  char out[2][8] = {"first", "second"}, in[2][8] = {"", ""};
  begin_batch();
  CUdeviceptr there[] = {block, block + 1024}, here[] = {(CUdeviceptr)out[0], (CUdeviceptr)out[1]};
  CUdeviceptr back[] = {(CUdeviceptr)in[1], (CUdeviceptr)in[0]};
  CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  size_t bytes[] = {8, 8}, first = 0;
  CODE("there", cuMemcpyBatchAsync_v2(there, here, bytes, 2, &attributes, &first, 1, stream));
  CODE("back", cuMemcpyBatchAsync_v2(back, there, bytes, 2, &attributes, &first, 1, stream));
  CODE("wait", cuStreamSynchronize(stream));
  fact("crossed", strcmp(in[1], "first") == 0 && strcmp(in[0], "second") == 0);
}

static void batch_refused(void) {
  char out[8] = "abc";
  begin_batch();
  CUdeviceptr there = block, here = (CUdeviceptr)out;
  CUmemcpyAttributes attributes[2] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}};
  size_t bytes = 8, firsts[2] = {0, 0}, later = 1;
  attributes[1] = attributes[0];
  CODE("legacy_stream", cuMemcpyBatchAsync_v2(&there, &here, &bytes, 1, attributes, firsts, 1, NULL));
  CODE("no_attributes", cuMemcpyBatchAsync_v2(&there, &here, &bytes, 1, attributes, firsts, 0, stream));
  CODE("more_than_copies", cuMemcpyBatchAsync_v2(&there, &here, &bytes, 1, attributes, firsts, 2, stream));
  CODE("first_not_0", cuMemcpyBatchAsync_v2(&there, &here, &bytes, 1, attributes, &later, 1, stream));
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  CODE("order", cuMemcpyBatchAsync_v2(&there, &here, &bytes, 1, attributes, firsts, 1, stream));
  here = 0;
  CODE("from_nowhere", cuMemcpyBatchAsync_v2(&there, &here, &bytes, 1, &attributes[1], firsts, 1, stream));
  NEED(cuStreamSynchronize(stream));
  char in[4] = "";
  NEED(cuMemcpyDtoH_v2(in, block, sizeof in));
  fact("untouched", in[0] == 0);
}

static CUstreamBatchMemOpParams set_word(CUdeviceptr address, cuuint32_t value) {
  CUstreamBatchMemOpParams params = {0};
  params.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  params.writeValue.address = address;
  params.writeValue.value = value;
  return params;
}

static unsigned word_at(CUdeviceptr address) {
  unsigned word = 0;
  NEED(cuMemcpyDtoH_v2(&word, address, sizeof word));
  return word;
}

static void stream_values(void) {
  CUstream other;
  begin_batch();
  NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CODE("wait", cuStreamWaitValue32_v2(stream, block, 5, CU_STREAM_WAIT_VALUE_GEQ));
  CODE("after", cuStreamWriteValue32_v2(stream, block + 64, 7, 0));
  CODE("held", cuStreamQuery(stream));
  CODE("write", cuStreamWriteValue32_v2(other, block, 6, 0));
  CODE("wait", cuStreamSynchronize(stream));
  fact("word", word_at(block + 64));
  CODE("odd_address", cuStreamWriteValue32_v2(stream, block + 1, 6, 0));
  CODE("flags", cuStreamWriteValue32_v2(stream, block, 6, 0x100));
}

static void stream_batch(void) {
  begin_batch();
  CUstreamBatchMemOpParams both[2] = {set_word(block, 3), set_word(block + 8, 4)}, none[1] = {set_word(block, 9)};
  CODE("batch", cuStreamBatchMemOp_v2(stream, 2, both, 0));
  CODE("wait", cuStreamSynchronize(stream));
  fact("words", word_at(block) * 10 + word_at(block + 8));
  CODE("too_many", cuStreamBatchMemOp_v2(stream, 257, both, 0));
  CODE("flags", cuStreamBatchMemOp_v2(stream, 1, both, 1));
  none[0].operation = (CUstreamBatchMemOpType)99;
  CODE("kind", cuStreamBatchMemOp_v2(stream, 1, none, 0));
  fact("first_is", word_at(block));
}

static void batch_node(void) {
  CUcontext context;
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode node;
  begin_batch();
  NEED(cuCtxGetCurrent(&context));
  NEED(cuGraphCreate(&graph, 0));
  CUstreamBatchMemOpParams both[2] = {set_word(block, 3), set_word(block + 8, 4)};
  CUDA_BATCH_MEM_OP_NODE_PARAMS params = {context, 2, both, 0};
  CODE("add", cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &params));
  CODE("instantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
  fact("not_yet", word_at(block));
  CODE("launch", cuGraphLaunch(exec, stream));
  CODE("wait", cuStreamSynchronize(stream));
  fact("words", word_at(block) * 10 + word_at(block + 8));
  both[0].writeValue.value = 8;
  CODE("update", cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
  CODE("launch", cuGraphLaunch(exec, stream));
  CODE("wait", cuStreamSynchronize(stream));
  fact("words", word_at(block) * 10 + word_at(block + 8));
}

ROWS(ROW(batch_copies), ROW(batch_refused), ROW(stream_values), ROW(stream_batch), ROW(batch_node))
