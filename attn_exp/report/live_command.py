"""The command that computes a run from numbers that a reader of its page has changed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from attn_exp.config.inputs import MEMORY, STREAMS, Draw, Embeddings, Projections
from attn_exp.config.schema import Config
from attn_exp.config.spelling import key_of, spelled
from attn_exp.experiment.comparison import Comparison
from attn_exp.problem.matrices import BIASES, MATRICES
from attn_exp.problem.problem import Problem

INPUTS = {"x": "embeddings.vectors", "memory": "embeddings.memory.vectors"}
DRAWN = ("distribution", "low", "high", "generator", "seed", "file", "text", "array", "columns", "source")
"""What else may say where the vectors come from: left out, so that the changed ones count."""

MADE = ("order", "order_per_head", "legacy_seed", "generator", "seed", "printed", "file", "turned", "columns")
"""Settings of projections that draw, read or turn arrays, so that a single one cannot be exchanged."""

LARGE = "array:"
"""How the name of an array begins that is too large to be typed."""


def command(comparison: Comparison, about: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the run's own command, and how changed arrays are said after it; None where no command can say them.

    `key` is the setting of each array, and `first` what has to be said before it. `inputs` and `projections` hold the
    words that leave out where those came from, and which arrays are then given whole. `together`: one change needs all.
    """
    config = comparison.config
    spoken = [in_full(word, config) for word in split_command(str(about.get("command", "")))]
    words = [word for word in spoken if LARGE not in word or not key_of(word).startswith(GROUPS)]
    if not words or any(LARGE in word for word in words):
        return None
    single, keys = is_single(config), settings(comparison.problem)
    projections = {
        "words": "" if single else shlex.join(unprojected(config)),
        "whole": [] if single else list(comparison.problem.projections),
    }
    return {
        "line": shlex.join([*words, *(["published=[]"] if config.published else [])]),
        "key": keys,
        "first": {name: f"{key}=null" for name, key in keys.items() if is_described(config, name)},
        "inputs": inputs(comparison, single),
        "projections": projections,
        "together": not single or len(words) < len(spoken),
    }


def settings(problem: Problem) -> dict[str, str]:
    """Return the setting of each array that the problem starts from."""
    names = INPUTS if problem.x is not None else {name: f"embeddings.{name}" for name in ("q", "k", "v", "weights")}
    given = {name: key for name, key in names.items() if getattr(problem, name) is not None}
    return given | {name: f"++projections.given.{name}" for name in problem.projections}


def is_described(config: Config, name: str) -> bool:
    """Say whether the settings describe how an array is drawn, which one list cannot replace."""
    given = config.embeddings.vectors if name == "x" else getattr(config.embeddings, name, None)
    value = config.projections.given.get(name) if name in (*MATRICES, *BIASES) else given
    return isinstance(value, Mapping | Draw)


def inputs(comparison: Comparison, single: bool) -> dict[str, Any]:
    """Return the words that leave out where the input came from, and the arrays that are then given."""
    problem, given = comparison.problem, comparison.config.embeddings
    words, left = list[str](), list(cleared(given, "embeddings", DRAWN))
    if given.text is not None or given.file is not None or given.source:  # what says the tokens' names too
        tokens = problem.tokens if problem.memory is not None else problem.key_tokens
        words.append(spelled_word("embeddings.tokens", list(tokens)))
    if problem.memory is not None and given.memory is not None:
        left.append(spelled_word("++embeddings.memory.tokens", list(problem.key_tokens)))
        left += cleared(given.memory, "++embeddings.memory", DRAWN)
    whole = [name for name in settings(problem) if name not in problem.projections]
    return {"words": shlex.join([*words, *left]), "whole": whole if left or not single else []}


def split_command(line: str) -> list[str]:
    """Return the words of a command; none where it is no line that a shell reads."""
    try:
        return shlex.split(line)
    except ValueError:
        return []


def in_full(word: str, config: Config) -> str:
    """Return a word that gives a memory in short as the setting that it stands for, beside which others may stand."""
    key, _, value = word.partition("=")
    memory = config.embeddings.memory
    if key_of(word) != MEMORY or memory is None or value.startswith("{"):
        return word
    meant = next((name for name in ("text", "file", "vectors") if getattr(memory, name) is not None), "tokens")
    return f"{key}.{meant}={value}"


GROUPS = ("embeddings.", "projections.")


def is_single(config: Config) -> bool:
    """Say whether each array has a stream of its own, so that one of them can be given and the others stay."""
    settings, usual = config.projections, Projections()
    made = any(getattr(settings, name) != getattr(usual, name) for name in MADE)
    return config.generator == STREAMS and not config.draws and not made and not settings.source.startswith("torch")


def cleared(settings: Any, path: str, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the words that put settings back to what they are when nobody says anything."""
    usual = {field.name: field.default for field in fields(Embeddings if "embeddings" in path else Projections)}
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, Mapping):
            yield from (f"~{path.lstrip('+')}.{name}.{key}" for key in value)
        elif value != usual[name] and value != ():
            yield spelled_word(f"{path}.{name}", [] if isinstance(value, tuple) else usual[name])


def unprojected(config: Config) -> Iterator[str]:
    """Yield the words after which nothing draws, reads or turns projections."""
    yield "projections.source=identity"
    yield from cleared(config.projections, "projections", (*MADE, "distribution", "low", "high", "spread"))
    if config.draws:
        yield "draws=null"


def spelled_word(key: str, value: Any) -> str:
    """Return one word of a command."""
    return f"{key}={spelled(value)}"
