"""Which code of the user's own a run ran: recorded by file and hash, and run again only where it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attn_exp.config.schema import Config
from attn_exp.errors import UserError, brief
from attn_exp.experiment.variant import Bind, Settled
from attn_exp.own_code import Named, any_named, fingerprint, fingerprint_of_function, is_code
from attn_exp.report.plain import plain

OPTION = "--own-code"
Record = Mapping[str, str]
RECORD = dict.fromkeys(("form", "file", "sha256"), str)


def binder(config: Config) -> Bind | None:
    """Return what imports the functions that the command line names as forms; None where it names none."""
    if not any_named(variant.form for variant in config.variant.values()):
        return None
    from attn_exp.diagnosis.own_form import bind  # noqa: PLC0415 - most runs have no code of the user's own

    return bind


def of(variants: Iterable[Settled]) -> list[Record]:
    """Return the name, the file and the hash of each function that these variants ran."""
    functions = {variant.form: variant.own for variant in variants if variant.own is not None}
    return [{"form": str(form), "file": own.file, "sha256": own.sha256} for form, own in functions.items()]


def recorded(records: Sequence[Record]) -> dict[str, Any]:
    """Return what a description on disk says of code, or nothing where none was run."""
    return {"code": list(records)} if records else {}


def names(config: Config) -> list[str]:
    """Return the code that settings name, without importing any."""
    return [variant.form for variant in config.variant.values() if is_code(variant.form)]


def allowed(config: Config, folder: Path, asked: bool) -> Config:
    """Return settings from disk; the code that they name may run where the user asked for it.

    Raises:
        UserError: there is code, and nobody asked for it.
    """
    code = list(dict.fromkeys(names(config)))
    if code and not asked:
        shown = ", ".join(plain(brief(name)) for name in code)
        raise UserError(f"{folder}: it runs code, {shown}; look at it, then add {OPTION} to run it")
    allowed = {name: Named(name) for name in code}
    return replace(
        config,
        variant={
            name: replace(variant, form=allowed.get(variant.form, variant.form))
            for name, variant in config.variant.items()
        },
    )


def changes(config: Config, records: Iterable[Record]) -> list[str]:
    """Return one sentence for each file of code: whether it is the one that was recorded."""
    known = {record["form"]: record for record in records}
    return [said(name, known.get(name)) for name in dict.fromkeys(names(config))]


def said(name: str, record: Record | None) -> str:
    """Say whether the code of a name is the one that was recorded."""
    if record is None or not record["sha256"]:
        return f"running {name}, of which no hash was recorded"
    place = name.rpartition(":")[0]
    return compared(name, record["sha256"], fingerprint(place if place.endswith(".py") else record["file"]))


def compared(name: str, recorded: str, now: str) -> str:
    """Say whether the hash of code is the one that was recorded."""
    if now == recorded:
        return f"running {name}, unchanged"
    return f"running {name}, whose file has changed since: sha256 {now[:12] or 'none'}, recorded {recorded[:12]}"


def by_name(name: str) -> Record:
    """Return what is recorded of code that is not imported here: its file and hash, where its name says the file."""
    place = name.rpartition(":")[0]
    return {"form": name, "file": place if place.endswith(".py") else "", "sha256": fingerprint_of_function(name)}
