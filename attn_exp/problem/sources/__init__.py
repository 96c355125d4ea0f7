"""Where x comes from: one source to a file, found by its name.

`file`, `vectors` and `distribution` have settings of their own; any other source is asked for by its name under
`embeddings.source`, with its settings.
"""

from __future__ import annotations

from typing import Any

from attn_exp import registry
from attn_exp.config.fields import make
from attn_exp.config.schema import Embeddings
from attn_exp.errors import UserError, unknown
from attn_exp.problem.sources.source import Asked, Source, Vectors

NAMES: tuple[str, ...] = registry.names(__path__, without=("source",))


def find(name: str) -> Source:
    """Return the source of that name.

    Raises:
        UserError: there is none.
    """
    names = (*NAMES, *registry.outside(__name__))
    if name not in names:
        raise UserError(
            unknown(f"embeddings.source.{name}", [f"embeddings.source.{known}" for known in names], "source")
        )
    return registry.constant(__name__, name, Source)


def said(settings: Embeddings) -> dict[str, Any]:
    """Return what is said to each source, by the key that says it."""
    own = {"file": settings.file, "vectors": settings.vectors, "distribution": settings.distribution}
    return {name: value for name, value in own.items() if value is not None} | {
        f"source.{name}": value for name, value in settings.source.items()
    }


def asked(settings: Embeddings, seed: int) -> tuple[Source, Asked] | None:
    """Return the one source that the settings ask, and the question; None where they ask none.

    Raises:
        UserError: several sources, an unknown one, settings that it does not take, or others that it needs.
    """
    given = said(settings)
    if len(given) > 1:
        one, other = list(given)[:2]
        raise UserError(f"embeddings.{one} and embeddings.{other} both say what x is; give one of them")
    for key, value in given.items():
        member = find(key.removeprefix("source."))
        if any(getattr(settings, name) is None for name in member.needs):
            needs = " and ".join(f"embeddings.{name}" for name in member.needs)
            raise UserError(f"embeddings.{key} needs {needs}")
        own = value if member.settings is None else make(member.settings, value, f"embeddings.{key}")
        return member, Asked(settings, own, seed)
    return None


def embed(settings: Embeddings, seed: int) -> Vectors | None:
    """Return x, tokens in rows, and the names that came with it; None where no source is asked.

    Raises:
        UserError: as `asked`, and whatever the source refuses.
    """
    asking = asked(settings, seed)
    if asking is None:
        return None
    member, question = asking
    if settings.columns and not member.turns:
        raise UserError("embeddings.columns=true turns vectors that are written or read, and these are made")
    read = member.read(question)
    return read._replace(x=read.x.T) if settings.columns else read


def size(settings: Embeddings) -> tuple[int, int] | None:
    """Return how many rows and columns x will have, before it is read or drawn; None where nobody can tell."""
    asking = asked(settings, 0)
    shape = None if asking is None else asking[0].size(asking[1])
    return shape[::-1] if shape and settings.columns else shape
