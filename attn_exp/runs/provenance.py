"""The provenance of a run: input files, user code, versions, git state and processor.

Files and code are recorded by name and hash. Code that a stored run names is not executed: a report needs only its
name, and `rerun` needs `--own-code` to run it. If an input file has changed, `rerun` uses the arrays that the run
stored.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import threadpoolctl

from attn_exp import registry
from attn_exp.config.inputs import Embeddings, Projections
from attn_exp.config.schema import Config
from attn_exp.config.spelling import array_name, array_reference, spelled
from attn_exp.errors import UserError, brief, printable
from attn_exp.experiment.variant import Bind
from attn_exp.own_code import Named, any_named, file_of_function, fingerprint, fingerprint_of_function, is_code
from attn_exp.problem import input_files
from attn_exp.problem.problem import Problem
from attn_exp.registry import ABSENT, Origin
from attn_exp.report.escapes import plain

HERE = Path(__file__).resolve().parent.parent
# what is recorded about each BLAS library
BLAS_KEYS = ("internal_api", "version", "architecture", "num_threads", "threading_layer")
# libraries whose versions are recorded if they have been imported
LIBRARIES = ("numpy", "hydra", "omegaconf", "pandas", "matplotlib", "jinja2")

OPTION = "--own-code"
SCHEMAS = {
    "code?": [{"form": str, "file": str, "sha256": str}],
    "with?": [{"name": str, "file": str, "sha256": str, "members": [str]}],
    "inputs?": [{"setting": str, "file": str, "sha256": str}],
}
"""Schemas of the records of functions, member files and input files in `run.json`."""

About = Mapping[str, Any]


def describe_origin() -> dict[str, Any]:
    """Return everything, apart from the settings, that could change a result: versions, git state, CPU and BLAS."""
    libraries = {name: str(sys.modules[name].__version__) for name in LIBRARIES if name in sys.modules}
    return {
        "versions": {"python": platform.python_version(), **libraries},
        "git": read_git_state(),
        "cpu": read_cpu(),
        "blas": [{key: pool.get(key) for key in BLAS_KEYS} for pool in threadpoolctl.threadpool_info()],
    }


def read_git_state(checkout: Path = HERE.parent) -> dict[str, Any] | None:
    command = ["git", "-C", str(checkout), "status", "--porcelain=v2", "--branch"]
    if not (checkout / "pyproject.toml").is_file():
        return None
    try:
        status = subprocess.run(command, capture_output=True, check=False, encoding="utf-8", errors="replace").stdout
    except OSError:
        return None
    commit = re.search("^# branch.oid (.*)", status, re.MULTILINE)
    return {"commit": commit[1], "dirty": bool(re.search("^[^#]", status, re.MULTILINE))} if commit else None


def read_cpu() -> str:
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    match = re.search(r"^model name\s*:\s*(.*\S)", text, re.MULTILINE)
    return match[1] if match else platform.processor() or platform.machine()


def record_files(config: Config, forms: Iterable[str], swept: Iterable[tuple[str, Any]] = ()) -> dict[str, Any]:
    """Return the record of the code and the input files of a run or sweep; `forms` are names of user functions.

    Members from outside are recorded if they come from a file named with `--with`, or if the settings use them.
    """
    swept_files = [(key, value) for key, value in swept if input_files.is_file(key) and isinstance(value, str)]
    files = dict.fromkeys([*input_files.list_input_files(config).items(), *swept_files])
    used_names = set(re.findall(r"\w+", repr(config))) if registry.OUTSIDE else set()
    records = {
        "code": [
            {"form": form, "file": file_of_function(form), "sha256": fingerprint_of_function(form)} for form in forms
        ],
        "with": [
            {**from_file._asdict(), "members": members}
            for from_file, members in registry.origins().items()
            if from_file.name or used_names & {member.partition(":")[2] for member in members}
        ],
        "inputs": [{"setting": key, "file": file, "sha256": input_files.fingerprint(file, key)} for key, file in files],
    }
    return {key: entries for key, entries in records.items() if entries}


# Code


def find_binder(config: Config) -> Bind | None:
    """Return the function that imports the user functions of variants; None if the command line names none."""
    if not any_named(variant.form for variant in config.variant.values()):
        return None
    from attn_exp.diagnosis.judging.own_form import bind  # noqa: PLC0415 - most runs have no code of the user's own

    return bind


def list_functions(config: Config) -> list[str]:
    return list(dict.fromkeys(variant.form for variant in config.variant.values() if is_code(variant.form)))


def list_member_files(about: About) -> tuple[str, ...]:
    """Return the `--with` files that define a run's members; members registered in Python have no file."""
    return tuple(record["name"] for record in about.get("with", ()) if record["name"])


@contextmanager
def allow_members(about: About, folder: Path, is_allowed: bool) -> Iterator[tuple[str, ...]]:
    """Register the members that a run used, if the user allowed its code (`is_allowed`); yield their files.

    Print to stderr whether each file has changed.

    Raises:
        UserError: there is code but `is_allowed` is not set, a file is invalid, or a member has no file.
    """
    members = about.get("with", ())
    unnamed = [member.partition(":")[2] for record in members if not record["name"] for member in record["members"]]
    if unnamed:
        raise UserError(
            f"{folder}: needs {format_names(unnamed)}, registered in Python; register it again, then call attn_exp.run"
        )
    files = list_member_files(about)
    recorded = {record["name"]: record["sha256"] for record in members}
    allow_code(files, fingerprint, recorded, folder, is_allowed)
    if not files:
        yield files
        return
    from attn_exp.plugins import load_members  # noqa: PLC0415 - few runs know any member from outside

    with load_members(files):
        yield files


def allow_functions(config: Config, about: About, folder: Path, is_allowed: bool) -> Config:
    """Mark the functions in stored settings as allowed to run, if the user allowed it (`is_allowed`).

    Print to stderr whether the file of each has changed.

    Raises:
        UserError: the settings name functions, and `is_allowed` is not set.
    """
    recorded = {record["form"]: record["sha256"] for record in about.get("code", ())}
    allow_code(list_functions(config), fingerprint_of_function, recorded, folder, is_allowed)
    variants = {
        name: replace(variant, form=Named(variant.form)) if is_code(variant.form) else variant
        for name, variant in config.variant.items()
    }
    return replace(config, variant=variants)


def format_names(names: Iterable[str]) -> str:
    return ", ".join(plain(brief(name)) for name in names)


def allow_code(
    names: Sequence[str], hash_of: Callable[[str], str], recorded: Mapping[str, str], folder: Path, is_allowed: bool
) -> None:
    """Refuse to run the files or functions with these names unless the user allowed it (`is_allowed`).

    If they may run, print to stderr whether each still has the recorded hash.

    Raises:
        UserError: there are names, but `is_allowed` is not set; in that case no file has been read.
    """
    if names and not is_allowed:
        raise UserError(f"{folder}: it runs code ({format_names(names)}); review the code, then add {OPTION} to run it")
    for name in names:
        recorded_hash, sha256 = recorded.get(name, ""), hash_of(name)
        state = f"; its file has changed: sha256 {sha256[:12] or 'none'}, recorded {recorded_hash[:12] or 'none'}"
        if sha256 == recorded_hash:
            state = ", unchanged" if recorded_hash else "; no hash of it was recorded"
        print(f"attn_exp: {printable(f'running {name}{state}')}", file=sys.stderr)


@contextmanager
def register_names_only(about: About) -> Iterator[None]:
    """Register a stored run's members by name only, unless a file already provides them; nothing is imported."""
    with registry.undo_registrations():
        for record in about.get("with", ()):
            from attn_exp.plugins import KINDS, is_taken  # noqa: PLC0415 - as above

            for member in record["members"]:
                package, _, name = member.partition(":")
                kind = next((kind for kind in KINDS if kind.package == package), None)
                if kind is not None and not ((package, name) in registry.OUTSIDE or is_taken(kind, name)):
                    registry.add(package, name, ABSENT, Origin(record["name"], record["file"], record["sha256"]))
        yield


# Input files


def changed_inputs(config: Config, about: About) -> Iterator[str]:
    """Yield a phrase for each input file that is not as recorded, such as `x.npy has changed`."""
    records = [record for record in about.get("inputs", ()) if record["sha256"]]
    recorded = {(record["setting"], record["file"]): record["sha256"] for record in records}
    for key, file in input_files.list_input_files(config).items():
        sha256 = input_files.fingerprint(file, key)
        if (key, file) not in recorded:
            yield f"{brief(file)} was not recorded"
        elif sha256 != recorded[key, file]:
            yield f"{brief(file)} {'has changed' if sha256 else 'no longer exists'}"


def with_stored_arrays(config: Config, words: Sequence[str], problem: Problem) -> tuple[Config, tuple[str, ...]]:
    """Return the settings and arguments of a run, with its stored arrays instead of files and random numbers."""
    given = {name: matrix.tolist() for name, matrix in problem.projections.items()}
    projections = Projections(source="identity", given=given) if given else config.projections
    config = replace(config, embeddings=embeddings_of(problem), projections=projections, draws=None)
    arrays = {f"embeddings.{name}": getattr(problem, name) for name in ("q", "k", "v", "weights")}
    if problem.x is not None:
        arrays = {"embeddings.vectors": problem.x}
    arrays |= {"embeddings.memory.vectors": problem.memory}
    arrays |= {f"++projections.given.{name}": matrix for name, matrix in problem.projections.items()}
    array_words = [f"{key}={array_reference(array_name(array))}"
             for key, array in arrays.items() if array is not None]  # fmt: skip
    kept_words = [word for word in words if not word.lstrip("+").startswith(("embeddings", "projections", "draws"))]
    input_words = ["embeddings=inline", f"embeddings.tokens={spelled(config.embeddings.tokens)}"]
    projection_words = [] if given else ["projections=none"]
    return config, (*kept_words, *input_words, *projection_words, *array_words)


def embeddings_of(problem: Problem) -> Embeddings:
    tokens = problem.key_tokens if problem.past else problem.tokens
    later_stages = {name: getattr(problem, name) for name in ("q", "k", "v", "weights")}
    stages = later_stages if problem.x is None else {"vectors": problem.x}
    arrays = {name: array.tolist() for name, array in stages.items() if array is not None}
    vectors = None if problem.memory is None else problem.memory.tolist()
    has_memory = vectors is not None or problem.key_tokens != tokens
    memory = Embeddings(tokens=problem.key_tokens, vectors=vectors) if has_memory else None
    return Embeddings(tokens=tokens, memory=memory, **arrays)
