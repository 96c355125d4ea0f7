"""Wrap a user's function as a form of a run.

`bind` finds out how to call it and returns an `OwnForm`, which passes a run's q, k and v, or its x and matrices, under
the function's argument names, and converts the result to a `Trace`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.config.schema import Config
from attn_exp.config.spelling import spelled
from attn_exp.diagnosis.asking.case import Answer, Case
from attn_exp.diagnosis.asking.libraries import DTYPES
from attn_exp.diagnosis.asking.request import Request, repeat_pattern
from attn_exp.diagnosis.calling import ways_to_call
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.judging.check import check
from attn_exp.diagnosis.judging.check_layer import is_layer
from attn_exp.errors import OwnCodeError, UserError, first_line
from attn_exp.experiment.compare import prepare
from attn_exp.experiment.executing import find_type
from attn_exp.experiment.library_conventions import convention
from attn_exp.experiment.variant import Bind, Settled
from attn_exp.experiment.verdict import CHECKED, Verdict, make_unfinished
from attn_exp.forms.form import Form
from attn_exp.forms.pipeline import Given, Recipe
from attn_exp.forms.trace import Trace
from attn_exp.own_code import OwnFunction, any_named, find_function, guard_process
from attn_exp.problem.problem import Heads, Problem
from attn_exp.reference.oracle import Question
from attn_exp.rules.rules import Rules

STAGES = {
    "weights": ("weights", "attnweights", "attentionweights", "attn", "attention", "probs", "probabilities", "p"),
    "scores": ("scores",),
    "logits": ("logits",),
    "masked": ("masked",),
}
"""For each stage of a trace, the names that a result may have for it, in lowercase without underscores."""


@dataclass(frozen=True)
class OwnForm:
    """A user's function, bound and ready to run as a form.

    `caller` knows its arguments, and `request` has the settings of its variant. `output_dtype` is the dtype of its
    first result, which may be coarser than that of the input.
    """

    own: OwnFunction
    caller: Caller
    request: Request
    output_dtype: str = ""

    @property
    def form(self) -> Form:
        """The form that calls this function; given q, k and v, it computes only the context."""
        dtypes = [name for name in (self.caller.dtype, self.output_dtype) if name in DTYPES]
        coarsest = max(dtypes, key=DTYPES.index)
        return Form(
            self.attend, dtype=None if coarsest == "float64" else find_type(coarsest).name, mix=None,
            context_alone=True, library=self.caller.library.name,
            leaks="the function is the user's own, and may let masked values through",
        )  # fmt: skip

    @property
    def layer(self) -> bool:
        """Whether the function takes x and the matrices of a layer rather than q, k and v."""
        return not self.caller.offer.core

    @property
    def takes_output_projection(self) -> bool:
        return self.layer and self.caller.offer.takes("W_o")

    @property
    def bind(self) -> Bind:
        return bind

    def judge(self, heads: Heads) -> Verdict:
        """Run a quick check, and the full one if the quick one finds an error but cannot name it."""
        request = replace(
            self.request,
            head=heads.query if heads.query > 1 else None,
            kv_head=None if heads.shared == heads.query else heads.shared,
        )
        try:
            quick = check(self.own, request, quick=True)
            return quick if not quick.is_wrong or quick.mistakes else check(self.own, request)  # may name it
        except (ValueError, IndexError, ArithmeticError) as error:  # raised at sizes that only this run's input has
            return make_unfinished(
                self.own.name, f"it could not be checked: {first_line(error)}", request.words, CHECKED
            )

    def attend(self, q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
        """Call the function with heads `[h t d]`, `[g s d]` and `[g s e]`.

        Raises:
            OwnCodeError: the function takes x, raised an error, or returned an array of the wrong shape.
        """
        if self.layer:
            raise OwnCodeError(f"{self.own.name} takes x, but this run passes q, k and v")
        assert v is not None
        has_usual_scale = bool(np.isclose(rules.scale, q.shape[-1] ** -0.5, rtol=1e-12))
        case = Case("run", Recipe(rules, len(q), len(k)), Given(q[None], k[None], v[None]), not has_usual_scale)
        answer = self.answer(case, dtype=str(q.dtype))
        context = self.read_output(answer, (1, len(q), q.shape[1], v.shape[-1]))[0].astype(q.dtype, copy=False)
        shape = (len(q), q.shape[1], k.shape[1])
        return Trace(q=q, k=k, v=v, context=context).replace(**read_stages(answer, shape, q.dtype))

    def whole(self, question: Question, problem: Problem, *, usual: bool) -> Trace:
        """Call a function of x on a problem; return its output `[t m]` and the stages that it returns.

        `question` gives the rules and heads of the run; `usual` means that scores are divided by `sqrt(d)`.

        Raises:
            OwnCodeError: the problem has no x, or the function raised an error or returned an array of the wrong shape.
        """
        if problem.x is None:
            raise OwnCodeError(f"{self.own.name} takes x, which this problem does not have")
        if problem.memory is not None or problem.past:
            other = "a past" if problem.past else "a memory"
            raise OwnCodeError(f"{self.own.name} takes only x, but this run has {other}; use a function of q, k and v")
        heads = question.heads
        recipe = Recipe(question.rules, heads.query, heads.shared, output_projection=question.output_projection)
        case = Case("run", recipe, Given(x=problem.x[None], arrays=problem.projections), not usual)
        answer = self.answer(case, dtype=str(problem.x.dtype))
        rows, width = len(problem.x), output_width(question, problem)
        output = self.read_output(answer, (1, rows, width))[0].astype(problem.x.dtype, copy=False)
        return Trace(output=output).replace(**read_stages(answer, (heads.query, rows, problem.keys), problem.x.dtype))

    def answer(self, case: Case, dtype: str) -> Answer:
        """Call the function on a case of a run, in the dtype of the run if that is coarser than the function's own."""
        is_coarser = dtype in DTYPES and DTYPES.index(dtype) > DTYPES.index(self.caller.dtype)
        caller = replace(self.caller, dtype=dtype) if is_coarser else self.caller
        with guard_process(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ignore the function's warnings and judge only its output
            answers = [caller(single) for single in split_into_heads(case, caller)]
        error = next((answer.error for answer in answers if answer.output is None), "")
        if error:
            raise OwnCodeError(f"{self.own.name}: {error}")
        return answers[0] if len(answers) == 1 else join_heads(answers)

    def read_output(self, answer: Answer, expected: Shape) -> Array:
        assert answer.output is not None
        if answer.output.shape != expected:
            got = list(answer.output.shape)
            raise OwnCodeError(f"{self.own.name} returned shape {got}, expected {list(expected)}")
        return answer.output


def bind(settled: Settled, settings: Mapping[str, Any], seed: int) -> OwnForm:
    """Import the function that a variant names as its form, and find out how to call it.

    `settings` has every setting of the variant, whether the variant fixes it or takes it from the run.

    Raises:
        UserError: the function cannot be imported, or its parameters are not known.
    """
    rules, conventions = settled.rules, convention(settings["convention"])
    request = Request(
        tuple(map(repeat_pattern, rules.masks)), rules.scores, settled.positions, rules.normalizer, settled.scale,
        blocks=conventions.blocks, empty=conventions.empty, align=settings["align"] or conventions.default_align,
        caps_last=conventions.caps_last, seed=seed, typed=frozenset(yield_settings(settings)),
        as_typed=True,
    )  # fmt: skip
    with guard_process(), warnings.catch_warnings(), np.errstate(all="ignore"):
        function = replace(find_function(settled.form), target=str(settled.form))
        warnings.simplefilter("ignore")
        if is_layer(function.function):
            raise UserError(
                f"{settled.form} is a layer with matrices of its own; a form is a function of q, k and v, or of x and "
                "W_q, W_k, W_v and W_o; `attn-exp check` takes layers"
            )
        tried = ways_to_call.how_to_call(function, request)
    return OwnForm(function, tried.caller, request, tried.answer.dtype)


def yield_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings that define what a variant computes, in command-line syntax."""
    for group in ("mask", "score", "position"):
        if settings[group]:
            yield f"{group}=[{','.join(settings[group])}]"
        for name, options in settings[group].items():
            given = {key: value for key, value in options.items() if value is not None}
            yield from (f"{group}.{name}.{key}={spelled(value)}" for key, value in given.items())
    for name in ("scale", "normalizer", "convention", "align", "mask_join"):
        if settings[name] != getattr(Config, name):
            yield f"{name}={spelled(settings[name])}"


def output_width(question: Question, problem: Problem) -> int:
    if question.output_projection and "W_o" in problem.projections:
        return int(problem.projections["W_o"].shape[1])
    assert problem.v is not None
    return int(problem.v.shape[-1]) // question.heads.given * question.heads.query


def split_into_heads(case: Case, caller: Caller) -> list[Case]:
    """Split a case into one per query head, for a function of a single head `[t d]`."""
    if not (caller.offer.core and caller.layout == "td"):
        return [case]
    q, k, v, recipe = case.given.q, case.given.k, case.given.v, case.recipe
    assert q is not None and k is not None and v is not None
    group = recipe.heads // recipe.groups  # query heads that share keys and values
    heads = [Given(q[:, [head]], k[:, [head // group]], v[:, [head // group]]) for head in range(recipe.heads)]
    return [replace(case, recipe=replace(recipe, heads=1, groups=1), given=given) for given in heads]


def join_heads(answers: list[Answer]) -> Answer:
    outputs = [answer.output for answer in answers if answer.output is not None]
    names = [name for name in answers[0].stages if all(name in answer.stages for answer in answers)]
    stages = {name: np.stack([answer.stages[name] for answer in answers]) for name in names}
    return Answer(np.concatenate(outputs, axis=1), stages, answers[0].dtype)


def read_stages(answer: Answer, shape: tuple[int, int, int], dtype: Any) -> dict[str, Array]:
    """Return the stages `[h t s]` that an answer contains, under their names in a trace.

    If a function returns a tuple, its second array is assumed to be the weights.
    """
    stage_of = {name: stage for stage, names in STAGES.items() for name in names} | {"returned1": "weights"}
    stages = {}
    for name, array in answer.stages.items():
        stage = stage_of.get(name.replace("_", "").replace(" ", "").lower())
        heads = array[0] if array.ndim == 4 and len(array) == 1 else array
        heads = heads[None] if heads.ndim == 2 and shape[0] == 1 else heads
        if stage is not None:
            stages[stage] = heads
    return {stage: heads.astype(dtype, copy=False) for stage, heads in stages.items() if heads.shape == shape}


def prepared_with_code(config: Config) -> tuple[Config, Problem, tuple[Settled, ...]]:
    """Prepare a run, as `prepare` does, and bind the user's functions that the command line names as forms.

    Raises:
        UserError: the settings do not fit the problem, or a function cannot be imported or called.
    """
    return prepare(config, bind=bind if any_named(variant.form for variant in config.variant.values()) else None)
