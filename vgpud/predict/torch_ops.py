"""ATen's operations by what they cost. Shared by exported programs and by traces of running programs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vgpud.predict import graph
from vgpud.predict.graph import Graph, Kind, Op, Role, Tensor


def _map_names(kind: Kind, names: str) -> dict[str, Kind]:
    return dict.fromkeys(names.split(), kind)


#: by name without namespace, overload and the underscore of what works in place
OP_KINDS: dict[str, Kind] = {
    **_map_names(graph.CONV, "conv1d conv2d conv3d convolution _convolution conv_transpose1d conv_transpose2d"),
    **_map_names(graph.CONV, "conv_transpose3d cudnn_convolution mkldnn_convolution convolution_overrideable"),
    **_map_names(
        graph.MATMUL, "linear addmm mm bmm baddbmm matmul addbmm dot mv addmv _scaled_mm outer einsum bilinear"
    ),
    **_map_names(graph.ATTENTION, "scaled_dot_product_attention _scaled_dot_product_flash_attention"),
    **_map_names(
        graph.ATTENTION, "_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention_for_cpu"
    ),
    **_map_names(
        graph.ATTENTION, "_scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math flex_attention"
    ),
    **_map_names(graph.RNN, "lstm gru rnn_tanh rnn_relu _cudnn_rnn mkldnn_rnn_layer lstm_cell gru_cell"),
    **_map_names(graph.EMBEDDING, "embedding _embedding_bag embedding_bag"),
    **_map_names(
        graph.BATCH_NORM, "batch_norm native_batch_norm _native_batch_norm_legit cudnn_batch_norm instance_norm"
    ),
    **_map_names(graph.BATCH_NORM, "_native_batch_norm_legit_functional _batch_norm_with_update native_group_norm"),
    **_map_names(
        graph.BATCH_NORM, "_batch_norm_with_update_functional _native_batch_norm_legit_no_training group_norm"
    ),
    **_map_names(graph.LAYER_NORM, "layer_norm native_layer_norm rms_norm _fused_rms_norm"),
    **_map_names(graph.SOFTMAX, "softmax _softmax log_softmax _log_softmax _safe_softmax"),
    **_map_names(graph.ACTIVATION, "relu sigmoid tanh"),
    **_map_names(graph.CLIP, "relu6 threshold hardtanh clamp clamp_min clamp_max hardsigmoid"),
    **_map_names(graph.SMOOTH, "gelu silu leaky_relu hardswish elu selu celu mish softplus log_sigmoid_forward"),
    **_map_names(graph.SMOOTH, "log_sigmoid logsigmoid prelu _prelu_kernel glu softsign softshrink hardshrink"),
    **_map_names(graph.DROPOUT, "dropout native_dropout feature_dropout alpha_dropout bernoulli rand_like"),
    **_map_names(graph.MAX_POOL, "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices"),
    **_map_names(graph.MAX_POOL, "adaptive_max_pool1d adaptive_max_pool2d max_pool1d_with_indices topk sort"),
    **_map_names(graph.POOL, "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d"),
    **_map_names(
        graph.POOL, "_adaptive_avg_pool2d adaptive_avg_pool3d upsample_nearest2d upsample_bilinear2d interpolate"
    ),
    **_map_names(graph.PRODUCT, "mul div true_divide atan2 addcmul addcdiv lerp maximum minimum"),
    **_map_names(graph.CHOICE, "where"),
    **_map_names(
        graph.POINTWISE, "add sub rsub neg masked_fill floor ceil round sign fill zero roll flip constant_pad_nd"
    ),
    **_map_names(
        graph.POINTWISE, "eq ne lt le gt ge logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not"
    ),
    **_map_names(graph.POINTWISE, "floor_divide remainder fmod triu tril isnan isinf pad any all isfinite bitwise_xor"),
    **_map_names(graph.CURVE, "exp log log2 log10 log1p expm1 sqrt rsqrt reciprocal pow sin cos abs erf cumsum square"),
    **_map_names(graph.CURVE, "linalg_vector_norm norm prod var var_mean std amax amin cumprod logsumexp"),
    **_map_names(graph.REDUCE, "sum mean max min argmax argmin count_nonzero mse_loss nll_loss nll_loss_forward"),
    **_map_names(graph.REDUCE, "cross_entropy_loss binary_cross_entropy_with_logits nll_loss2d_forward"),
    **_map_names(
        graph.COPY, "cat stack clone contiguous copy _to_copy to repeat repeat_interleave gather index index_select"
    ),
    **_map_names(
        graph.COPY, "scatter scatter_add index_put slice_scatter select_scatter masked_select type_as float half"
    ),
    **_map_names(
        graph.COPY, "pixel_shuffle pixel_unshuffle im2col col2im unfold_copy meshgrid index_copy channel_shuffle"
    ),
    **_map_names(
        graph.COPY, "new_zeros new_ones new_full new_empty zeros_like ones_like full_like empty_like randn_like"
    ),
    **_map_names(
        graph.VIEW, "view reshape _unsafe_view transpose t permute unsqueeze squeeze expand expand_as flatten"
    ),
    **_map_names(graph.VIEW, "slice select split split_with_sizes chunk unbind narrow detach alias view_as unflatten"),
    **_map_names(
        graph.VIEW, "movedim swapaxes numpy_T mT real imag as_strided lift_fresh_copy lift_fresh unfold identity"
    ),
    **_map_names(graph.VIEW, "_reshape_alias positive unsafe_split unsafe_chunk diagonal detach_copy view_as_real"),
    **_map_names(
        graph.SHAPE, "zeros ones full empty arange scalar_tensor tensor sym_size sym_numel sym_stride linspace"
    ),
    **_map_names(graph.SHAPE, "rand randn randint empty_strided eye item _local_scalar_dense sym_constrain_range"),
    **_map_names(
        graph.SHAPE, "_assert_scalar _assert_async _assert_tensor_metadata sym_constrain_range_for_size getitem"
    ),
    **_map_names(graph.SHAPE, "is_nonzero new_empty_strided sym_storage_offset sym_max sym_min empty_permuted"),
}
#: activations that keep what they read, but what they wrote where they work in place
_BY_RESULT_IN_PLACE = ("leaky_relu", "elu", "selu", "celu")
#: what is on sizes, not on tensors: Python's own operators in an exported graph, questions about tensors in a trace
_SIZES = ("_operator", "operator", "math", "builtins", "torch._sym", "prim.")


def base_name(target: str) -> str:
    """ "torch.ops.aten.relu_.default" -> "relu_"; operations that are not ATen's keep their namespace."""
    name = target.removeprefix("torch.ops.")
    if name.startswith(("aten.", "prims.")):
        return name.split(".")[1]
    return "sym_size" if name.startswith(_SIZES) else name


def kind_of(target: str) -> tuple[Kind, bool]:
    """Its kind, and whether it works in place."""
    name = base_name(target)
    plain = name.rstrip("_") if not name.endswith("__") else name
    if plain not in OP_KINDS and plain.endswith("_copy"):
        plain = plain.removesuffix("_copy")
    in_place = name.endswith("_") and plain in OP_KINDS
    if in_place and plain in _BY_RESULT_IN_PLACE:
        return graph.ACTIVATION, True
    return OP_KINDS.get(plain, graph.UNKNOWN), in_place


def add(model_graph: Graph, target: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Takes an operation into the graph; its tensors are there already."""
    kind, in_place = kind_of(target)
    if not outputs and kind is not graph.UNKNOWN:
        return
    op = Op(
        base_name(target),
        kind,
        tuple(inputs),
        tuple(outputs),
        _flops(base_name(target), kind, model_graph.get_tensors(inputs), model_graph.get_tensors(outputs)),
        in_place,
        _steps(kind, model_graph.get_tensors(inputs), model_graph.batch),
    )
    model_graph.op(op)


def _flops(name: str, kind: Kind, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    if not inputs or not outputs:
        return 0
    if kind is graph.CONV and len(inputs) > 1:
        return graph.convolution_flops(inputs[0], inputs[1], outputs[0])
    if kind is graph.ATTENTION and len(inputs) > 2:
        return graph.attention_flops(*inputs[:3])
    if kind is graph.RNN:
        return graph.recurrent_flops(inputs[0], [one for one in inputs[1:] if one.role is Role.PARAMETER])
    if kind is graph.MATMUL:
        added = name.rstrip("_") in ("addmm", "baddbmm", "addbmm", "addmv")
        left = inputs[1] if added and len(inputs) > 1 else inputs[0]
        if name in ("einsum", "bilinear", "outer"):
            return _einsum_flops(inputs, outputs[0])
        return graph.matmul_flops(left, outputs[0])
    return 0


def _einsum_flops(inputs: Sequence[Tensor], output: Tensor) -> int:
    """Of a product of two, the contracted length follows from the three sizes: inner^2 = left x right / output."""
    if len(inputs) < 2 or not output.elements:
        return 2 * output.elements
    return 2 * output.elements * max(1, math.isqrt(inputs[0].elements * inputs[1].elements // output.elements))


def _steps(kind: Kind, inputs: Sequence[Tensor], batch: int) -> int:
    """The length of a recurrence over [time, batch, size] or [batch, time, size]."""
    if kind is not graph.RNN or not inputs or len(inputs[0].shape) < 3:
        return 1
    first, second = inputs[0].shape[:2]
    return max(1, second if first == batch else first)
