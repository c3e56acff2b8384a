"""What is edited in a file to make it wrong: a table, by the part of the file."""

import json
from collections.abc import Callable
from typing import Any

from tinygpt.durability.forgery import Parts
from tinygpt.tinygpt_file.checksum import FIELD, ZEROS

Edit = Callable[[Parts], None]

_LEAF = "model.norm.weight"
_DEEP = 100_000


def _set(*path: Any, to: Any) -> Edit:
    """Return an edit that puts a value into the header."""

    def edit(parts: Parts) -> None:
        *ahead, last = path
        place = parts.header
        for name in ahead:
            place = place[name]
        place[last] = to

    return edit


def _drop(*path: Any) -> Edit:
    """Return an edit that removes a value from the header."""

    def edit(parts: Parts) -> None:
        *ahead, last = path
        place = parts.header
        for name in ahead:
            place = place[name]
        del place[last]

    return edit


def _replace(value: Any) -> Edit:
    """Return an edit that puts a value in place of the header."""
    return lambda parts: setattr(parts, "header", value)


def _entry(name: str, **values: Any) -> Edit:
    """Return an edit of the entry of a tensor."""
    return lambda parts: parts.entries[name].update(values)


def _swap_shapes(parts: Parts) -> None:
    shape = parts.entries["model.token_embedding.weight"]["shape"]
    shape.reverse()


def _shift(parts: Parts) -> None:
    for entry in parts.entries.values():
        entry["data_offsets"] = [offset + 4 for offset in entry["data_offsets"]]


def _overlap(parts: Parts) -> None:
    parts.entries[_LEAF]["data_offsets"] = list(parts.entries["model.norm.bias"]["data_offsets"])


def _rename(parts: Parts) -> None:
    parts.entries["model.norm.gain"] = parts.entries.pop(_LEAF)


def _metadata(**values: Any) -> Edit:
    return lambda parts: parts.metadata.update(values)


def _grow_model(parts: Parts) -> None:
    """Ask for a model that no machine can make, of a shape that agrees with itself."""
    parts.header["model"]["n_layer"] = (1 << 31) - 1


_CHANGE = {"step": 1, "field": "policy", "before": "none", "after": "all"}

HEADER_EDITS: dict[str, Edit] = {
    "no object": _replace([]),
    "null": _replace(None),
    "a number": _replace(1),
    "nested deeply": _set("data", "corpus", to=json.loads("[" * 500 + "]" * 500)),
    "version missing": _drop("version"),
    "version 0": _set("version", to=0),
    "version 4": _set("version", to=4),
    "version true": _set("version", to=True),
    "version as text": _set("version", to="3"),
    "version 1 without its flag": _set("version", to=1),
    "version 2 with what came later": _set("version", to=2),
    "something surplus": _set("surplus", to=1),
    "step missing": _drop("step"),
    "step negative": _set("step", to=-1),
    "step as text": _set("step", to="2"),
    "step huge": _set("step", to=1 << 64),
    "step of another time": lambda parts: (_set("step", to=3)(parts), _set("data", "position", to=3)(parts), None)[2],
    "position of another time": _set("data", "position", to=3),
    "policy unknown": _set("policy", to="some"),
    "policy with zero": _set("policy", to="every:0"),
    "policy no text": _set("policy", to=["all"]),
    "wrapper unknown": _set("wrapper", to="mine"),
    "dtype unknown": _set("dtype", to="float64"),
    "dtype of another width": _set("dtype", to="bfloat16"),
    "dtype no text": _set("dtype", to=None),
    "model missing": _drop("model"),
    "model null": _set("model", to=None),
    "model with something surplus": _set("model", "surplus", to=1),
    "model without a field": _drop("model", "n_head"),
    "n_layer 0": _set("model", "n_layer", to=0),
    "n_layer 2": _set("model", "n_layer", to=2),
    "n_layer huge": _grow_model,
    "n_embd negative": _set("model", "n_embd", to=-2),
    "n_embd huge": _set("model", "n_embd", to=1 << 30),
    "n_embd a fraction": _set("model", "n_embd", to=2.0),
    "n_expert huge": _set("model", "n_expert", to=1 << 30),
    "vocab_size 255": _set("model", "vocab_size", to=255),
    "attention unknown": _set("model", "attention", to="linear"),
    "attention an object": _set("model", "attention", to={"kind": "softmax"}),
    "dropout 1": _set("model", "dropout", to=1),
    "batch of more than MLX counts": _set("training", "batch", to=10**11),
    "clip_norm beyond float32": _set("training", "clip_norm", to=10**39),
    "vocab_size below the bytes": _set("model", "vocab_size", to=100),
    "corpus that no system can name": _set("data", "corpus", to="/\ud800"),
    "change from infinity": _set("changes", to=[{**_CHANGE, "before": float("inf")}]),
    "batch 0": _set("training", "batch", to=0),
    "context beyond the model": _set("training", "context", to=3),
    "steps as text": _set("training", "steps", to="100"),
    "compile 1": _set("training", "compile", to=1),
    "learning_rate 0": _set("training", "learning_rate", to=0),
    "learning_rate of 400 digits": _set("training", "learning_rate", to=10**400),
    "seed negative": _set("training", "seed", to=-1),
    "training an array": _set("training", to=[]),
    "optimizer another": _set("optimizer", "name", to="SGD"),
    "optimizer with other betas": _set("optimizer", "betas", to=[0.9, 0.99]),
    "optimizer null": _set("optimizer", to=None),
    "data missing": _drop("data"),
    "tokenizer another": _set("data", "tokenizer", to="bpe"),
    "corpus a number": _set("data", "corpus", to=7),
    "corpus with a zero byte": _set("data", "corpus", to="a\0b"),
    "corpus without a name": _set("data", "corpus", to=""),
    "sha256 short": _set("data", "sha256", to="ab"),
    "size_bytes negative": _set("data", "size_bytes", to=-1),
    "changes an object": _set("changes", to={}),
    "change with something surplus": _set("changes", to=[{**_CHANGE, "why": ""}]),
    "change of a negative step": _set("changes", to=[{**_CHANGE, "step": -1}]),
    "change to an array": _set("changes", to=[{**_CHANGE, "after": []}]),
    "written_by an array": _set("written_by", to=[]),
    "written_by a number": _set("written_by", "mlx", to=32),
}

ENTRY_EDITS: dict[str, Edit] = {
    "a shape in another order": _swap_shapes,
    "a shape with a negative size": _entry(_LEAF, shape=[-2]),
    "a shape with a huge size": _entry(_LEAF, shape=[1 << 61]),
    "a shape of a thousand sizes": _entry(_LEAF, shape=[1] * 1000),
    "a shape that is a number": _entry(_LEAF, shape=2),
    "a shape of fractions": _entry(_LEAF, shape=[2.0]),
    "a shape of true": _entry(_LEAF, shape=[True, 2]),
    "a shape nested deeply": _entry(_LEAF, shape=json.loads("[" * 500 + "]" * 500)),
    "an unknown dtype": _entry(_LEAF, dtype="F31"),
    "a dtype of another width": _entry(_LEAF, dtype="BF16"),
    "a dtype of the same width": _entry(_LEAF, dtype="U32"),
    "a dtype that is null": _entry(_LEAF, dtype=None),
    "negative offsets": _entry(_LEAF, data_offsets=[-8, 0]),
    "offsets in reverse": _entry(_LEAF, data_offsets=[8, 0]),
    "offsets beyond the file": _entry(_LEAF, data_offsets=[1 << 40, (1 << 40) + 8]),
    "offsets beyond 64 bits": _entry(_LEAF, data_offsets=[1 << 70, (1 << 70) + 8]),
    "one offset": _entry(_LEAF, data_offsets=[0]),
    "offsets that are text": _entry(_LEAF, data_offsets=["0", "8"]),
    "overlapping offsets": _overlap,
    "a hole before the tensors": _shift,
    "a tensor of another name": _rename,
    "a tensor missing": lambda parts: parts.entries.pop(_LEAF) and None,
    "a tensor surplus": lambda parts: parts.entries.update(x={"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}),
    "an entry that is null": lambda parts: parts.entries.update({_LEAF: None}),
    "an entry with something surplus": _entry(_LEAF, why=1),
    "a name of a million letters": lambda parts: parts.entries.update({"x" * 1_000_000: None}),
    "a name with a line break": lambda parts: parts.entries.update({"a\nb\x1b[31m": None}),
    "metadata with a number": _metadata(format=1),
}

_EMPTY = b'{"__metadata__":{"tinygpt":"{}","%s":"%s"}}' % (FIELD.encode(), ZEROS.encode())

TEXTS: dict[str, bytes] = {
    "empty": b"",
    "spaces": b" " * 64,
    "no JSON": b"PK\x03\x04" * 16,
    "no UTF-8": b'{"\xff\xfe":1}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "a byte-order mark": b"\xef\xbb\xbf{}",
    "an array": b"[]",
    "an empty object": b"{}",
    "metadata only": _EMPTY,
    "metadata that is an array": b'{"__metadata__":[]}',
    "metadata that is null": b'{"__metadata__":null}',
    "metadata twice": b'{"__metadata__":{},"__metadata__":{}}',
    "a tensor twice": b'{"a":1,"a":1}',
    "not a number": b'{"__metadata__":{"a":NaN}}',
    "infinity": b'{"a":Infinity}',
    "a number of 5,000 digits": b'{"a":' + b"9" * 5000 + b"}",
    "a number beyond floats": b'{"a":1e999}',
    "nested deeply": b"[" * _DEEP + b"]" * _DEEP,
    "objects nested deeply": b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
    "a million names": b"{" + b",".join(b'"%d":0' % number for number in range(300_000)) + b"}",
    "a million empty objects": b'{"a":[' + b"{}," * 1_300_000 + b"{}]}",
    "an unfinished text": b'{"a":"',
    "a lone surrogate": b'{"__metadata__":{"tinygpt":"\\ud800"}}',
    "a header with a lone surrogate": b'{"__metadata__":{"tinygpt":"{\\"version\\":\\"\\ud800\\"}","sha256":"0"}}',
    "two checksums": _EMPTY.replace(b"}}", b',"x":{"sha256":"0"}}}'),
}
