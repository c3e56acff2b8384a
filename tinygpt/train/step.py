"""One training step that needs little memory: gradients, then an update in place.

The usual step is compiled whole, with model and optimizer as captured state. It holds old and new state at
once and peaks at 5.2 bytes a byte of parameters, whatever the activations need. Here the gradients are one
compiled function and the update is another, and everything that the update replaces is let go before it is
evaluated, so that MLX writes the new state into the old buffers: weights, two moments and gradients, little
above the floor of 4.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import mlx.core as mx
import mlx.optimizers as optim
from mlx.utils import tree_map, tree_unflatten

from tinygpt.checkpointing import random_state
from tinygpt.environment import backend
from tinygpt.errors import TrainingError
from tinygpt.leaves import leaves
from tinygpt.model import GPT, Losses, next_token_loss, training_loss
from tinygpt.train.buckets import buckets
from tinygpt.train.parts import Parts
from tinygpt.train.ranks import Ranks

Tree = dict[str, Any]


@dataclass
class Gradients:
    """The result of the first half of a step; the second half takes it apart.

    Attributes:
        loss: Mean cross entropy of the batch, in nats; the auxiliary losses are not in it.
        norm: Global norm of the gradients before clipping.
        tree: Gradients of the training loss by parameter, not clipped yet.
        auxiliary: Each auxiliary loss by name, summed over the blocks, before its weight.
    """

    loss: mx.array
    norm: mx.array
    tree: Tree
    auxiliary: Losses = field(default_factory=dict)


class TrainStep:
    """A function from a batch to its loss that trains the model by one step."""

    def __init__(
        self,
        model: GPT,
        optimizer: optim.AdamW,
        *,
        blocks: Sequence[Callable[..., Any]] | None = None,
        clip_norm: float = 0.0,
        compiled: bool = True,
        ranks: Ranks | None = None,
        accumulate: int = 1,
    ) -> None:
        """Prepare a step.

        Args:
            model: What is trained.
            optimizer: Its state is initialised here.
            blocks: What to call instead of the model's own blocks.
            clip_norm: Largest global norm of the gradients; 0 for no clipping.
            compiled: Whether both halves are compiled.
            ranks: Who else trains on the same batch; nobody if not given.
            accumulate: How many parts this rank's share of it is divided into.
        """
        self._model = model
        self._optimizer = optimizer
        self._blocks = blocks
        self._clip_norm = clip_norm
        self._ranks = Ranks() if ranks is None else ranks
        self._parts = Parts(self._ranks.rank, self._ranks.size, accumulate)
        optimizer.init(model.trainable_parameters())
        mx.eval(model.parameters(), optimizer.state)
        self._compute_gradients = _gradients_and_norm(mx.value_and_grad(self._loss))
        self._compute_update = self._updated
        if compiled:
            state = [mx.random.state]  # dropout draws from it
            self._compute_gradients = mx.compile(self._compute_gradients, inputs=state, outputs=state)
            self._compute_update = mx.compile(self._compute_update)

    def __call__(self, tokens: mx.array) -> mx.array:
        """Train on one batch and return its loss, evaluated.

        Shape:
            (B, T + 1) integers: the tokens, and after each the one to predict.

        Raises:
            TrainingError: The update would change the dtype of a weight or a moment.
        """
        gradients = self.gradients(tokens)
        self.update(gradients)
        return gradients.loss

    def gradients(self, tokens: mx.array) -> Gradients:
        """Return the gradients of one batch, the same on every rank, evaluated; the model stays as it is."""
        with random_state.restored_on_error():
            return _evaluated(self._of(tokens)) if self._parts.total == 1 else self._of_parts(tokens)

    def _of_parts(self, tokens: mx.array) -> Gradients:
        """Return the mean of what the parts of a batch give, of which this rank does its own.

        The masks of a part are drawn from a key of its own, and what is left of the random state is the same on all
        ranks: so the numbers do not depend on who does which part.
        """
        size = len(tokens) // self._parts.total
        *keys, rest = mx.random.split(random_state.read(), self._parts.total + 1)
        total: Gradients | None = None
        for part in self._parts.own:
            random_state.write(keys[part])
            found = self._of(tokens[part * size : (part + 1) * size])
            found = found if total is None else _sum(total, found)
            # Evaluated before the next part begins, or a GPU would have both in flight.
            total = _evaluated(self._averaged(found) if part == self._parts.own[-1] else _bucketwise(found))
        random_state.write(rest)
        return cast("Gradients", total)

    def _averaged(self, total: Gradients) -> Gradients:
        """Return the mean over the parts of this rank, and over all ranks."""

        def averaged(given: list[mx.array]) -> list[mx.array]:
            return cast("list[mx.array]", self._ranks.averaged(_mean(given, self._parts.accumulate)))

        tree = _bucketwise(total, averaged).tree
        loss, *auxiliary = averaged([total.loss, *total.auxiliary.values()])
        # What was averaged lies row by row, what was not perhaps column by column: it is added up alike.
        norm = _norm(tree_map(lambda array: array.reshape(-1), tree))
        return Gradients(loss, norm, tree, dict(zip(total.auxiliary, auxiliary, strict=True)))

    def _of(self, tokens: mx.array) -> Gradients:
        """Return the gradients of some rows, not evaluated."""
        parameters = self._model.trainable_parameters()
        # MLX puts its tracers into the tree that it is given, and leaves them there after an exception: so it
        # gets another one.
        given = tree_map(lambda weight: weight, parameters)
        try:
            return Gradients(*self._compute_gradients(given, tokens))
        finally:
            self._model.update(parameters)  # instead of the tracers that it was run with

    def update(self, gradients: Gradients) -> None:
        """Clip the gradients and apply them; their tree is empty afterwards."""
        tree, gradients.tree = gradients.tree, {}
        parameters, state = self._model.trainable_parameters(), self._optimizer.state
        new_parameters, new_state = self._compute_update(parameters, tree, state, gradients.norm)
        _check_dtypes({"weights": parameters, "moments": state}, {"weights": new_parameters, "moments": new_state})
        self._model.update(new_parameters)
        self._optimizer.state = new_state
        del tree, parameters, state  # now nobody else holds the old buffers, and the new state is written into them
        mx.eval(new_parameters, new_state)

    def _loss(self, parameters: Tree, tokens: mx.array) -> tuple[mx.array, mx.array, Losses]:
        """Return what is differentiated, and what is reported."""
        self._model.update(parameters)
        logits, auxiliary = self._model(tokens[:, :-1], self._blocks)
        loss = next_token_loss(logits, tokens[:, 1:])
        return training_loss(self._model.config, loss, auxiliary), loss, auxiliary

    def _updated(self, parameters: Tree, gradients: Tree, state: Tree, norm: mx.array) -> tuple[Tree, Tree]:
        """Return the parameters and the optimizer's state after the update."""
        if self._clip_norm:
            factor = mx.minimum(self._clip_norm / (norm + 1e-6), 1.0)
            # In the gradient's own dtype: a float32 factor would turn everything into float32.
            gradients = tree_map(lambda gradient: gradient * factor.astype(gradient.dtype), gradients)
        self._optimizer.state = state
        return self._optimizer.apply_gradients(gradients, parameters), self._optimizer.state


def _gradients_and_norm(
    value_and_grad: Callable[..., tuple[tuple[mx.array, mx.array, Losses], Tree]],
) -> Callable[[Tree, mx.array], tuple[mx.array, mx.array, Tree, Losses]]:
    def compute(parameters: Tree, tokens: mx.array) -> tuple[mx.array, mx.array, Tree, Losses]:
        (_, loss, auxiliary), gradients = value_and_grad(parameters, tokens)
        return loss, _norm(gradients), gradients, auxiliary

    return compute


def _norm(tree: Tree) -> mx.array:
    """Return the global norm of gradients."""
    squares = [gradient.astype(mx.float32).square().sum() for gradient in leaves(tree).values()]
    return mx.sqrt(sum(squares, start=mx.array(0.0)))


def _mean(sums: list[mx.array], count: int) -> list[mx.array]:
    """Return sums divided by how many were added."""
    return sums if count == 1 else [array / count for array in sums]


def _bucketwise(
    gradients: Gradients, finish: Callable[[list[mx.array]], list[mx.array]] = lambda bucket: bucket
) -> Gradients:
    """Evaluate losses and gradients, the latter bucket by bucket, each as ``finish`` returns it; their norm is lost.

    On a GPU the next bucket is queued while one travels. On the CPU, waiting keeps the peak low.
    """
    evaluate = mx.eval if backend() == "cpu" else mx.async_eval
    gradients.norm = mx.array(math.nan)  # or that of this part would hold all of them until the end
    waiting, gradients.tree = leaves(gradients.tree), {}
    done: dict[str, mx.array] = {}
    for names in buckets(waiting):
        bucket = finish([waiting.pop(name) for name in names])
        evaluate(bucket, gradients.loss, gradients.auxiliary)  # losses that are not evaluated hold activations
        done.update(zip(names, bucket, strict=True))
    gradients.tree = cast("Tree", tree_unflatten(list(done.items())))
    return gradients


def _sum(one: Gradients, other: Gradients) -> Gradients:
    """Return a sum that is written into the buffers of the first; the trees of both are empty afterwards."""
    pair, one.tree, other.tree = (one.tree, other.tree), {}, {}
    tree = tree_map(mx.add, *pair)
    auxiliary = {name: value + other.auxiliary[name] for name, value in one.auxiliary.items()}
    return Gradients(one.loss + other.loss, one.norm, tree, auxiliary)


def _evaluated(gradients: Gradients) -> Gradients:
    mx.eval(gradients.loss, gradients.norm, gradients.tree, gradients.auxiliary)
    return gradients


def _check_dtypes(before: Tree, after: Tree) -> None:
    expected = leaves(before)
    for name, array in leaves(after).items():
        if array.dtype != expected[name].dtype:
            raise TrainingError(f"[train] dtype of {name}: got {array.dtype}, expected {expected[name].dtype}")
