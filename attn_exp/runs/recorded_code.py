"""Record the user's code of a run: functions and files by name and hash, and the verdicts on functions.

Stored runs execute nothing: a report is made from names and verdicts alone, and `rerun` requires `--own-code`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from attn_exp import registry
from attn_exp.config.schema import Config
from attn_exp.errors import EXIT_CODES, RIGHT, WRONG, UserError, brief
from attn_exp.experiment.variant import Bind, Settled
from attn_exp.own_code import Named, any_named, fingerprint, fingerprint_of_function, is_code
from attn_exp.registry import ABSENT, Origin
from attn_exp.report.escapes import plain
from attn_exp.runs.trust import DamagedError, check_shape, read_json

if TYPE_CHECKING:
    from attn_exp.experiment.verdict import Cells, Verdict

OPTION = "--own-code"
FUNCTIONS, MEMBERS = "code", "with"
"""Keys of a stored description: the functions that ran, and the member files that were registered."""
FUNCTION = dict.fromkeys(("form", "file", "sha256"), str)
FILE_OF_MEMBERS = {"name": str, "file": str, "sha256": str, "members": [str]}
Record = Mapping[str, Any]
"""The stored record of one function or one file of members."""

VERDICTS = "own.json"
FINDING = dict.fromkeys(("rung", "state", "said"), str)
STAGE = {"name": str, "right": [[[str]]], "mine": [[[str]]], "parts": bool}
SMALLEST = {**dict.fromkeys(("python", "command", "mine", "right"), str), "stages": [STAGE]}
VERDICT = {
    "variant": str, "name": str, "passed": bool, "mistakes": [str], "computes": str, "findings": [FINDING],
    "asked": str, "alike": [[str]], "smallest": (dict, NoneType), "seconds": float,
    "outcome?": str, "not_verified?": [str], "reason?": str,
}  # fmt: skip


def binder(config: Config) -> Bind | None:
    """Return the importer of functions that the command line names as forms; None if it names none."""
    if not any_named(variant.form for variant in config.variant.values()):
        return None
    from attn_exp.diagnosis.judging.own_form import bind  # noqa: PLC0415 - most runs have no code of the user's own

    return bind


def record_functions(variants: Iterable[Settled]) -> dict[str, Any]:
    """Return the stored record of the functions that these variants ran; empty if they ran none."""
    functions = {variant.form: variant.own.own for variant in variants if variant.own is not None}
    records = [{"form": str(form), "file": own.file, "sha256": own.sha256} for form, own in functions.items()]
    return {FUNCTIONS: records} if records else {}


def record_functions_by_name(names: Iterable[str]) -> dict[str, Any]:
    """Return the same for functions that are not imported here: the file and hash, if the name contains a file."""
    places = {name: name.rpartition(":")[0] for name in names}
    records = [
        {"form": name, "file": place if place.endswith(".py") else "", "sha256": fingerprint_of_function(name)}
        for name, place in places.items()
    ]
    return {FUNCTIONS: records} if records else {}


def functions_in(config: Config) -> list[str]:
    """Return the functions that settings name as forms, without importing any."""
    return list(dict.fromkeys(variant.form for variant in config.variant.values() if is_code(variant.form)))


def allow_functions(config: Config, folder: Path, asked: bool) -> Config:
    """Mark the functions in stored settings as allowed to run, if the user asked for it.

    Raises:
        UserError: there are some, and `asked` is false.
    """
    functions = functions_in(config)
    if functions and not asked:
        raise UserError(not_asked_for(folder, functions))
    allowed = {name: Named(name) for name in functions}
    variants = {
        name: replace(variant, form=allowed.get(variant.form, variant.form)) for name, variant in config.variant.items()
    }
    return replace(config, variant=variants)


def not_asked_for(folder: Path, names: Iterable[str]) -> str:
    """Return the message that a folder runs code of these names, and how to allow it."""
    return f"{folder}: it runs code, {listed(names)}; look at it, then add {OPTION} to run it"


def listed(names: Iterable[str]) -> str:
    """Format names from disk as a line that is safe for a terminal."""
    return ", ".join(plain(brief(name)) for name in names)


def changes_of_functions(config: Config, records: Iterable[Record]) -> Iterator[str]:
    """Yield a sentence for each function in the settings: whether its file has changed since it was recorded."""
    known = {record["form"]: record for record in records}
    for name in functions_in(config):
        record, place = known.get(name), name.rpartition(":")[0]
        if record is None or not record["sha256"]:
            yield f"running {name}, of which no hash was recorded"
        else:
            file = place if place.endswith(".py") else record["file"]
            yield change_of_file(name, record["sha256"], fingerprint(file))


def change_of_file(name: str, recorded: str, now: str) -> str:
    """Say whether the hash of code is the recorded one."""
    if now == recorded:
        return f"running {name}, unchanged"
    return f"running {name}, whose file has changed since: sha256 {now[:12] or 'none'}, recorded {recorded[:12]}"


def record_members(config: Config) -> dict[str, Any]:
    """Return the stored record of members from outside: all those of named files, and the registered ones that the
    settings use."""
    if not registry.OUTSIDE:
        return {}
    used = set(members_in(config))
    records = [
        {"name": origin.name, "file": origin.file, "sha256": origin.sha256, "members": members}
        for origin, members in registry.origins().items()
        if origin.name or used & set(members)
    ]
    return {MEMBERS: records} if records else {}


def members_in(config: Config) -> Iterator[str]:
    """Yield every name in the settings that could be a member from outside, as `package:name`."""
    groups: dict[str, Iterable[str]] = {
        "normalizer": [config.normalizer], "check": config.check, "source": config.embeddings.source,
        "metric": config.metrics, "form": [variant.form for variant in config.variant.values()],
        "mask": config.mask, "score": config.score, "position": config.position,
    }  # fmt: skip
    for kind, package in registry.PACKAGES.items():
        own = [getattr(variant, kind, None) or () for variant in config.variant.values()]
        own = [[names] if isinstance(names, str) else names for names in own]
        for names in (groups.get(kind, ()), *own):
            yield from (f"{package}:{name}" for name in names)


def files_of_members(about: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the member files in a stored description that the command named, without those registered in Python."""
    return tuple(record["name"] for record in about.get(MEMBERS, ()) if record["name"])


@contextmanager
def members_without_code(about: Mapping[str, Any]) -> Iterator[None]:
    """Register the members of a stored run by name alone, unless a file already provides them; nothing is imported."""
    if not about.get(MEMBERS):
        yield
        return
    from attn_exp.plugins import KINDS, is_taken  # noqa: PLC0415 - few runs know any member from outside

    kinds = {kind.package: kind for kind in KINDS}
    with registry.kept():
        for record in about[MEMBERS]:
            for member in record["members"]:
                package, _, name = member.partition(":")
                if package in kinds and not registry.is_known(package, name) and not is_taken(kinds[package], name):
                    registry.add(package, name, ABSENT, Origin(record["name"], record["file"], record["sha256"]))
        yield


def members_left_out() -> str:
    """Say which members a report omits because their code is not available; empty if none."""
    kinds = {registry.PACKAGES[kind]: kind for kind in ("check", "figure")}
    lacking = [key for key, member in registry.OUTSIDE.items() if member.value is ABSENT and key[0] in kinds]
    if not lacking:
        return ""
    files = dict.fromkeys(brief(plain(registry.OUTSIDE[key].origin.name)) for key in lacking)
    shown = ", ".join(f"{kinds[package]}={brief(plain(name))}" for package, name in lacking)
    return f"left out, as no file brings it: {shown}; add {' '.join(f'--with {file}' for file in files)}"


def files_asked_for(records: Sequence[Record], forms: Iterable[str], folder: Path, own: bool) -> list[str]:
    """Return the member files of a stored run, if the user asked for them.

    Raises:
        UserError: there are some and `own` is false, or they came from no file.
    """
    files = [record["name"] for record in records]
    if not all(files):
        members = [member.partition(":")[2] for record in records for member in record["members"] if not record["name"]]
        raise UserError(
            f"{folder}: it used {listed(members)}, registered in Python; register it there and call attn_exp.run"
        )
    if files and not own:
        raise UserError(not_asked_for(folder, dict.fromkeys((*files, *forms))))
    return files


def changes_of_files(records: Iterable[Record]) -> list[str]:
    """Return a sentence for each file of members: whether it has changed since it was recorded."""
    return [change_of_file(record["name"], record["sha256"], fingerprint(record["name"])) for record in records]


def write_verdicts(verdicts: Mapping[str, Verdict], folder: Path) -> list[str]:
    """Write the verdicts of a run, by variant, and return the name of the file; empty if there are none."""
    if not verdicts:
        return []
    texts = [{"variant": name, **verdict.plain()} for name, verdict in verdicts.items()]
    text = json.dumps({"verdicts": texts}, indent=1) + "\n"
    (folder / VERDICTS).write_bytes(text.encode())
    return [VERDICTS]


def read_verdicts(folder: Path) -> dict[str, Verdict]:
    """Read the verdicts of a run, by variant.

    Raises:
        DamagedError: the file is invalid.
    """
    try:
        verdicts = read_json(folder / VERDICTS, {"verdicts": [VERDICT]})["verdicts"]
    except FileNotFoundError:
        return {}
    return {verdict["variant"]: verdict_from(verdict) for verdict in verdicts}


def verdict_from(texts: Mapping[str, Any]) -> Verdict:
    """Restore a verdict from plain texts and lists."""
    from attn_exp.experiment.verdict import Finding, Smallest, Stage, Verdict  # noqa: PLC0415 - most runs have none

    small, outcome = texts["smallest"], texts.get("outcome", "")
    if small is not None:
        check_shape(small, SMALLEST, f"{VERDICTS}: smallest")
        stages = (Stage(one["name"], cells(one["right"]), cells(one["mine"]), one["parts"]) for one in small["stages"])
        small = Smallest(small["python"], small["command"], small["mine"], small["right"], tuple(stages))
    return Verdict(
        name=texts["name"],
        passed=texts["passed"],
        outcome=outcome if outcome in EXIT_CODES else RIGHT if texts["passed"] else WRONG,
        not_verified=tuple(texts.get("not_verified", ())),
        reason=texts.get("reason", ""),
        mistakes=tuple(texts["mistakes"]),
        computes=texts["computes"],
        findings=tuple(Finding(line["rung"], line["state"], line["said"]) for line in texts["findings"]),
        asked=texts["asked"],
        alike=tuple(map(tuple, texts["alike"])),
        smallest=small,
        seconds=texts["seconds"],
    )


def cells(matrices: list[list[list[str]]]) -> Cells:
    """Convert nested lists to tuples, checking that rows have equal lengths."""
    if any(not matrix or len({len(row) for row in matrix}) > 1 for matrix in matrices):
        raise DamagedError(f"{VERDICTS}: a stage whose rows are of unequal lengths")
    return tuple(tuple(map(tuple, matrix)) for matrix in matrices)
