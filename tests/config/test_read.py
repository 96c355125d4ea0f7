"""What each kind of field takes and refuses, written down from the program before fields named their kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from attn_exp.config.inputs import PICKLES, Embeddings
from attn_exp.config.kinds import Says, above, at_least, choice, make
from attn_exp.config.schema import read_config
from attn_exp.problem import files
from tests.refusal import refusal

NEEDED = {"embeddings": {}, "variant": {"m": {"form": "matrix"}}}
FIGURE = {"quantity": "Q", "printed": "1", "stage": "q"}
HUGE = 10**400

TAKEN = [
    ("seed", 2**70, 2**70),
    ("scale", 2, 2.0),
    ("align", "bottom_right", "bottom_right"),
    ("check", "mask", ("mask",)),
    ("check", ["mask", "none"], ("mask",)),
    ("check", None, ()),
    ("notes", ["a", 1, True], ("a", "1", "true")),
    ("mask", {"causal": None}, {"causal": {}}),
    ("embeddings", {"text": "???"}, Embeddings(text="???")),
    ("figures", {"format": "pdf"}, ("pdf",)),
    ("figures", {"format": ["png", "png", "svg"]}, ("png", "svg")),
]

REFUSED = [
    ({"seed": -1}, "seed=-1: expected a whole number of at least 0"),
    ({"head": 0}, "head=0: expected a whole number of at least 1"),
    ({"scale": "maybe"}, "scale=maybe: expected true, false, or the multiplier as a number"),
    ({"bias": 1}, "bias=1: expected true or false"),
    ({"align": "left"}, "unknown align 'left'; did you mean top_left? choose one of top_left, bottom_right"),
    ({"mask": "causal"}, "mask=causal: expected a name and its settings"),
    ({"notes": "a"}, "notes=a: expected a list of words, such as [a,b]"),
    ({"output_dir": " "}, "output_dir= : expected a folder, such as outputs, or . for the current one"),
    ({"heads": 2}, "unknown setting 'heads'; did you mean head? choose one of "),
    ({"embeddings": 5}, "embeddings=5: expected settings, got a plain value"),
    (
        {"embeddings": {"tokens": True}},
        "embeddings.tokens=true: expected a list of names, their number, or a file of names",
    ),
    ({"embeddings": {"tokens": []}}, "embeddings.tokens=[]: expected at least one name"),
    ({"embeddings": {"text": "[[a],[b]]"}}, "embeddings.text=[[a],[b]]: expected one sentence; -m runs several"),
    ({"embeddings": {"memory": []}}, "embeddings.memory=[]: expected a number of tokens, words, vectors such as"),
    (
        {"embeddings": {"tokens": 1.5}},
        "embeddings.tokens=1.5: expected a list of names, their number, or a file of names",
    ),
    (
        {"embeddings": {"distribution": "gauss"}},
        "unknown embeddings.distribution 'gauss'; choose one of normal, uniform",
    ),
    ({"embeddings": {"vectors": {"shape": [1, 2]}}}, "embeddings.vectors.distribution is missing"),
    ({"projections": {"spread": HUGE}}, "expected a finite number"),
    ({"figures": {"width": 100}}, "figures.width=100: expected a number from 3 to 20"),
    ({"figures": {"format": []}}, "figures.format=[]: expected at least one of png, svg, pdf"),
    ({"sweep": {"name": "a/b"}}, "sweep.name=a/b: expected a folder name made of letters, digits, dots and dashes"),
    ({"variant": 5}, "variant=5: expected a name and its settings"),
    ({"published": {"a": 1}}, "published={a:1}: expected a list"),
    (
        {"published": [{**FIGURE, "inputs": 5}]},
        "published[0].inputs=5: expected a mapping with the keys q, k, v, weights",
    ),
    ({"variant": {"m": {"form": "matrix", "head": 0}}}, "variant.m.head=0: expected a whole number of at least 1"),
    ({"published": [{"quantity": "Q", "printed": "???"}]}, "published[0].printed is missing"),
    ({"published": [{**FIGURE, "head": 0}]}, "published[0].head=0: expected a whole number of at least 1"),
    ({"published": [{**FIGURE, "inputs": {"x": 1}}]}, "unknown setting 'published[0].inputs.x'"),
]


@pytest.mark.parametrize(("name", "value", "expected"), TAKEN)
def test_what_is_taken(name: str, value: Any, expected: Any) -> None:
    settings = getattr(read_config({**NEEDED, name: value}), name)
    assert (settings.format if name == "figures" else settings) == expected


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    assert message in refusal(read_config, {**NEEDED, **values})


LIMITS = [
    ("past", 0, -1),
    ("kv_head", 1, 0),
    ("figures.width", 3, 2.99),
    ("figures.width", 20, 20.1),
    ("figures.height", 2, 1.99),
    ("figures.height", 20, 20.1),
    ("figures.font_size", 4, 3.99),
    ("figures.font_size", 48, 48.1),
    ("sweep.workers", 1, 0),
    ("sweep.chunk", 1, 0),
    ("sweep.matters.entropy", 0, -0.1),
    ("embeddings.memory.tokens", 1, 0),
]


@pytest.mark.parametrize(("key", "taken", "refused"), LIMITS)
def test_the_last_number_that_is_taken(key: str, taken: Any, refused: Any) -> None:
    for name in reversed(key.split(".")):
        taken, refused = ({name: value} for value in (taken, refused))
    read_config(NEEDED | taken)
    assert f"{key}=" in refusal(read_config, NEEDED | refused)


@dataclass(frozen=True)
class Plain:
    """A class as a newcomer writes it: some fields name their kind, some have only a type."""

    step: Annotated[int, at_least(1), Says("how far")] = 2
    rate: Annotated[float, above(0)] = 1.0
    side: Annotated[str, choice("left", "right")] | None = None
    count: int = 0
    anything: Any = None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"step": 0}, "mask.plain.step=0: expected a whole number of at least 1"),
        ({"step": HUGE}, "expected at most 9223372036854775807"),
        ({"rate": 0}, "mask.plain.rate=0: expected a number above 0"),
        ({"rate": "fast"}, "mask.plain.rate=fast: expected a number above 0"),
        ({"side": "up"}, "unknown mask.plain.side 'up'; choose one of left, right"),
        ({"count": "x"}, "mask.plain.count=x: expected a whole number"),
        ({"stp": 1}, "unknown setting 'mask.plain.stp'; did you mean mask.plain.step?"),
    ],
)
def test_a_class_of_ones_own_is_read_by_its_fields(settings: dict[str, Any], message: str) -> None:
    assert message in refusal(make, Plain, settings, "mask.plain")
    assert make(Plain, {"side": None, "anything": [1]}, "mask.plain") == Plain(anything=[1])


@pytest.mark.parametrize("suffix", [*(f".{name}" for name in files.FORMATS), *PICKLES])
def test_every_file_that_is_read_or_refused_as_one_is_a_memory_in_short(suffix: str) -> None:
    memory = read_config({**NEEDED, "embeddings": {"memory": f"mine/x{suffix}"}}).embeddings.memory
    assert memory == Embeddings(file=f"mine/x{suffix}")


def test_a_sentence_as_a_memory_is_words() -> None:
    memory = read_config({**NEEDED, "embeddings": {"memory": "elle aime. le cafe"}}).embeddings.memory
    assert memory == Embeddings(text="elle aime. le cafe")
