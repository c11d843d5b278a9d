"""ONNX's operators by what they cost."""

from __future__ import annotations

from vgpud.predict import graph
from vgpud.predict.graph import Kind


def _map_names(kind: Kind, names: str) -> dict[str, Kind]:
    return dict.fromkeys(names.split(), kind)


#: of the standard domains; any other operator is unknown
OP_KINDS: dict[str, Kind] = {
    **_map_names(graph.CONV, "Conv ConvTranspose ConvInteger QLinearConv DeformConv"),
    **_map_names(graph.MATMUL, "Gemm MatMul MatMulInteger QLinearMatMul Einsum"),
    **_map_names(graph.ATTENTION, "Attention"),
    **_map_names(graph.RNN, "LSTM GRU RNN"),
    **_map_names(graph.BATCH_NORM, "BatchNormalization InstanceNormalization GroupNormalization LpNormalization LRN"),
    **_map_names(graph.LAYER_NORM, "LayerNormalization RMSNormalization MeanVarianceNormalization"),
    **_map_names(graph.SOFTMAX, "Softmax LogSoftmax Hardmax"),
    **_map_names(graph.ACTIVATION, "Relu Sigmoid Tanh"),
    **_map_names(graph.CLIP, "Clip HardSigmoid ThresholdedRelu"),
    **_map_names(graph.SMOOTH, "Gelu Elu Selu Celu LeakyRelu PRelu HardSwish Mish Softplus Softsign Swish"),
    **_map_names(graph.DROPOUT, "Dropout Bernoulli RandomNormalLike RandomUniformLike"),
    **_map_names(graph.MAX_POOL, "MaxPool GlobalMaxPool TopK MaxRoiPool"),
    **_map_names(graph.POOL, "AveragePool GlobalAveragePool LpPool Resize Upsample GridSample RoiAlign"),
    **_map_names(graph.PRODUCT, "Mul Div Max Min"),
    **_map_names(graph.CHOICE, "Where"),
    **_map_names(graph.POINTWISE, "Add Sub Neg Sum Mean Equal Not And Or Xor Less Greater LessOrEqual GreaterOrEqual"),
    **_map_names(graph.POINTWISE, "Floor Ceil Round Sign Mod IsNaN IsInf Trilu Pad BitwiseAnd BitwiseOr BitwiseNot"),
    **_map_names(graph.CURVE, "Exp Log Sqrt Reciprocal Pow Sin Cos Tan Abs Erf CumSum ReduceL1 ReduceL2 ReduceProd"),
    **_map_names(graph.CURVE, "ReduceLogSum ReduceLogSumExp ReduceSumSquare"),
    **_map_names(graph.REDUCE, "ReduceMean ReduceSum ReduceMax ReduceMin ArgMax ArgMin SoftmaxCrossEntropyLoss"),
    **_map_names(graph.REDUCE, "NegativeLogLikelihoodLoss"),
    **_map_names(graph.COPY, "Concat Transpose Tile GatherElements GatherND Cast CastLike ScatterND ScatterElements"),
    **_map_names(graph.COPY, "DepthToSpace SpaceToDepth Compress OneHot QuantizeLinear DequantizeLinear Scatter"),
    **_map_names(graph.VIEW, "Reshape Flatten Squeeze Unsqueeze Slice Split Identity Expand"),
    **_map_names(graph.SHAPE, "Shape Size Constant ConstantOfShape Range NonZero EyeLike RandomNormal RandomUniform"),
}
#: the names of the operators' own domain
DOMAINS = ("", "ai.onnx")


def kind_of(name: str, domain: str) -> Kind:
    return OP_KINDS.get(name, graph.UNKNOWN) if domain in DOMAINS else graph.UNKNOWN
