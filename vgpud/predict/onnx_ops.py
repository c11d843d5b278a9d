"""ONNX's operators by what they cost."""

from __future__ import annotations

from vgpud.predict import graph
from vgpud.predict.graph import Kind


def _kinds(kind: Kind, names: str) -> dict[str, Kind]:
    return dict.fromkeys(names.split(), kind)


#: of the standard domains; any other operator is unknown
KINDS: dict[str, Kind] = {
    **_kinds(graph.CONV, "Conv ConvTranspose ConvInteger QLinearConv DeformConv"),
    **_kinds(graph.MATMUL, "Gemm MatMul MatMulInteger QLinearMatMul Einsum"),
    **_kinds(graph.ATTENTION, "Attention"),
    **_kinds(graph.RNN, "LSTM GRU RNN"),
    **_kinds(graph.BATCH_NORM, "BatchNormalization InstanceNormalization GroupNormalization LpNormalization LRN"),
    **_kinds(graph.LAYER_NORM, "LayerNormalization RMSNormalization MeanVarianceNormalization"),
    **_kinds(graph.SOFTMAX, "Softmax LogSoftmax Hardmax"),
    **_kinds(graph.ACTIVATION, "Relu Sigmoid Tanh Clip HardSigmoid ThresholdedRelu"),
    **_kinds(graph.SMOOTH, "Gelu Elu Selu Celu LeakyRelu PRelu HardSwish Mish Softplus Softsign Swish"),
    **_kinds(graph.DROPOUT, "Dropout Bernoulli RandomNormalLike RandomUniformLike"),
    **_kinds(graph.MAX_POOL, "MaxPool GlobalMaxPool TopK MaxRoiPool"),
    **_kinds(graph.POOL, "AveragePool GlobalAveragePool LpPool Resize Upsample GridSample RoiAlign"),
    **_kinds(graph.PRODUCT, "Mul Div Max Min"),
    **_kinds(graph.CHOICE, "Where"),
    **_kinds(graph.POINTWISE, "Add Sub Neg Sum Mean Equal Not And Or Xor Less Greater LessOrEqual GreaterOrEqual"),
    **_kinds(graph.POINTWISE, "Floor Ceil Round Sign Mod IsNaN IsInf Trilu Pad BitwiseAnd BitwiseOr BitwiseNot"),
    **_kinds(graph.CURVE, "Exp Log Sqrt Reciprocal Pow Sin Cos Tan Abs Erf CumSum ReduceL1 ReduceL2 ReduceProd"),
    **_kinds(graph.CURVE, "ReduceLogSum ReduceLogSumExp ReduceSumSquare"),
    **_kinds(graph.REDUCE, "ReduceMean ReduceSum ReduceMax ReduceMin ArgMax ArgMin SoftmaxCrossEntropyLoss"),
    **_kinds(graph.REDUCE, "NegativeLogLikelihoodLoss"),
    **_kinds(graph.COPY, "Concat Transpose Tile GatherElements GatherND Cast CastLike ScatterND ScatterElements"),
    **_kinds(graph.COPY, "DepthToSpace SpaceToDepth Compress OneHot QuantizeLinear DequantizeLinear Scatter"),
    **_kinds(graph.VIEW, "Reshape Flatten Squeeze Unsqueeze Slice Split Identity Expand"),
    **_kinds(graph.SHAPE, "Shape Size Constant ConstantOfShape Range NonZero EyeLike RandomNormal RandomUniform"),
}
#: the names of the operators' own domain
DOMAINS = ("", "ai.onnx")


def kind_of(name: str, domain: str) -> Kind:
    return KINDS.get(name, graph.UNKNOWN) if domain in DOMAINS else graph.UNKNOWN
