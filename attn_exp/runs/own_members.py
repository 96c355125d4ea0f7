"""Members from outside the package that a run knew: recorded by file and hash, named where a run is read again without
their code, and run again only where that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attn_exp import registry
from attn_exp.config.schema import Config
from attn_exp.errors import UserError, brief
from attn_exp.own_code import fingerprint
from attn_exp.registry import ABSENT, Origin
from attn_exp.report.plain import plain
from attn_exp.runs.own_code import OPTION, compared

Record = Mapping[str, Any]
RECORD = {"name": str, "file": str, "sha256": str, "members": [str]}
KEY = "with"


def recorded(config: Config) -> dict[str, Any]:
    """Return what a description on disk says of members from outside: all of the files that were named, and of those
    that were registered in Python the ones that the settings use."""
    if not registry.OUTSIDE:
        return {}
    used = set(names_in(config))
    records = [
        {"name": origin.name, "file": origin.file, "sha256": origin.sha256, "members": members}
        for origin, members in registry.origins().items()
        if origin.name or used & set(members)
    ]
    return {KEY: records} if records else {}


def names_in(config: Config) -> Iterator[str]:
    """Yield what settings may name from outside, as `package:name`."""
    from attn_exp.experiment import member_kinds  # noqa: PLC0415 - few runs know any member from outside

    groups: dict[str, Iterable[str]] = {
        "normalizer": [config.normalizer], "check": config.check, "source": config.embeddings.source,
        "metric": config.metrics, "form": [variant.form for variant in config.variant.values()],
        "mask": config.mask, "score": config.score, "position": config.position,
    }  # fmt: skip
    for kind in member_kinds.KINDS:
        own = [getattr(variant, kind.name, None) or () for variant in config.variant.values()]
        own = [[names] if isinstance(names, str) else names for names in own]
        for names in (groups.get(kind.name, ()), *own):
            yield from (f"{kind.package}:{name}" for name in names)


def files(about: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the files of code that a command named, as a description on disk says; none that Python registered."""
    return tuple(record["name"] for record in about.get(KEY, ()) if record["name"])


@contextmanager
def without_code(records: Sequence[Record]) -> Iterator[None]:
    """Let the members that a run knew be known by name alone, where no file of now brings them: nothing is imported."""
    if not records:
        yield
        return
    from attn_exp.experiment import member_kinds  # noqa: PLC0415 - as above

    packages = {kind.package: kind for kind in member_kinds.KINDS}
    with registry.kept():
        for record in records:
            for member in record["members"]:
                package, _, name = member.partition(":")
                kind = packages.get(package)
                if kind is not None and not registry.is_known(package, name) and not member_kinds.is_taken(kind, name):
                    registry.add(package, name, ABSENT, Origin(record["name"], record["file"], record["sha256"]))
        yield


def unnamed() -> str:
    """Say which members a report lacks because their code is not at hand; nothing where it lacks none."""
    kinds = {"attn_exp.experiment.checks": "check", "attn_exp.report.figures": "figure"}
    lacking = [key for key, member in registry.OUTSIDE.items() if member.value is ABSENT and key[0] in kinds]
    if not lacking:
        return ""
    files = dict.fromkeys(brief(plain(registry.OUTSIDE[key].origin.name)) for key in lacking)
    shown = ", ".join(f"{kinds[package]}={brief(plain(name))}" for package, name in lacking)
    return f"left out, as no file brings it: {shown}; add {' '.join(f'--with {file}' for file in files)}"


def asked(records: Sequence[Record], forms: Iterable[str], folder: Path, own: bool) -> list[str]:
    """Return the files of code that a run on disk knew, where the user asked for them.

    Raises:
        UserError: there are some, and nobody asked for them, or they came from no file.
    """
    files = [record["name"] for record in records]
    if not all(files):
        members = [member.partition(":")[2] for record in records for member in record["members"] if not record["name"]]
        shown = ", ".join(plain(brief(name)) for name in members)
        raise UserError(f"{folder}: it used {shown}, registered in Python; register it there and call attn_exp.run")
    if files and not own:
        shown = ", ".join(plain(brief(name)) for name in dict.fromkeys((*files, *forms)))
        raise UserError(f"{folder}: it runs code, {shown}; look at it, then add {OPTION} to run it")
    return files


def changes(records: Iterable[Record]) -> list[str]:
    """Return one sentence for each file of members: whether it is the one that was recorded."""
    return [compared(record["name"], record["sha256"], fingerprint(record["name"])) for record in records]
