"""Run by an interpreter with PyTorch, on a simulated device: a table of operators, each an expression.

Prints a JSON line for each: the expression, what it gave (shape, type, strides and first element of each tensor), and
the peak of memory. One that fails prints its error in place of these, and the program ends with 1.

The names in expressions: x, y (64 x 64), v (64), i (indices), b (booleans), h (half precision), c (complex), z
(double), t (sequences: 4 x 16 x 32), p (pictures: 2 x 8 x 16 x 16), k (filters: 8 x 8 x 3 x 3), w (volumes: 2 x 4 x 8 x
8 x 8), s (symmetric), F (torch.nn.functional), nn and torch; grad(f, tensor) is f's gradient.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

GPU = "cuda"

POINTWISE = """
x + y; x - 1; x * y; x / y; x // 2; x % 3; x ** 2; -x; x.abs(); x.sign(); x.exp(); x.exp2(); x.expm1(); x.log()
x.log2(); x.log10(); x.log1p(); x.sqrt(); x.rsqrt(); x.reciprocal(); x.square(); x.sin(); x.cos(); x.tan(); x.asin()
x.acos(); x.atan(); x.sinh(); x.cosh(); x.tanh(); x.asinh(); x.acosh(); x.atanh(); torch.atan2(x, y); x.sigmoid()
x.logit(0.1); x.erf(); x.erfc(); x.erfinv(); x.lgamma(); x.digamma(); x.floor(); x.ceil(); x.round(); x.trunc()
x.frac(); x.clamp(-1, 1); x.lerp(y, 0.5); torch.addcmul(x, x, y); torch.addcdiv(x, x, y); torch.hypot(x, y)
torch.copysign(x, y); torch.nextafter(x, y); torch.fmod(x, y); torch.remainder(x, y); torch.maximum(x, y)
torch.minimum(x, y); torch.i0(x); torch.xlogy(x, y); torch.logaddexp(x, y); torch.sinc(x); torch.heaviside(x, y)
torch.nan_to_num(x); torch.polygamma(1, x); x == y; x < y; x >= 0; torch.isnan(x); torch.isfinite(x)
torch.where(b, x, y); b & b; b | ~b; b ^ b; i << 1; i >> 1; x.masked_fill(b, 0.0); x.half(); x.bfloat16(); x.double()
x.long(); x.bool(); c.abs(); c.angle(); c.conj() * c; torch.view_as_real(c); torch.complex(x, y); x.clone().add_(1)
x.clone().mul_(y); x.clone().fill_(2); x.clone().zero_(); torch.bitwise_not(i); torch.gcd(i, i)
torch.special.bessel_j0(x); torch.special.ndtri(x.sigmoid()); torch.ldexp(v, i)
"""
REDUCTIONS = """
x.sum(); x.sum(0); x.mean(1); x.prod(); x.var(); x.std(0); x.norm(); x.norm(1, 0); x.max(); x.min(0); x.argmax(1)
x.amax(0); x.aminmax(); b.any(); b.all(0); x.median(); x.mode(0); x.quantile(0.5); x.logsumexp(1); x.cumsum(0)
x.cumprod(1); x.cummax(0); x.logcumsumexp(0); x.count_nonzero(); torch.std_mean(x); torch.dist(x, y); x.nansum()
x.kthvalue(3, 1); torch.histc(x, 8, -1, 1); torch.bincount(i, minlength=64); torch.trace(x); torch.cdist(x, y)
torch.renorm(x, 2, 0, 1.0)
"""
SHAPES = """
x.t().contiguous(); x.reshape(16, 256); torch.cat([x, y]); torch.stack([x, y], 1); x.split(16)[1]; x.chunk(4, 1)[2]
x.roll(3); x.flip(0); x.rot90(); x.tril(); x.triu(); x.diag(); v.diag(); x.repeat(2, 2); x.repeat_interleave(2, 0)
x.expand(3, 64, 64); x.unfold(0, 8, 8); x[::2, 1:5]; x[i]; x[:, i]; x[i, i]; x.gather(1, i.expand(64, 64))
x.index_select(0, i); x.take(i); x.scatter(1, i.expand(64, 64), y); x.scatter_add(0, i.expand(64, 64), y)
x.index_add(0, i, y); x.index_copy(0, i, y); x.index_fill(0, i, 1.0); x.clone().index_put_((i,), y)
x.masked_select(b); x.nonzero(); torch.sort(x, 1); x.argsort(0); x.topk(5); torch.unique(i); torch.searchsorted(v, x)
torch.bucketize(x, v); torch.meshgrid(v, v, indexing="ij"); torch.cartesian_prod(v, v); torch.block_diag(x, y)
F.pad(x, (1, 2)); F.pad(p, (1, 1, 1, 1), mode="reflect"); F.one_hot(i, 64); torch.tril_indices(8, 8, device=GPU)
torch.combinations(v[:8]); x.movedim(0, 1).contiguous(); torch.kron(v, v)
"""
PRODUCTS = """
x @ y; x @ v; v @ v; h @ h; z @ z; c @ c; torch.baddbmm(t, t @ t.mT, t); torch.addmm(x, x, y); torch.addmv(v, x, v)
torch.outer(v, v); torch.bmm(t, t.mT); torch.einsum("bij,bkj->bik", t, t); torch.tensordot(x, y, 1)
torch.matmul(t, t.mT); F.linear(x, y, v); F.bilinear(x, x, torch.ones(4, 64, 64, device=GPU))
torch.linalg.multi_dot([x, y, x]); x.matrix_power(3); torch.linalg.cholesky_ex(s); torch.linalg.qr(x)
torch.linalg.svd(x); torch.linalg.eigh(s); torch.linalg.solve_ex(s, x); torch.linalg.inv_ex(s)
torch.linalg.lu_factor_ex(x); torch.linalg.solve_triangular(x, y, upper=True); torch.linalg.vector_norm(x)
torch.fft.fft(x); torch.fft.rfft2(x); torch.fft.irfft(c); torch.fft.fftshift(x)
torch.stft(v.repeat(9), 32, return_complex=True)
"""
LAYERS = """
F.relu(x); F.gelu(x); F.silu(x); F.mish(x); F.elu(x); F.selu(x); F.celu(x); F.leaky_relu(x); F.prelu(x, v)
F.hardswish(x); F.hardtanh(x); F.softplus(x); F.softsign(x); F.glu(x); F.logsigmoid(x); F.threshold(x, 0, 0)
F.hardshrink(x); F.rrelu(x); F.softmax(x, 1); F.log_softmax(x, 1); F.dropout(x); F.alpha_dropout(x); F.normalize(x)
F.embedding(i, x); F.embedding_bag(i, x, i[:1] * 0); F.layer_norm(x, (64,)); F.rms_norm(x, (64,)); F.group_norm(p, 2)
F.instance_norm(p); F.batch_norm(p, None, None, training=True); F.local_response_norm(p, 2); F.conv2d(p, k)
F.conv2d(p, k[:, :1], groups=8); F.conv1d(t, t[:, :, :3]); F.conv3d(w, w[:, :, :3, :3, :3]); F.conv_transpose2d(p, k)
F.conv2d(p, k, dilation=2); F.unfold(p, 3); F.fold(F.unfold(p, 3), 16, 3); F.max_pool2d(p, 2); F.avg_pool2d(p, 2)
F.adaptive_avg_pool2d(p, 1); F.adaptive_max_pool2d(p, 3); F.max_pool3d(w, 2); F.lp_pool2d(p, 2.0, 2)
F.interpolate(p, scale_factor=2); F.interpolate(p, size=9, mode="bilinear")
F.interpolate(p, scale_factor=2, mode="bicubic")
F.grid_sample(p, p[:, :2].movedim(1, 3).contiguous(), align_corners=False)
F.affine_grid(torch.ones(2, 2, 3, device=GPU), [2, 8, 16, 16], False); F.pixel_shuffle(p, 2); F.channel_shuffle(p, 2)
F.cross_entropy(x, i); F.nll_loss(x, i); F.mse_loss(x, y); F.l1_loss(x, y); F.smooth_l1_loss(x, y); F.huber_loss(x, y)
F.binary_cross_entropy_with_logits(x, y); F.kl_div(x, y, reduction="batchmean"); F.cosine_similarity(x, y)
F.hinge_embedding_loss(x, y); F.triplet_margin_loss(x, y, x); F.cosine_embedding_loss(x, y, v.sign())
F.ctc_loss(t.log_softmax(2), i[:16].view(16, 1) + 1, [4] * 16, [1] * 16); F.scaled_dot_product_attention(t, t, t)
F.scaled_dot_product_attention(h.view(1, 4, 16, 64), h.view(1, 4, 16, 64), h.view(1, 4, 16, 64), is_causal=True)
nn.LSTM(32, 16, device=GPU)(t); nn.GRU(32, 16, 2, device=GPU)(t); nn.MultiheadAttention(32, 4, device=GPU)(t, t, t)
nn.TransformerEncoderLayer(32, 4, 64, device=GPU)(t); nn.TransformerDecoderLayer(32, 4, 64, device=GPU)(t, t)
"""
MAKERS = """
torch.zeros(9, device=GPU); torch.arange(9, device=GPU); torch.linspace(0, 1, 9, device=GPU); torch.eye(9, device=GPU)
torch.rand(9, device=GPU); torch.randn(9, device=GPU); torch.randint(0, 9, (9,), device=GPU)
torch.randperm(9, device=GPU); torch.bernoulli(x.sigmoid()); torch.multinomial(x.sigmoid(), 2, replacement=True)
torch.normal(x, 1.0); torch.poisson(x.abs()); x.clone().exponential_(); x.clone().uniform_(); x.clone().cauchy_()
x.clone().geometric_(0.5); torch.full((9,), 2.5, device=GPU); torch.tensor([1.0, 2.0], device=GPU)
torch.from_numpy(x.cpu().numpy()).to(GPU); x.to("cpu"); x.cpu().pin_memory().to(GPU, non_blocking=True)
"""
GRADIENTS = """
grad(lambda a: (a @ y).relu().sum(), x); grad(lambda a: F.conv2d(a, k).sum(), p)
grad(lambda a: F.conv2d(p, a).sum(), k); grad(lambda a: F.layer_norm(a, (64,)).sum(), x)
grad(lambda a: F.cross_entropy(a, i), x); grad(lambda a: F.max_pool2d(a, 2).sum(), p)
grad(lambda a: F.scaled_dot_product_attention(a, a, a).sum(), t); grad(lambda a: F.embedding(i, a).sum(), x)
grad(lambda a: F.batch_norm(a, None, None, training=True).sum(), p); grad(lambda a: a[i].sum(), x)
grad(lambda a: a.cumsum(0).sum(), x); grad(lambda a: F.interpolate(a, scale_factor=2, mode="bilinear").sum(), p)
grad(lambda a: a.softmax(1).norm(), x)
grad(lambda a: torch.logdet(a), s)
grad(lambda a: torch.fft.fft(a).abs().sum(), x)
"""
SPARSE = """
x.to_sparse_coo(); torch.sparse_coo_tensor(torch.stack([i, i]), v, (64, 64)).coalesce().to_dense()
torch.sparse_csr_tensor(torch.arange(65, device=GPU), i, v, (64, 64)) @ x
torch.sparse.mm(torch.sparse_coo_tensor(torch.stack([i, i]), v, (64, 64)), x)
"""
TABLE = (POINTWISE, REDUCTIONS, SHAPES, PRODUCTS, LAYERS, MAKERS, GRADIENTS, SPARSE)


def expressions() -> list[str]:
    return [one.strip() for part in TABLE for line in part.splitlines() for one in line.split("; ") if one.strip()]


def grad(compute: Any, tensor: torch.Tensor) -> torch.Tensor:
    leaf = tensor.detach().clone().requires_grad_()
    compute(leaf).backward()
    assert leaf.grad is not None
    return leaf.grad


def make_names() -> dict[str, Any]:
    x, y = torch.randn(64, 64, device=GPU), torch.randn(64, 64, device=GPU)
    pictures, filters = torch.randn(2, 8, 16, 16, device=GPU), torch.randn(8, 8, 3, 3, device=GPU)
    return {
        "x": x,
        "y": y,
        "v": torch.randn(64, device=GPU),
        "i": torch.zeros(64, dtype=torch.long, device=GPU),
        "b": torch.zeros(64, 64, dtype=torch.bool, device=GPU),
        "h": x.half(),
        "z": x.double(),
        "c": torch.zeros(64, 64, dtype=torch.complex64, device=GPU),
        "t": torch.randn(4, 16, 32, device=GPU),
        "p": pictures,
        "k": filters,
        "w": torch.randn(2, 4, 8, 8, 8, device=GPU),
        "s": x @ x.T,
        "F": functional,
        "nn": nn,
        "torch": torch,
        "GPU": GPU,
        "grad": grad,
    }


def describe(result: Any) -> Any:
    """What can be compared of tensors, also in tuples. The first element of a tensor that nothing computed is zero."""
    if isinstance(result, (tuple, list)):
        return [describe(one) for one in result]
    if not isinstance(result, torch.Tensor):
        return str(result)
    if result.layout != torch.strided:
        return [str(result.layout), list(result.shape), str(result.dtype)]
    first = str(result.detach().reshape(-1)[0].item()) if result.numel() and result.is_cuda else ""
    return [list(result.shape), str(result.dtype), list(result.stride()), first]


def main() -> int:
    warnings.simplefilter("ignore")
    names, failures = make_names(), 0
    for text in sys.argv[1:] or expressions():
        torch.cuda.reset_peak_memory_stats()
        try:
            made: list[Any] = [describe(eval(text, dict(names)))]  # noqa: S307  of the table above
            torch.cuda.synchronize()
            made += [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]
        except Exception as error:
            failures += 1
            made = [f"{type(error).__name__}: {error}"[:300]]
        print(json.dumps([text, *made]), flush=True)
    print(json.dumps(["free of the device", *torch.cuda.mem_get_info()]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
