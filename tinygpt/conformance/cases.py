"""What checks and experiments run: small models, batches, and losses that wrap parts of a model.

Every batch has more than one sequence: some faults show in the second only. Classes are made anew by ``fresh`` where a
wrapper is judged, so that one that patches a class does not reach the next model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import mlx.core as mx
import mlx.nn as nn

WIDTH = 8
SHAPE = (3, 5, WIDTH)

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Case:
    """A model, a batch, and a loss that runs parts of the model under a wrapper.

    Attributes:
        name: What reports call it.
        build: Makes the model and the batch from the random state.
        loss: Called with model, wrapper and batch; returns a scalar, or a tuple whose first element is one.
    """

    name: str
    build: Callable[[], tuple[nn.Module, tuple[Any, ...]]]
    loss: Callable[..., Any]

    def __str__(self) -> str:
        """Return the name."""
        return self.name


class MLPBlock(nn.Module):
    """A pre-norm feed-forward block with a residual, (..., D) to (..., D), through (..., 4 D)."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        """Make a block of width D."""
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def __call__(self, x: mx.array) -> mx.array:
        """Return the stream after the block."""
        return x + self.dropout(self.narrow(nn.gelu(self.widen(self.norm(x)))))


class Block(nn.Module):
    """Two layers, a softmax between them and a residual, (..., D) to (..., D): little for ``mx.compile`` to do.

    MLX's CPU backend calls a C++ compiler for every chain of elementwise operations, which takes a second. Here there
    are few.
    """

    def __init__(self, dropout: float = 0.0, width: int = WIDTH) -> None:
        """Make a block of width D."""
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def __call__(self, x: mx.array) -> mx.array:
        """Return the stream after the block."""
        return x + self.dropout(self.branch(x))

    def branch(self, x: mx.array) -> mx.array:
        """Return what is added to the stream."""
        return self.second(mx.softmax(self.first(x), axis=-1))


def energy(y: mx.array) -> mx.array:
    """Return a loss: the sum of all squares, as a matrix product, in float32."""
    flat: mx.array = y.astype(mx.float32).reshape(-1)
    return flat @ flat


class SoftmaxBlock(nn.Module):
    """Square layers, each with a softmax behind it, (N, D) to (N, D).

    What it keeps is whole arrays of the input's size that ``mx.compile`` cannot fuse away, and its weights are small
    beside them: so its peak is a whole number of inputs, the same on every machine.
    """

    LAYERS = 3  # with fewer, a block has not enough operations for its peak to be met at a fixed place of a group

    def __init__(self, width: int) -> None:
        """Make a block of width D."""
        super().__init__()
        self.layers = [nn.Linear(width, width, bias=False) for _ in range(self.LAYERS)]

    def __call__(self, x: mx.array) -> mx.array:
        """Return the stream after the block."""
        for layer in self.layers:
            x = mx.softmax(layer(x), axis=-1)
        return x


class Stack(nn.Module):
    """Blocks one after another, and whatever else a case gives it."""

    def __init__(self, blocks: Sequence[nn.Module], **extra: Any) -> None:
        """Keep the blocks, and ``extra`` as attributes."""
        super().__init__()
        self.blocks = list(blocks)
        for name, value in extra.items():
            setattr(self, name, value)

    def __call__(self, x: mx.array, blocks: Sequence[Callable[..., Any]] | None = None) -> mx.array:
        """Run the blocks, or what is given instead of them."""
        for block in self.blocks if blocks is None else blocks:
            x = block(x)
        return x


def fresh(cls: type[M]) -> type[M]:
    """Return a class of its own that behaves like another."""
    return type(cls.__name__, (cls,), {"__doc__": cls.__doc__})


def two_blocks(*, dropout: float = 0.0, dtype: mx.Dtype = mx.float32, **extra: Any) -> tuple[Stack, tuple[mx.array]]:
    """Return two blocks of a fresh class in a model with ``extra`` arrays or layers, and a batch of SHAPE."""
    block = fresh(Block)
    model = Stack([block(dropout), block(dropout)], **extra)
    model.set_dtype(dtype)
    return model, (mx.random.normal(SHAPE).astype(dtype),)


def in_turn(model: Stack, wrap: Callable[..., Any], x: mx.array) -> tuple[mx.array, mx.array]:
    """Run every block of a model under the wrapper; return a loss and the output."""
    y = model(x, [wrap(block) for block in model.blocks])
    return energy(y), y


TWO_BLOCKS = Case("two blocks", two_blocks, in_turn)


def mlp_stack(depth: int, *, width: int = 64, tokens: int = 256) -> tuple[Stack, mx.array]:
    """Return ``depth`` MLP blocks and an input of shape (tokens, width), evaluated, the same every time."""
    mx.random.seed(0)
    model, x = Stack([MLPBlock(width) for _ in range(depth)]), mx.random.normal((tokens, width))
    mx.eval(model.parameters(), x)
    return model, x


def softmax_stack(
    depth: int, *, block: type[SoftmaxBlock] = SoftmaxBlock, width: int = 4, tokens: int = 256
) -> tuple[Stack, mx.array]:
    """Return ``depth`` softmax blocks, of a class of their own, and an input of shape (tokens, width), likewise."""
    mx.random.seed(0)
    block = fresh(block)
    model, x = Stack([block(width) for _ in range(depth)]), mx.random.normal((tokens, width))
    mx.eval(model.parameters(), x)
    return model, x
