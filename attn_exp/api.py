"""The Python API: `run`, `sweep`, `load`, `check`, `explain` and more, with the settings of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attn_exp import machine
from attn_exp.config.compose import compose_config, compose_values, repeat_command
from attn_exp.config.hydra_errors import check_hydra_words
from attn_exp.config.schema import read_config
from attn_exp.config.spelling import Repeat, spelled
from attn_exp.errors import NotVerifiedError, UncalledError, WrongAttentionError
from attn_exp.experiment.executing import STAGES
from attn_exp.runs import execution, provenance, store
from attn_exp.runs.execution import Result
from attn_exp.runs.store import (
    as_plain,
    format_array,
    input_words,
    insert_arrays,
    split_arrays,
)

if TYPE_CHECKING:
    from attn_exp.experiment.verdict import Verdict
    from attn_exp.report.versus import Versus
    from attn_exp.runs.sheets import Exercise
    from attn_exp.sweeps.swept import Swept


def run(*words: str, config_dir: str | Path | None = None, **settings: Any) -> Result:
    """Compute and compare the variants that the settings describe, without writing any files.

    Arguments are those of the command line: `run("mask=causal", head=2, scale=False)` is
    `python -m attn_exp mask=causal head=2 scale=false`. Choose several variants with a list:
    `variant=["looped", "scaled"]`. You can also pass your own arrays; they replace those of a preset:

    - the input, with one token per row: `vectors` `[t m]`; or `q`, `k` and `v`; or `weights` and `v`. `tokens` names
      the rows, as in `run(vectors=x, tokens=["a", "b"])`.
    - the projections: W_q, W_k and W_v `[m h*d]`, W_o `[h*e m]`, and the biases b_q, b_k, b_v and b_o.
    - `memory`, for cross-attention: `[s n]`, or `{"vectors": ..., "tokens": [...]}`. It provides the keys and values.

    Raises:
        UserError: the command line would refuse the settings; the message is the same.
    """
    input_arrays, projections = split_arrays(settings)
    plain = {key: value for key, value in settings.items() if key not in (*input_arrays, *projections)}
    all_words = [*input_words(input_arrays), *as_words(words, plain)]
    folders = folders_of(config_dir)
    config = read_config(insert_arrays(compose_values(all_words, folders), input_arrays, projections))
    array_words = [f"embeddings.{key}={format_array(value)}" for key, value in input_arrays.items()]
    array_words += [f"++projections.given.{key}={format_array(value)}" for key, value in projections.items()]
    return Result(*execution.compute(config), repeat_command([*all_words, *array_words], folders))


def sweep(*words: str, config_dir: str | Path | None = None, **settings: Any) -> Swept:
    """Run every combination of the given values, as `-m` does, and return the results.

    `sweep("head=1,2", "seed=range(0,10)", variant=["matrix", "multi_head"])` is `python -m attn_exp -m head=1,2
    'seed=range(0,10)' variant=[matrix,multi_head]`. Both use the same folder, and either resumes a stopped sweep. On
    macOS and Windows, workers import the calling script, so put the call below `if __name__ == "__main__":`.

    Raises:
        UserError: the command line would refuse the settings; the folder cannot be written to; or
            `sweep.dry_run=true` is set, so there are no results to return.
    """
    from attn_exp.sweeps.sweep import compute_sweep  # noqa: PLC0415 - a run needs none of it

    return compute_sweep(as_words(words, settings), folders_of(config_dir))


def load(folder: str | Path) -> Result | Swept:
    """Load a run from its folder, or a sweep with its table, answers and figures.

    Raises:
        UserError: the folder contains neither a run nor a sweep, or cannot be read.
    """
    path = machine.folder(folder)
    if (path / "manifest.json").is_file() and not (path / "run.json").exists():
        from attn_exp.sweeps import swept  # noqa: PLC0415 - a run needs none of it

        return swept.load(path)
    run = store.load(path)
    member_files = provenance.list_member_files(run.about)
    return Result(
        run.comparison, run.timings, Repeat(tuple(run.about["words"]), tuple(run.about["folders"]), own=member_files)
    )


def compare(first: Result | Swept | str | Path, second: Result | Swept | str | Path) -> Versus:
    """Compare two runs or sweeps, given as results or folders, as `attn-exp compare` does, but without writing a page.

    The repr of the result is the text that the command prints. Its attributes:

    - `moved`: whether any number differs beyond rounding, or is missing on one side.
    - `sentences`: the differences in words, the most important first.
    - `tables`: the cells and the settings that differ.

    Raises:
        UserError: one is a run and the other a sweep, or a folder cannot be read.
    """
    from attn_exp.sweeps import compare as comparing  # noqa: PLC0415 - most imports need none

    return comparing.compare_results(first, second)


def check(function: Any, *words: str, quick: bool = False, against: Any = None, **settings: Any) -> Verdict:
    """Check a function, a module or a class of modules, and name the mistake if there is one.

    - `function`: the object itself, or a name such as `"mine.py:attention"`.
    - `against`: another implementation; the verdict says where the two agree and where they differ.
    - `ignore`: what need not be verified. These are arguments of the function, or parts of a layer as the verdict names
      them: `check(mine, ignore=["past_key_value", "projections"])`.
    - `layout`: `bhtd`, `bthd`, `htd`, `td` or `btm`; `takes`: `numpy`, `torch` or `jax`; `dtype`: that of the input
      arrays. If one of these three is left out, its values are tried in turn.
    - `device`: where PyTorch creates the input arrays; the CPU by default.

    All other arguments describe the expected computation, as on the command line: `check(mine, "mask=causal",
    kv_head=2)`.

    Raises:
        UserError: the signature is not recognised, or the settings do not apply to the function.
    """
    from attn_exp.diagnosis import command  # noqa: PLC0415 - most imports need none

    return command.check_objects(function, against, as_words(words, settings), quick)


def explain(*words: str, config_dir: str | Path | None = None, **given: Any) -> Verdict:
    """Explain numbers: are they right, which mistake produces them, or where is the slip?

    Pass each stage as an array, printed text, or file name; other arguments are settings, as in `run`:
    `explain("embeddings=the_cat_sat", weights=mine, output="[[2.37,2.45,2.13,1.56]]")`. Numbers may be rounded; unknown
    ones are None or NaN. The first variant defines the right computation.

    Raises:
        UserError: the numbers do not fit the run, or the settings are invalid.
    """
    from attn_exp.diagnosis.classroom import numbers  # noqa: PLC0415 - a run needs none

    answers = {key: value for key, value in given.items() if key in STAGES}
    all_words = as_words(words, {key: value for key, value in given.items() if key not in STAGES})
    return numbers.explain(compose_config(all_words, folders_of(config_dir)), answers, " ".join(all_words))


def sheet(*words: str, **settings: Any) -> Exercise:
    """Return a worksheet: a notebook shows it with cells to type into, and its `check` grades numbers.

    Arguments are those of `attn-exp sheet`: `sheet("experiment=the_cat_sat", stages=["scores"], digits=3)`.

    Raises:
        UserError: the settings are invalid, or do not describe exactly one sheet.
    """
    from attn_exp.runs import sheets  # noqa: PLC0415 - most imports need none

    return sheets.exercise(as_words(words, settings))


def assert_attention(function: Any, *words: str, allow_not_verified: bool = False, **settings: Any) -> None:
    """Check a function as `check` does, and raise an error unless it passes; for your own tests.

    With `allow_not_verified`, a function also passes if it is right as far as it could be checked.

    Raises:
        WrongAttentionError: an output contradicts the definition; the message is the verdict in about five lines.
        NotVerifiedError: no mistake was found, but the function could not be called or verified completely.
        UserError: as for `check`.
    """
    try:
        verdict = check(function, *words, **settings)
    except UncalledError as error:
        raise NotVerifiedError(str(error)) from error
    if verdict.is_wrong:
        raise WrongAttentionError(verdict.summary)
    if not (verdict.passed or (allow_not_verified and verdict.verified)):
        raise NotVerifiedError(verdict.summary)


def as_words(words: Sequence[Any], settings: Mapping[str, Any]) -> list[str]:
    all_words = [*map(str, words), *(f"{key}={spelled(as_plain(value))}" for key, value in settings.items())]
    check_hydra_words(all_words)
    return all_words


def folders_of(config_dir: str | Path | None) -> list[str]:
    return [] if config_dir is None else [str(Path(config_dir))]
