"""The command, and the YAML, that compute a run from numbers that a reader of its page has changed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from attn_exp.config.as_yaml import as_yaml
from attn_exp.config.inputs import MEMORY, STREAMS, Draw, Embeddings, Projections
from attn_exp.config.schema import Config
from attn_exp.config.spelling import key_of, spelled
from attn_exp.errors import UserError
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
    `yaml` says the same as a file; None where it cannot, since a file does not say first one thing and then another.
    """
    line, config = str(about.get("command", "")), comparison.config
    spoken = [in_full(word, config) for word in parted(line)]
    words = [word for word in spoken if LARGE not in word or not key_of(word).startswith(GROUPS)]
    if not words or any(LARGE in word for word in words):
        return None
    single, is_large = is_single(config), len(words) < len(spoken)
    keys = settings(comparison.problem)
    given, projected = inputs(comparison), "" if single else shlex.join(unprojected(config))
    first = {name: f"{key}=null" for name, key in keys.items() if is_described(config, name)}
    words += ["published=[]"] if config.published else []
    return {
        "line": shlex.join(words),
        "key": keys,
        "first": first,
        "inputs": given,
        "projections": {
            "words": projected,
            "whole": [] if single else list(comparison.problem.projections),
        },
        "together": not single or is_large,
        "yaml": None if first else as_yaml_file(words, {"inputs": given["words"], "projections": projected}),
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


def inputs(comparison: Comparison) -> dict[str, Any]:
    """Return the words that leave out where the input came from, and the arrays that are then given."""
    problem, as_yaml_file = comparison.problem, comparison.config.embeddings
    named = (
        as_yaml_file.text is not None or as_yaml_file.file is not None or bool(as_yaml_file.source)
    )  # what says the tokens' names too
    words = [spelled_word("embeddings.tokens", tokens(comparison))] if named else []
    left = list(cleared(as_yaml_file, "embeddings", DRAWN))
    if problem.memory is not None and as_yaml_file.memory is not None:
        left.append(spelled_word("++embeddings.memory.tokens", list(problem.key_tokens)))
        left += cleared(as_yaml_file.memory, "++embeddings.memory", DRAWN)
    whole = [name for name in settings(problem) if name not in problem.projections]
    return {"words": shlex.join([*words, *left]), "whole": whole if left or not is_single(comparison.config) else []}


def parted(line: str) -> list[str]:
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


def tokens(comparison: Comparison) -> list[str]:
    """Return the names of the rows of the input."""
    problem = comparison.problem
    return list(problem.tokens if problem.memory is not None else problem.key_tokens)


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


PROGRAM, FOLDER, NAME = ("python", "-m", "attn_exp"), "--config-dir", "changed"


def as_yaml_file(line: Sequence[str], later: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what the words of a command say as YAML: its `top`, its settings, and those of words that come `later`.

    None where YAML cannot say them.
    """
    folders = [line[place + 1] for place, word in enumerate(line[:-1]) if word == FOLDER]
    rest = list(line[len(PROGRAM) + 2 * len(folders) :])
    if tuple(line[: len(PROGRAM)]) != PROGRAM or any(word.startswith("-") for word in rest):
        return None
    try:
        parts = {name: as_yaml(shlex.split(text)) for name, text in later.items()}
        start = as_yaml(rest, list(filter(os.path.isdir, folders)))
    except UserError:  # a run from disk may come with any command
        return None
    if start is None or None in parts.values():
        return None
    trees = {name: part[1] for name, part in parts.items() if part is not None}
    return {"top": top_of_file(start[0], folders), "start": start[1], **trees}


def top_of_file(defaults: Sequence[str], folders: Sequence[str]) -> str:
    """Return the first lines of the file: where it belongs, how it is run, and the files that it starts from."""
    folder = folders[0] if folders else "mine"
    told = "Save as {file}, then: {command}".format(
        file=f"{folder}/experiment/{NAME}.yaml", command=shlex.join([*PROGRAM, FOLDER, folder, f"experiment={NAME}"])
    )
    lines = ["# @package _global_", f"# {told}", "defaults:", *(f"  {line}" for line in [*defaults, "- _self_"])]
    return "\n".join(lines) + "\n\n"
