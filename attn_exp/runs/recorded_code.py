"""Record the user's code of a run: functions and files by name and hash, and the verdicts on functions.

Stored runs execute nothing: a report is made from names and verdicts alone, and `rerun` requires `--own-code`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attn_exp import registry
from attn_exp.config.schema import Config
from attn_exp.errors import UserError, brief
from attn_exp.experiment.variant import Bind
from attn_exp.own_code import Named, any_named, fingerprint, fingerprint_of_function, is_code
from attn_exp.registry import ABSENT, Origin
from attn_exp.report.escapes import plain
from attn_exp.runs.trust import read_json

if TYPE_CHECKING:
    from attn_exp.experiment.verdict import Verdict

OPTION = "--own-code"
FUNCTIONS, MEMBERS = "code", "with"
"""Keys of a stored description: the functions that ran, and the member files that were registered."""
FUNCTION = dict.fromkeys(("form", "file", "sha256"), str)
FILE_OF_MEMBERS = {"name": str, "file": str, "sha256": str, "members": [str]}
Record = Mapping[str, Any]
"""The stored record of one function or one file of members."""

VERDICTS = "own.json"


def binder(config: Config) -> Bind | None:
    """Return the importer of functions that the command line names as forms; None if it names none."""
    if not any_named(variant.form for variant in config.variant.values()):
        return None
    from attn_exp.diagnosis.judging.own_form import bind  # noqa: PLC0415 - most runs have no code of the user's own

    return bind


def record_functions_by_name(names: Iterable[str]) -> dict[str, Any]:
    """Return the stored record of functions: the file and its hash, if the name contains a file; empty for none."""
    records = [{"form": name, "file": file_in(name), "sha256": fingerprint_of_function(name)} for name in names]
    return {FUNCTIONS: records} if records else {}


def file_in(name: str) -> str:
    place = name.rpartition(":")[0]
    return place if place.endswith(".py") else ""


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
    known = {record["form"]: record["sha256"] for record in records}
    for name in functions_in(config):
        yield change_of_file(name, known.get(name, ""), fingerprint_of_function(name))


def change_of_file(name: str, recorded: str, now: str) -> str:
    """Say whether the hash of code is the recorded one."""
    if not recorded:
        return f"running {name}, of which no hash was recorded"
    if now == recorded:
        return f"running {name}, unchanged"
    return f"running {name}, whose file has changed since: sha256 {now[:12] or 'none'}, recorded {recorded[:12]}"


def record_members(config: Config) -> dict[str, Any]:
    """Return the stored record of members from outside: all those of named files, and the registered ones that the
    settings use."""
    used = set(re.findall(r"\w+", repr(config))) if registry.OUTSIDE else set()
    records = [
        {"name": origin.name, "file": origin.file, "sha256": origin.sha256, "members": members}
        for origin, members in registry.origins().items()
        if origin.name or used & {member.partition(":")[2] for member in members}
    ]
    return {MEMBERS: records} if records else {}


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
    from attn_exp.config.fields import make  # noqa: PLC0415 - most runs have none
    from attn_exp.experiment.verdict import Verdict  # noqa: PLC0415

    try:
        verdicts = read_json(folder / VERDICTS, {"verdicts": [{"variant": str}]})["verdicts"]
        return {verdict.pop("variant"): make(Verdict, as_tuples(verdict), VERDICTS) for verdict in verdicts}
    except FileNotFoundError:
        return {}


def as_tuples(value: Any) -> Any:
    """Convert the lists in plain data to tuples."""
    if isinstance(value, dict):
        return {key: as_tuples(item) for key, item in value.items()}
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
