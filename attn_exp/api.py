"""`attn_exp.run`: a run from Python, composed and computed as on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.config.read import read
from attn_exp.config.repeat import Repeat
from attn_exp.config.schema import Config
from attn_exp.config.spelling import spelled
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.comparison import Comparison, Run
from attn_exp.experiment.timing import Timing
from attn_exp.problem.projections import BIASES, MATRICES
from attn_exp.report import terminal
from attn_exp.runs import arrays, execution, rendering, store
from attn_exp.runs.provenance import ask_git, origin

if TYPE_CHECKING:
    import pandas as pd

    from attn_exp.experiment.judging.verdict import Verdict
    from attn_exp.report.notebook import Drawing


def run(*words: str, config_dir: str | Path | None = None, **settings: Any) -> Result:
    """Compute and compare what the settings describe; nothing is written.

    Words and settings mean what they mean on the command line: `run("mask=causal", head=2, scale=False)` is
    `python -m attn_exp mask=causal head=2 scale=false`. Lists choose several variants: `variant=["looped", "scaled"]`.
    Your own arrays, tokens in rows: `run(vectors=x, tokens=["a", "b"])`, where x is `[t m]`; or `q`, `k` and `v`; or
    `weights` and `v`; and W_q, W_k, W_v `[m h*d]`, W_o `[h*e m]`, b_q, b_k, b_v, b_o. They win over presets.

    Raises:
        UserError: whatever the command line would refuse, in the same words.
    """
    from attn_exp.config.compose import repeat_command, values  # noqa: PLC0415 - most imports need none

    input_arrays, projections = split(settings)
    chosen = [f"{key}={spelled(plain(value))}" for key, value in settings.items() if not is_array_name(key)]
    all_words = [*starting(input_arrays), *words, *chosen]
    folders = [] if config_dir is None else [str(config_dir)]
    config = read(with_arrays(values(all_words, folders), input_arrays, projections))
    given = [f"embeddings.{key}={named_or_spelled(value)}" for key, value in input_arrays.items()]
    given += [f"++projections.given.{key}={named_or_spelled(value)}" for key, value in projections.items()]
    return Result(*execution.compute(config), repeat_command([*all_words, *given], folders))


def check(function: Any, *words: str, quick: bool = False, **settings: Any) -> Verdict:
    """Check a function, a module or its class, and name the mistake where there is one.

    Words and settings say what it should compute, as on the command line: `check(mine, "mask=causal", kv_head=2)`.
    `layout` is `bhtd`, `bthd`, `htd` or `td`, `takes` is `numpy`, `torch` or `jax`, `dtype` and `device` are those of
    the arrays that it is given; what is not said is tried. `function` may be a name, as in `"mine.py:attention"`.

    Raises:
        UserError: what the function takes is not known, or settings that cannot be asked of it.
    """
    from attn_exp.experiment.judging import check as judging  # noqa: PLC0415
    from attn_exp.experiment.judging import command, own  # noqa: PLC0415 - most imports need none

    question = command.understood([*words, *(f"{key}={spelled(plain(value))}" for key, value in settings.items())])
    found = own.find(function) if isinstance(function, str) else own.given(function)
    return judging.check(found, question, quick=quick)


def explain(*words: str, config_dir: str | Path | None = None, **given: Any) -> Verdict:
    """Explain numbers: are they right, which mistake gives them, or where is the slip?

    Stages are arrays, texts as they were printed, or names of files; all else are settings, as in `run`:
    `explain("embeddings=the_cat_sat", weights=mine, output="[[2.37,2.45,2.13,1.56]]")`. Numbers may be rounded, and
    None or NaN where they are not known. The first variant is what is right.

    Raises:
        UserError: numbers that have no place in the run, or settings that no run would take.
    """
    from attn_exp.config.compose import composed  # noqa: PLC0415 - most imports need none
    from attn_exp.experiment.judging import boxes, numbers  # noqa: PLC0415

    answers = {key: value for key, value in given.items() if key in boxes.STAGES}
    settings = [f"{key}={spelled(plain(value))}" for key, value in given.items() if key not in boxes.STAGES]
    folders = [] if config_dir is None else [str(config_dir)]
    return numbers.explain(composed([*words, *settings], folders), answers, " ".join([*words, *settings]))


def assert_attention(function: Any, *words: str, **settings: Any) -> None:
    """Check a function as `check` does, in a test of your own.

    Raises:
        AssertionError: it did not pass; the message is the verdict.
        UserError: as `check`.
    """
    verdict = check(function, *words, **settings)
    if not verdict.passed:
        raise AssertionError(str(verdict))


@dataclass(frozen=True)
class Result:
    """What a run found. In a notebook it shows itself: the table, the sentence, and the weights of every variant.

    `comparison` holds everything as plain data, `timings` what each variant costs, `repeat` what repeats the run.
    """

    comparison: Comparison
    timings: tuple[Timing, ...]
    repeat: Repeat

    @property
    def command(self) -> str:
        """The command that repeats the run; a large array of yours goes by a name that `results.npz` knows it by."""
        return self.repeat.line

    @property
    def config(self) -> Config:
        """The settings, as the command line reads them."""
        return self.comparison.config

    @property
    def table(self) -> pd.DataFrame:
        """A row per variant: its settings, how right it is, how far from the first, what its weights look like."""
        from attn_exp.report import tables  # noqa: PLC0415 - pandas is slow to import

        return tables.comparison(self.comparison)

    @property
    def distances(self) -> pd.DataFrame:
        """How far every two variants' answers are apart."""
        from attn_exp.report import tables  # noqa: PLC0415

        return tables.distances(self.comparison)

    @property
    def published(self) -> pd.DataFrame:
        """A row per printed result of a document, and whether the run agrees with it."""
        from attn_exp.report import tables  # noqa: PLC0415

        return tables.published(self.comparison)

    def stage(self, variant: str, name: str, head: int = 1) -> pd.DataFrame:
        """Return a stage of a variant, `q`, `logits`, `weights`, `output` and so on, with tokens as labels.

        Heads count from 1, here and in every table and picture that people read.

        Raises:
            UserError: there is no such variant, it did not form that stage, or it has no such head.
        """
        from attn_exp.report import tables  # noqa: PLC0415

        return tables.stage(self.comparison, variant, name, head)

    def array(self, variant: str, name: str) -> NDArray[Any]:
        """Return a stage of a variant as an array, such as its weights `[h t s]` or its output `[t m]`.

        Raises:
            UserError: there is no such variant, or it did not form that stage.
        """
        if variant not in self.comparison.traces:
            raise UserError(unknown(variant, list(self.comparison.traces), "variant"))
        formed = dict(self.comparison.traces[variant].stages())
        if name not in formed:
            raise UserError(unknown(name, list(formed), f"stage of {variant}"))
        return np.array(formed[name])

    def figure(self, name: str = "weights") -> Drawing:
        """Return a figure of the report, which shows itself in a notebook: `weights`, `distances`, `entropy`, ...

        Raises:
            UserError: this run has no such figure.
        """
        from attn_exp.report.notebook import drawing  # noqa: PLC0415 - Matplotlib is slow to import

        return drawing(self.comparison, name)

    def save(self, output_dir: str | Path | None = None) -> Path:
        """Write the run and its report as the command line does, and return the new folder.

        Raises:
            UserError: the folder cannot be written to.
        """
        config = self.config if output_dir is None else replace(self.config, output_dir=str(output_dir))
        store.check_writable(Path(config.output_dir))
        rendering.load_renderers(config.report)
        with ask_git() as git:
            comparison = replace(self.comparison, config=config)
            about = store.about(comparison, self.repeat, origin(git))
        return execution.write(Run(comparison, self.timings, about))

    def __repr__(self) -> str:
        return terminal.summary(self.comparison)

    def _repr_html_(self) -> str:
        from attn_exp.report.notebook import page  # noqa: PLC0415 - only notebooks ask for it

        return page(self.comparison, self.timings)


INPUTS = ("tokens", "vectors", "q", "k", "v", "weights")


def is_array_name(key: str) -> bool:
    return key in (*INPUTS, *MATRICES, *BIASES)


def split(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the input's arrays and the projections', as plain lists."""
    inputs = {key: plain(value) for key, value in settings.items() if key in INPUTS}
    return inputs, {key: plain(value) for key, value in settings.items() if key in (*MATRICES, *BIASES)}


def plain(value: Any) -> Any:
    """Return a value as lists and Python's own numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def starting(inputs: Mapping[str, Any]) -> list[str]:
    """Return the words that let the input start at the stage whose arrays are given; none where only names are."""
    if "vectors" in inputs:
        return ["embeddings=inline"]
    return ["embeddings=inline", "projections=none"] if inputs.keys() - {"tokens"} else []


def with_arrays(
    composed: Mapping[str, Any], inputs: Mapping[str, Any], projections: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the composed values with the arrays in their place."""
    settings = dict(composed)
    if inputs:
        kept = composed["embeddings"] if inputs.keys() == {"tokens"} else {}
        settings["embeddings"] = {**kept, **inputs}
    if projections:
        section = composed["projections"]
        settings["projections"] = {**section, "given": {**(section.get("given") or {}), **projections}}
    return settings


def named_or_spelled(value: Any) -> str:
    """Return a value as it is typed, or the name of an array too large to be typed."""
    array = arrays.as_numbers(value)
    return spelled(value) if array is None else arrays.stored(arrays.name_of(array))
