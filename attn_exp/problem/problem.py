"""The problem of a run: the input that all variants share, and its division into heads.

A setting with the value `model` comes from the model of the run. Such settings are filled in first, by a forward pass
of that model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.config.inputs import FROM_MODEL, MODEL_SCALARS, Model
from attn_exp.config.schema import Config
from attn_exp.errors import UserError, count_of
from attn_exp.forms.steps import project as project_side
from attn_exp.forms.trace import CannotStackError, stack_arrays
from attn_exp.problem.drawing import draw_matrix, seed_source
from attn_exp.problem.projections import BIASES, MATRICES, Inputs, check_divides, divisors, project
from attn_exp.problem.sources import Input, key_names, read_input, token_names


@dataclass(frozen=True)
class Problem:
    """Token names, and the arrays that the computation starts from; arrays of stages before those are None.

    - `tokens`: the names of the queries' tokens, without past tokens.
    - `key_tokens`: the names of the keys' tokens: the tokens of the memory, or without one, past tokens and `tokens`.
    - `x`: the vectors `[t m]`, past tokens included.
    - `q` `[t d]`, `k` `[s d]`, `v` `[s e]`: queries, keys and values, their heads side by side.
    - `weights`: `[t s]`, if the computation starts from them.
    - `projections`: W_q, W_k, W_v, W_o, b_q, b_k, b_v and b_o by name.
    - `memory`: the vectors `[s n]` that W_k and W_v project instead of x, in cross-attention.
    - `past`: the number of tokens whose keys and values are in a cache.
    - `marks`: the positions that were encoded in x before it was projected; q, k and v include them, `x` does not.
    """

    tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    x: Array | None
    q: Array | None
    k: Array | None
    v: Array | None
    weights: Array | None
    projections: Arrays = field(default_factory=dict)
    memory: Array | None = None
    past: int = 0
    marks: tuple[Any, ...] = ()

    @property
    def keys(self) -> int:
        return len(self.key_tokens)


def build(config: Config) -> Problem:
    """Return the problem of a configuration.

    Raises:
        UserError: arrays do not fit together, projections come without x or x without projections, or numbers are so
            large that scores overflow.
    """
    return build_each(config, [config.seed])[0]


def build_each(config: Config, seeds: Sequence[int]) -> list[Problem]:
    """Return the problems of configurations that differ only in their seed, as `build` does."""
    with np.errstate(over="ignore", invalid="ignore"):
        problems = [make_problem(config, seed) for seed in seeds]
        for problem in problems:
            refuse_overflow(problem)
    return problems


def refuse_overflow(problem: Problem) -> None:
    """Refuse inputs whose scores `q k^T` may overflow, which would make weights NaN or undefined."""
    arrays = {"q": problem.q, "k": problem.k, "v": problem.v}
    largest = {name: 0.0 if side is None else float(np.abs(side).max()) for name, side in arrays.items()}
    width = 1 if problem.q is None else problem.q.shape[1]
    if not np.isfinite(np.float64(largest["q"]) * largest["k"] * width + largest["v"]):
        sizes = ", ".join(f"{name} up to {number:.1e}" for name, number in largest.items())
        raise UserError(f"the input is too large: {sizes}; its scores would overflow a 64-bit float; scale it down")


def make_problem(config: Config, seed: int) -> Problem:
    source = seed_source(config.generator, seed)
    # in the order of the settings: a generator draws one array after another
    draws = {name: draw_matrix(draw, f"draws.{name}", source) for name, draw in (config.draws or {}).items()}
    given = read_input(config.embeddings, source, draws)
    x = given.stages.get("x")
    if x is None:
        return make_late_problem(config, given)
    check_past(config, len(x))
    if config.projections.source == "none":
        raise UserError("projections=none, but the input is x; give embeddings.q, k and v, or choose other projections")
    memory, key_tokens = given.memory or (None, given.tokens)
    drawn_projections = {name: array for name, array in draws.items() if name in MATRICES + BIASES}
    inputs = Inputs(x, x if memory is None else memory)
    arrays = project(config.projections, inputs, config.head, config.bias, source, drawn_projections)
    tokens = given.tokens[config.past :]
    return fill_in_qkv(Problem(tokens, key_tokens, x, None, None, None, None, arrays, memory, config.past))


def fill_in_qkv(problem: Problem) -> Problem:
    q, k, v = project_qkv(problem)
    return replace(problem, q=q, k=k, v=v)


def project_qkv(problem: Problem, encode: Callable[[Array], Array] = lambda x: x) -> tuple[Array, Array, Array]:
    """Return q, k and v, projected from x and from the memory, if there is one; `encode` changes both of them first.

    `q = x W_q` has only the new tokens. `k = x W_k` and `v = x W_v` have all tokens; if there is a memory, its tokens.
    """
    assert problem.x is not None
    x = encode(problem.x)
    key_source = x if problem.memory is None else encode(problem.memory)
    q = project_side("q", x[..., problem.past :, :], problem.projections)
    return q, project_side("k", key_source, problem.projections), project_side("v", key_source, problem.projections)


def make_late_problem(config: Config, given: Input) -> Problem:
    """Return a problem that starts after the projections, from q and k or from weights."""
    if config.projections.source != "none":
        raise UserError("the input is already projected; use projections=none")
    given_names = [*config.projections.given, *config.projections.printed]
    if given_names:
        raise UserError(
            f"projections: {' and '.join(given_names)} given, but the input is already projected; leave them out"
        )
    q, k, v, weights = (given.stages.get(name) for name in ("q", "k", "v", "weights"))
    if q is not None and k is not None and q.shape[1] % k.shape[1]:
        raise UserError(f"embeddings.q has {q.shape[1]} numbers per query, not a multiple of the {k.shape[1]} per key")
    keys = len(k) if k is not None else weights.shape[1]  # type: ignore[union-attr] # there are weights if no k
    rows = len(q) if q is not None else len(weights)  # type: ignore[arg-type] # as above
    if v is not None and len(v) != keys:
        raise UserError(f"embeddings.v has {len(v)} rows; expected one for each of {keys} keys")
    if not config.past:
        tokens = key_tokens = token_names(given.named, rows)
        if config.embeddings.memory is not None:
            key_tokens = key_names(config.embeddings.memory, keys)
        elif keys != rows:
            key_tokens = tuple(f"k{index}" for index in range(keys))
        return Problem(tokens, key_tokens, None, q, k, v, weights)
    if rows not in (keys, keys - config.past):
        new = f"{keys - config.past}, one for each new token" if keys > config.past else f"more than {config.past} keys"
        counts = f"{count_of(rows, 'query', 'queries')} and {count_of(keys, 'key')}"
        raise UserError(f"past={config.past}: {counts}; expected {new}")
    check_past(config, keys)
    if rows == keys:  # queries may be given for all tokens, or only for the new ones
        q, weights = (None if side is None else side[config.past :] for side in (q, weights))
    tokens = names_with_past(given.named, config.past, keys)
    return Problem(tokens[config.past :], tokens, None, q, k, v, weights, past=config.past)


def check_past(config: Config, count: int) -> None:
    """Refuse a past that leaves no new token, or a past together with a memory.

    The past consists of the tokens whose keys and values are in a cache; only the tokens after them have queries.

    Raises:
        UserError: the past is too long, or a memory is given too.
    """
    if config.past and config.embeddings.memory is not None:
        raise UserError(
            f"past={config.past} and embeddings.memory: keys come from earlier tokens or from a memory; give only one"
        )
    if config.past >= count > 0:
        most = f"choose at most {count - 1}" if count > 1 else "leave past out"
        raise UserError(f"past={config.past}: the input has {count_of(count, 'token')}, and one must be new; {most}")


def names_with_past(tokens: tuple[str, ...] | int | None, past: int, keys: int) -> tuple[str, ...]:
    """Return the names of all tokens, past and new.

    If only the new tokens have names, the past tokens are called `past0`, `past1` and so on.

    Raises:
        UserError: the number of names is neither the number of all tokens nor the number of new tokens.
    """
    count = tokens if isinstance(tokens, int) else keys if tokens is None else len(tokens)
    if count not in (keys, keys - past):
        raise UserError(
            f"embeddings.tokens names {count} tokens, but there are {count_of(keys, 'key')}, {past} of them in the past"
        )
    if not isinstance(tokens, tuple):
        return tuple(f"x{index}" for index in range(keys))
    return (*(f"past{index}" for index in range(keys - count)), *tokens)


STAGES = ("x", "q", "k", "v", "weights", "memory")


def stack_problems(problems: Sequence[Problem]) -> Problem:
    """Return several problems as one; its arrays have a leading axis for the problems.

    Raises:
        CannotStackError: the problems differ in the shapes of their arrays or in the names of their tokens.
    """
    first = problems[0]
    if len({(problem.tokens, problem.key_tokens, problem.past) for problem in problems}) > 1:
        raise CannotStackError
    stages = {name: stack_arrays([getattr(problem, name) for problem in problems]) for name in STAGES}
    arrays = {name: stack_arrays([problem.projections.get(name) for problem in problems]) for name in first.projections}
    return replace(first, **stages, projections=arrays)


@dataclass(frozen=True)
class Heads:
    """The numbers of heads of a problem.

    - `query`: query heads.
    - `given`: key/value heads in the input.
    - `shared`: key/value heads that attention uses.
    - `pool`: how the given heads are reduced to fewer: "first" keeps the first ones, "mean" averages each group.
    """

    query: int
    given: int
    shared: int
    pool: str = "first"


def count_heads(head: int, kv_head: int | None, problem: Problem, pool: str = "first") -> Heads:
    """Return how many query heads and key/value heads a problem has, and how many key/value heads attention uses.

    Keys as wide as the queries have one head per query head; narrower keys have as many heads as fit their width.

    Raises:
        UserError: a number of heads does not divide a width or another number of heads.
    """
    if problem.q is not None:
        check_divides(head, problem.q.shape[-1], "d_model")
    given = head
    if problem.q is not None and problem.k is not None:
        size = problem.q.shape[-1] // head
        given = problem.k.shape[-1] // size
        if problem.k.shape[-1] % size or not given or head % given:
            raise UserError(
                f"embeddings.k has {problem.k.shape[-1]} numbers per key; expected {size} per key/value head, "
                f"and a number of these heads that divides head={head} (variant.NAME.head sets head for one variant)"
            )
    if problem.v is not None:
        check_divides(given, problem.v.shape[-1], "the size of v")
    shared = kv_head or given
    if given % shared:
        raise UserError(f"kv_head={shared} does not divide head={given}; choose one of {divisors(given)}")
    return Heads(head, given, shared, pool)


def pool_heads(split: Array, heads: Heads) -> Array:
    """Reduce the key/value heads of the input, `[... h s d]`, to those that attention uses, `[... g s d]`.

    `first` keeps the first g heads. If heads are random, all have the same distribution, so a sweep over g changes only
    the grouping.

    `mean` averages the heads of each group. This turns a trained multi-head model into a grouped one: Ainslie et al.
    2023, "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints", section 2.1. The mean
    of n independent heads has a standard deviation smaller by a factor of sqrt(n), and so do its logits.
    """
    *batch, count, length, size = split.shape
    if count == heads.shared:
        return split
    if heads.pool == "first":
        return split[..., : heads.shared, :, :]
    groups = split.reshape(*batch, heads.shared, count // heads.shared, length, size)
    return np.asarray(groups.mean(axis=-3).astype(split.dtype))


# Settings that come from the run's model


@dataclass
class Pass:
    """A forward pass of a model that has stopped at one layer, and can continue to a later one.

    Points of a sweep that differ only in the layer share one pass, so no layer is computed twice. Only one layer's
    vectors are in memory, however deep the model is.

    - `model`: the settings of the model, with `layer` set to 0.
    - `checkpoint`, `tokens`: the opened checkpoint and the token names.
    - `layers`: an iterator over the layers after `layer`.
    - `layer`: the layer at which the pass has stopped; None before the first.
    - `number`: the index of that layer; -1 before the first.
    """

    model: Model | None = None
    checkpoint: Any = None
    tokens: tuple[str, ...] = ()
    layers: Any = None
    layer: Any = None
    number: int = -1


def fill_in_from_model(config: Config, under_way: Pass | None = None) -> Config:
    """Return the configuration, with the settings that come from a model filled in from one of its layers.

    If no setting comes from a model, `config` is returned unchanged. `under_way` is the forward pass of the previous
    point of a sweep, if there is one.

    Raises:
        UserError: no model is chosen, or it cannot be read.
    """
    names = left_to_model(config)
    if not names:
        if config.model.family is None and config.model != Model():
            raise UserError("model settings are given, but no model is chosen; choose one, such as model=bert")
        return config
    if config.model.family is None:
        raise UserError(
            f"{names[0]}={FROM_MODEL} comes from a model, but none is chosen; choose one: model=bert model.path=DIR"
        )
    from attn_exp.problem import models  # noqa: PLC0415 - most runs have none

    return models.fill_in_layer(config, under_way or Pass())


def left_to_model(settings: Any) -> list[str]:
    """Return the names of the settings that come from a model; `settings` is a `Config` or its plain values."""
    sources = {name: get_setting(get_setting(settings, name), "source") for name in ("embeddings", "projections")}
    groups = {"embeddings": sources["embeddings"], "mask": get_setting(settings, "mask")}
    groups["position"] = get_setting(settings, "position")
    plain_settings = {"projections": sources["projections"]} | {
        name: get_setting(settings, name) for name in MODEL_SCALARS
    }
    return [
        *(name for name, choice in groups.items() if FROM_MODEL in choice),
        *(key for key in plain_settings if plain_settings[key] == FROM_MODEL),
    ]


def get_setting(section: Any, name: str) -> Any:
    return section.get(name) if isinstance(section, Mapping) else getattr(section, name)
