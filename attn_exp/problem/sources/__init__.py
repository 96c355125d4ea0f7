"""Where x comes from: one source per file, found by its name.

`file`, `vectors` and `distribution` have settings of their own; any other source is selected by its name under
`embeddings.source`, with its settings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attn_exp import registry
from attn_exp.config.inputs import STREAMS, Embeddings
from attn_exp.config.kinds import make
from attn_exp.errors import UserError, unknown
from attn_exp.problem.drawing import Numbers
from attn_exp.problem.sources.source import INPUT, Asked, Source, Vectors

NAMES: tuple[str, ...] = registry.names(__path__, without=("source",))


CALLED = {"text": "words"}
"""Sources whose name differs from their setting."""


def find(key: str) -> Source:
    names, name = (*NAMES, *registry.outside(__name__)), CALLED.get(key, key.removeprefix("source."))
    if name not in names:
        raise UserError(
            unknown(f"embeddings.source.{name}", [f"embeddings.source.{known}" for known in names], "source")
        )
    return registry.constant(__name__, name, Source)


def said(settings: Embeddings) -> dict[str, Any]:
    """Return the settings of each source by key; with words, the distribution is one of theirs."""
    own: dict[str, Any] = {"file": settings.file, "vectors": settings.vectors, "text": settings.text}
    own["distribution"] = settings.distribution if settings.text is None else None
    return {name: value for name, value in own.items() if value is not None} | {
        f"source.{name}": value for name, value in settings.source.items()
    }


def with_tokens(settings: Embeddings, path: str = INPUT) -> Embeddings:
    if not isinstance(settings.tokens, str):
        return settings
    from attn_exp.problem.from_files import tokens  # noqa: PLC0415 - most runs read no files

    return replace(settings, tokens=tokens(settings.tokens, f"{path}.tokens"))


def asked(settings: Embeddings, source: Numbers, path: str = INPUT) -> tuple[Source, Asked] | None:
    """Return the one source that the settings select, and its request; None if they select none.

    Raises:
        UserError: several sources, an unknown one, settings that it does not take, or missing ones that it needs.
    """
    settings, given = with_tokens(settings, path), said(settings)
    if len(given) > 1:
        one, other = list(given)[:2]
        what = "x" if path == INPUT else "the memory"
        chosen = [CALLED.get(key, key) for key in (one, other) if path == INPUT and key in ("text", "file")]
        hint = f"; embeddings={chosen[0]} leaves the other out" if chosen else ""
        raise UserError(f"{path}.{one} and {path}.{other} both say what {what} is; give one of them{hint}")
    for key, value in given.items():
        member = find(key)
        if any(getattr(settings, name) is None for name in member.needs):
            needs = " and ".join(f"{path}.{name}" for name in member.needs)
            raise UserError(f"{path}.{key} needs {needs}")
        own = value if member.settings is None else make(member.settings, value, f"{path}.{key}")
        return member, Asked(settings, own, source.seed, source, path)
    return None


def embed(settings: Embeddings, source: Numbers, path: str = INPUT) -> Vectors | None:
    """Return x, tokens in rows, and the names that came with it; None if no source is selected.

    `path` is where the user wrote the settings.

    Raises:
        UserError: as `asked`, and whatever the source refuses.
    """
    asking = asked(settings, source, path)
    if asking is None:
        return None
    member, question = asking
    if settings.columns and not member.turns:
        raise UserError(f"{path}.columns=true turns vectors that are written or read, and these are made")
    read = member.read(question)
    if not settings.columns:
        return read
    return read._replace(
        x=None if read.x is None else read.x.T, later={name: array.T for name, array in read.later.items()}
    )


def size(settings: Embeddings) -> tuple[int, int] | None:
    """Return the rows and columns of x before it is read or drawn; None if they are unknown."""
    asking = asked(settings, Numbers(STREAMS, 0, None))
    shape = None if asking is None else asking[0].size(asking[1])
    return shape[::-1] if shape and settings.columns else shape
