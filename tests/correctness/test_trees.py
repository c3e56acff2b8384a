import collections
import dataclasses

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing.trees import Structure

Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass(frozen=True)
class Box:
    inside: object


class Many(list):
    pass


def test_structure_rebuilds_every_container_with_its_type():
    """Arrays go back into their places; types, order and everything else stay."""
    module = nn.Linear(2, 2)
    counts = collections.defaultdict(int, {"a": mx.array(1)})
    tree = (
        Pair(mx.array(2), None),
        [mx.array(3), "word", module],
        {"b": Box(mx.array(4)), "c": counts},
        Many([mx.array(5)]),
    )

    structure = Structure(tree)
    rebuilt = structure.fill([array * 10 for array in structure.arrays])

    pair, items, boxes, many = rebuilt
    assert [array.item() for array in structure.arrays] == [2, 3, 4, 1, 5]
    assert (type(pair), pair.first.item(), pair.second) == (Pair, 20, None)
    assert (items[0].item(), items[1]) == (30, "word")
    assert items[2] is module
    assert boxes["b"].inside.item() == 40
    assert (boxes["c"]["a"].item(), boxes["c"]["missing"]) == (10, 0)
    assert (type(many), many[0].item()) == (Many, 50)


def test_structure_does_not_see_later_changes():
    """A container changed afterwards, or an array written in place, is not what is filled in."""
    array, items = mx.array([1.0, 2.0]), []
    items.append(array)
    structure = Structure(items)

    array += 1
    items.append("more")

    assert structure.arrays[0].tolist() == [1, 2]
    assert len(structure.fill(structure.arrays)) == 1


def test_structure_names_the_other_leaves():
    """What is not an array is listed, modules too, and modules are not entered."""
    module = nn.Linear(2, 2)

    assert Structure([1, {"a": module}, mx.array(1), None]).others == [1, module, None]
