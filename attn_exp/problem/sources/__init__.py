"""The input of a problem: token names and the arrays that the computation starts from; a source reads or draws them.

Each source is a file here. The sources `file`, `vectors`, `distribution` and `words` are selected by a setting of their
own, such as `embeddings.file`. Any other source is selected by its name under `embeddings.source`. The memory of
cross-attention is a second input: the keys and values are made from it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from attn_exp import registry
from attn_exp.arrays import Array, Arrays
from attn_exp.config.inputs import STREAMS, Embeddings
from attn_exp.config.kinds import make
from attn_exp.config.schema import Config
from attn_exp.errors import UserError, unknown
from attn_exp.problem.drawing import RandomSource, read_matrix
from attn_exp.problem.sources.source import INPUT, Source, SourceRequest, Vectors

NAMES = registry.names(__path__, without=("source",))


SOURCE_NAMES = {"text": "words"}
"""The name of the source that a setting selects, if the two names differ."""


def find_source(setting: str) -> Source:
    names = (*NAMES, *registry.outside(__name__))
    name = SOURCE_NAMES.get(setting, setting.removeprefix("source."))
    if name not in names:
        raise UserError(
            unknown(
                f"embeddings.source.{name}", [f"embeddings.source.{source_name}" for source_name in names], "source"
            )
        )
    return registry.constant(__name__, name, Source)


def source_settings(settings: Embeddings) -> dict[str, Any]:
    """Return the value of each setting that selects a source.

    If `text` is set, the distribution does not select a source: it applies to the word vectors.
    """
    values = {"file": settings.file, "vectors": settings.vectors, "text": settings.text}
    values["distribution"] = settings.distribution if settings.text is None else None
    return {name: value for name, value in values.items() if value is not None} | {
        f"source.{name}": value for name, value in settings.source.items()
    }


def load_token_names(settings: Embeddings, section: str = INPUT) -> Embeddings:
    if not isinstance(settings.tokens, str):
        return settings
    from attn_exp.problem.from_files import read_tokens  # noqa: PLC0415 - most runs read no files

    return replace(settings, tokens=read_tokens(settings.tokens, f"{section}.tokens"))


def select_source(
    settings: Embeddings, random_source: RandomSource, section: str = INPUT
) -> tuple[Source, SourceRequest] | None:
    """Return the one source that the settings select, and its request; None if they select none.

    Raises:
        UserError: several sources are selected, or an unknown one, or its settings are invalid or incomplete.
    """
    settings, selected = load_token_names(settings, section), source_settings(settings)
    if len(selected) > 1:
        first_key, second_key = list(selected)[:2]
        array_name = "x" if section == INPUT else "the memory"
        chosen = [
            SOURCE_NAMES.get(key, key)
            for key in (first_key, second_key)
            if section == INPUT and key in ("text", "file")
        ]
        hint = f"; embeddings={chosen[0]} unsets the other" if chosen else ""
        raise UserError(
            f"{section}.{first_key} and {section}.{second_key} both define {array_name}; give only one of them{hint}"
        )
    for key, value in selected.items():
        member = find_source(key)
        if any(getattr(settings, name) is None for name in member.needs):
            needs = " and ".join(f"{section}.{name}" for name in member.needs)
            raise UserError(f"{section}.{key} needs {needs}")
        source_value = value if member.settings is None else make(member.settings, value, f"{section}.{key}")
        return member, SourceRequest(settings, source_value, random_source.seed, random_source, section)
    return None


def embed(settings: Embeddings, random_source: RandomSource, section: str = INPUT) -> Vectors | None:
    """Return x with tokens in rows, and the token names read with it; None if no source is selected.

    `section` is the section in which the user wrote the settings.

    Raises:
        UserError: as in `select_source`, or raised by the source.
    """
    selected = select_source(settings, random_source, section)
    if selected is None:
        return None
    member, request = selected
    if settings.columns and not member.turns:
        raise UserError(f"{section}.columns=true transposes vectors that are written out or read, but these are drawn")
    vectors = member.read(request)
    if not settings.columns:
        return vectors
    return vectors._replace(
        x=None if vectors.x is None else vectors.x.T, later={name: array.T for name, array in vectors.later.items()}
    )


def size(settings: Embeddings) -> tuple[int, int] | None:
    """Return the rows and columns of x before it is read or drawn; None if they are unknown."""
    selected = select_source(settings, RandomSource(STREAMS, 0, None))
    shape = None if selected is None else selected[0].size(selected[1])
    return shape[::-1] if shape and settings.columns else shape


STAGES = ("q", "k", "v", "weights")
"""The stages after x at which a problem may start."""

MEMORY = "embeddings.memory"
LATER_STAGES = (*STAGES, "memory")
"""Settings that a memory cannot have: it is projected like x, and has no memory of its own."""


class Input(NamedTuple):
    """The input of a problem: the names of its tokens, and the arrays that the computation starts from.

    - `stages`: the arrays by name: x; or q and k, and perhaps v; or weights, and perhaps v.
    - `tokens`: the names of the rows of x, if there is x.
    - `named`: the token names in the settings or the file, or the number of tokens, or None.
    - `memory`: the vectors and the token names of the memory, if there is one.
    """

    stages: Arrays
    tokens: tuple[str, ...] = ()
    named: tuple[str, ...] | int | None = None
    memory: tuple[Array, tuple[str, ...]] | None = None


def read_input(settings: Embeddings, random_source: RandomSource, drawn: Arrays | None = None) -> Input:
    """Return the input that the settings describe, with tokens in rows; `drawn` are the arrays of the setting `draws`.

    Raises:
        UserError: there is no starting stage, or several; an array is ragged or empty, or a number in it is not finite;
            or the numbers of tokens and vectors differ.
    """
    settings, drawn = load_token_names(settings), drawn or {}
    vectors = embed(settings, random_source)
    check_given_once(settings, vectors, drawn)
    from_source = Vectors(None) if vectors is None else vectors
    stages = {**from_source.later, **drawn}
    if from_source.x is not None:
        stages["x"] = from_source.x
    for name in STAGES:
        if (value := getattr(settings, name)) is not None:
            stages[name] = read_matrix(value, f"embeddings.{name}", random_source)
    require_one_stage(stages)
    names = choose_names(settings, from_source.tokens)
    if "x" not in stages:
        return Input(stages, named=names)
    count, width = stages["x"].shape
    if settings.d_model not in (None, width):
        raise UserError(f"embeddings.d_model={settings.d_model}, but the vectors have {width} numbers")
    memory = (
        None if settings.memory is None else read_memory(settings.memory, width, settings.distribution, random_source)
    )
    return Input(stages, token_names(names, count), names, memory)


def check_given_once(settings: Embeddings, vectors: Vectors | None, drawn: Arrays) -> None:
    for name in drawn:
        if name == "x" and vectors is not None:
            raise UserError("embeddings and draws.x both define x; give only one of them, such as embeddings=inline")
        if name in STAGES and getattr(settings, name) is not None:
            raise UserError(f"embeddings.{name} and draws.{name} both define {name}; give only one of them")


def choose_names(settings: Embeddings, names_read: tuple[str, ...] | None) -> Any:
    return settings.tokens if isinstance(settings.tokens, tuple) or names_read is None else names_read


def require_one_stage(stages: Arrays) -> None:
    if ("q" in stages) != ("k" in stages):
        raise UserError("embeddings.q and embeddings.k go together; only one is given")
    names = [
        stage_name
        for name, stage_name in (("x", "vectors"), ("q", "q and k"), ("weights", "weights"))
        if name in stages
    ]
    if not names:
        raise UserError("embeddings has nothing to start from; give embeddings.vectors, a file, q and k, or weights")
    if len(names) > 1:
        raise UserError(f"embeddings sets more than one input: {' and '.join(names)}; give only one of them")


def token_names(
    names: tuple[str, ...] | int | None, count: int, section: str = "embeddings", letter: str = "x"
) -> tuple[str, ...]:
    """Return the names given, or `x0`, `x1`, ...; there must be one for each row."""
    if not isinstance(names, tuple):
        if names not in (None, count):
            raise UserError(f"{section}.tokens={names}, but there are {count} vectors")
        return tuple(f"{letter}{index}" for index in range(count))
    if len(names) != count:
        raise UserError(f"{section}.tokens names {len(names)} tokens, but there are {count} vectors")
    return names


def complete_memory(memory: Embeddings, d_model: int | None, distribution: str | None) -> Embeddings:
    """Return the settings of a memory; a missing distribution or width is taken from x.

    Raises:
        UserError: the memory sets a stage that it cannot have.
    """
    stage = next((name for name in LATER_STAGES if getattr(memory, name) is not None), None)
    if stage is not None:
        raise UserError(
            f"{MEMORY}.{stage}: a memory has only vectors, which W_k and W_v project; give {MEMORY}.vectors"
        )
    memory = load_token_names(memory, MEMORY)
    selected = list(source_settings(memory))
    if memory.distribution is None and (not selected or memory.text is not None):
        memory = replace(memory, distribution=distribution or "normal")
    needs_width = not selected or "d_model" in find_source(selected[0]).needs
    return replace(memory, d_model=d_model) if needs_width and memory.d_model is None else memory


def read_memory(
    memory: Embeddings, d_model: int, distribution: str | None, random_source: RandomSource
) -> tuple[Array, tuple[str, ...]]:
    """Return the vectors of a memory `[s n]` and its tokens; `d_model` is the number of columns of x.

    Raises:
        UserError: as in `embed`, or the numbers of tokens and vectors differ.
    """
    settings = complete_memory(memory, d_model, distribution)
    vectors = embed(settings, random_source, MEMORY)
    if vectors is None or vectors.x is None:
        raise UserError(f"{MEMORY} must start from vectors, which W_k and W_v project, not from a later stage")
    if settings.d_model is not None and settings.d_model != vectors.x.shape[1]:
        raise UserError(f"{MEMORY}.d_model={settings.d_model}, but each vector has {vectors.x.shape[1]} numbers")
    return vectors.x, token_names(choose_names(settings, vectors.tokens), len(vectors.x), MEMORY, "m")


def key_names(memory: Embeddings, count: int) -> tuple[str, ...]:
    """Return the names of keys that are given as an array, from the settings of the memory.

    Raises:
        UserError: the memory sets anything other than names, or the numbers of names and keys differ.
    """
    if memory.text is not None:
        memory = replace(memory, tokens=registry.module(__name__, "words").list_words(memory.text), text=None)
    if source_settings(memory) or any(getattr(memory, name) is not None for name in LATER_STAGES):
        raise UserError(f"{MEMORY}: the keys are given, so only {MEMORY}.tokens may be set, to name them")
    return token_names(choose_names(load_token_names(memory, MEMORY), None), count, MEMORY, "m")


def memory_size(config: Config, x: tuple[int, int]) -> tuple[int, int] | None:
    """Return the rows and columns of the memory before it is read; None if they are unknown."""
    memory = config.embeddings.memory
    return None if memory is None else size(complete_memory(memory, x[1], config.embeddings.distribution))
