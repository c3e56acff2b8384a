"""PyTorch's composite operations, written out in elementary ones, so that each of these can be rounded on its own.

The model calls ``F.layer_norm``, ``F.softmax`` and the like, whose insides no dispatch mode sees. The formulas are the
textbook ones, which MLX's kernels follow too; a test compares each with the operation that it stands for.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

DENSITY_AT_ZERO = 1 / math.sqrt(2 * math.pi)


def _softmax(x: Tensor, dim: int, _: bool) -> Tensor:
    exponentials = (x - x.amax(dim, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim, keepdim=True)


def _softmax_backward(grad: Tensor, output: Tensor, dim: int, _: torch.dtype) -> Tensor:
    products = grad * output
    return products - output * products.sum(dim, keepdim=True)


def _log_softmax(x: Tensor, dim: int, _: bool) -> Tensor:
    return x - _logsumexp(x, [dim], True)


def _log_softmax_backward(grad: Tensor, output: Tensor, dim: int, _: torch.dtype) -> Tensor:
    return grad - output.exp() * grad.sum(dim, keepdim=True)


def _logsumexp(x: Tensor, dim: list[int], keepdim: bool = False) -> Tensor:
    largest = x.amax(dim, keepdim=True)
    result = largest + (x - largest).exp().sum(dim, keepdim=True).log()
    return result if keepdim else result.squeeze(dim)


def _nll_loss(scores: Tensor, target: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return -scores.gather(1, target[:, None]).mean(), scores.new_tensor(target.numel())


def _nll_loss_backward(grad: Tensor, scores: Tensor, target: Tensor, *_: Any) -> Tensor:
    share = -grad / target.numel()
    return torch.zeros_like(scores).scatter(1, target[:, None], share.expand(target.numel(), 1))


def _layer_norm(x: Tensor, _: Sequence[int], weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    inverse = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    return centred * inverse * weight + bias, mean, inverse


def _layer_norm_backward(grad: Tensor, x: Tensor, _: Sequence[int], *saved: Any) -> tuple[Tensor, Tensor, Tensor]:
    mean, inverse, weight = saved[:3]
    rows = list(range(x.dim() - 1))
    normalised = (x - mean) * inverse
    scaled = grad * weight
    along = scaled.mean(-1, keepdim=True) + normalised * (scaled * normalised).mean(-1, keepdim=True)
    return (scaled - along) * inverse, (grad * normalised).sum(rows), grad.sum(rows)


def _gelu(x: Tensor) -> Tensor:
    return x * _normal_distribution(x)


def _gelu_backward(grad: Tensor, x: Tensor) -> Tensor:
    density = (x.square() * -0.5).exp() * DENSITY_AT_ZERO
    return grad * (_normal_distribution(x) + x * density)


def _normal_distribution(x: Tensor) -> Tensor:
    return ((x * math.sqrt(0.5)).erf() + 1) * 0.5


def _silu(x: Tensor) -> Tensor:
    return x * x.sigmoid()


def _silu_backward(grad: Tensor, x: Tensor) -> Tensor:
    share = x.sigmoid()
    return grad * (share * (x * (1 - share) + 1))


def _binary_cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return (x.clamp_min(0) - x * target + (-x.abs()).exp().log1p()).mean()


def _addmm(bias: Tensor, left: Tensor, right: Tensor) -> Tensor:
    return left.mm(right) + bias


def _mean(x: Tensor, dim: list[int] | None = None, keepdim: bool = False) -> Tensor:
    total = x.sum(dim, keepdim)
    return total / (x.numel() // total.numel())


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten._softmax: _softmax,
    aten._softmax_backward_data: _softmax_backward,
    aten._log_softmax: _log_softmax,
    aten._log_softmax_backward_data: _log_softmax_backward,
    aten.addmm: _addmm,
    aten.binary_cross_entropy_with_logits: _binary_cross_entropy,
    aten.gelu: _gelu,
    aten.gelu_backward: _gelu_backward,
    aten.logsumexp: _logsumexp,
    aten.mean: _mean,
    aten.native_layer_norm: _layer_norm,
    aten.native_layer_norm_backward: _layer_norm_backward,
    aten.nll_loss_forward: _nll_loss,
    aten.nll_loss_backward: _nll_loss_backward,
    aten.silu: _silu,
    aten.silu_backward: _silu_backward,
}
