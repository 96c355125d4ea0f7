"""Break the code in one small way at a time and check that the tests notice.

    python tools/mutants.py [--changed] [--only NAME]

Each mutant is a copy of the project with one piece of text exchanged. A mutant that survives its tests, or whose text is
no longer in the file, fails this script. `--changed` tries those of the rooms that the commits of the last day touched.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("hydra", "hypothesis", "matplotlib.figure", "numpy.testing", "pandas", "scipy.special", "xdist")
"""What most tests need is loaded once; each mutant is tried in a fork, which has it already, and nothing of the project."""

OPTIONS = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--all", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""The warning is about libraries that were loaded before pytest began."""

TESTS = ("tests/experiment/test_compare.py", "tests/problem/test_problem.py")


EXAMPLES = ("tests/rules/test_examples.py",)
RULES, RUNS, ONNX = (
    ("tests/rules/test_rules.py",),
    ("tests/experiment/test_ruled_runs.py",),
    ("tests/forms/test_onnx.py",),
)
FORMS = ("tests/forms/test_oracle_matrix.py", "-k", "every_rule")
LENT = ("tests/forms/test_onnxruntime.py",)
STEPS = ("tests/experiment/test_ladder.py",)
DRAWN = ("tests/problem/test_torch_generator.py", "tests/problem/test_generators.py", "tests/problem/test_drawing.py")
FAMILIES = ("tests/problem/models/test_fields.py", "tests/problem/models/test_parts.py")
FAST = ("tests/forms/test_fast_paths.py", "tests/forms/test_choice.py", "tests/forms/test_blockwise.py")
MEASURES = ("tests/experiment/test_measures.py",)
FEW = ("tests/forms/test_few_queries.py", "tests/forms/test_memory.py")


class Mutant(NamedTuple):
    """One way to be wrong: in this file, `right` becomes `wrong`; `tests` are those that should notice."""

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...] = TESTS


MUTANTS = [
    Mutant("softmax over queries", "rules/normalizers/softmax.py", "total = add_up(powers)", "total = powers.sum(axis=-2, keepdims=True)"),
    Mutant("no scale", "experiment/variant.py", "return 1 / math.sqrt(size) if scale else 1.0", "return 1.0"),
    Mutant("scale by d", "experiment/variant.py", "1 / math.sqrt(size)", "1 / size"),
    Mutant("scale by d_model in multi-head", "experiment/variant.py", "problem.q.shape[-1] // head_counts.query", "problem.q.shape[-1]"),
    Mutant("weights transposed", "forms/steps.py", "product(weights, v)", "product(weights.swapaxes(-1, -2), v)"),
    Mutant("Q and K swapped", "forms/steps.py", "product(q, k.swapaxes(-1, -2))", "product(k, q.swapaxes(-1, -2))"),
    Mutant("no bias on v", "forms/steps.py", 'if f"b_{side}" in arrays', 'if f"b_{side}" in arrays and side != "v"'),
    Mutant("comparisons are no family", "sweeps/effects.py", "if chance > LEVEL / (len(p_values) - rank):", "if chance > LEVEL:", ("tests/sweeps/test_answers.py", "-k", "holm")),
    Mutant("letters by the wrong unit", "experiment/measuring.py", "coarser(dtypes[name], dtypes[other])", "dtypes[other]", LENT),
    Mutant("heads split by stride", "forms/steps.py", "reshape(*leading, length, count, width // count).swapaxes(-3, -2)", "reshape(*leading, length, width // count, count).swapaxes(-2, -1).swapaxes(-3, -2)"),
    Mutant("heads in the wrong order", "forms/steps.py", "return heads.swapaxes(-3, -2)", "return heads[..., ::-1, :, :].swapaxes(-3, -2)"),
    Mutant("no max-subtraction", "rules/normalizers/softmax.py", "np.where(largest == -np.inf, largest.dtype.type(0), largest)", "np.zeros_like(largest)"),
    Mutant("colours of a chart by another power", "report/pixels.py", ", 0, 1) ** gamma", ", 0, 1)", ("tests/report/test_charts.py",)),
    Mutant("names of a chart's rows upside down", "report/charts/layout.py", "left - 2, top + (index + 0.5)", "left - 2, top + height - (index + 0.5)", ("tests/report/test_charts.py",)),
    Mutant("a changed number forgets the scale", "report/templates/live.js", "score * plan.c)", "score)", ("tests/report/test_live.py",)),
    Mutant("a page's keys before the past", "report/walk.py", "int(offset), heads)", "0, heads)", ("tests/report/test_closed.py",)),
    Mutant("W_o forgotten", "experiment/executing.py", "if has_projection else merged", "if False else merged"),
    Mutant("one shared random stream", "arrays.py", "[*words, *name.encode()]", "[*words]"),
    Mutant("causal hides the query itself", "rules/masks/causal.py", "grid.key <= grid.query", "grid.key < grid.query", RULES),
    Mutant("windows one key too wide", "rules/masks/window.py", "distance >= -self.left if", "distance >= -self.left - 1 if", RULES),
    Mutant("later documents are seen", "rules/masks/document.py", "== ids[grid.key]", "<= ids[grid.key]", RULES),
    Mutant("padding one key too long", "rules/masks/padding.py", "grid.key < lengths", "grid.key <= lengths", RULES),
    Mutant("masks joined the other way", "rules/masks/mask.py", "operator.and_", "operator.or_", RULES),
    Mutant("ALiBi by the closed formula", "rules/scores/alibi.py", "2 ** math.floor(math.log2(heads))", "heads", RULES),
    Mutant("T5 counts the query as later", "rules/scores/t5.py", "np.where(relative_position > 0", "np.where(relative_position >= 0", RULES),
    Mutant("soft-cap at 1", "rules/scores/softcap.py", "np.tanh(logits / scalar_type(self.cap)) * scalar_type(self.cap)", "np.tanh(logits / scalar_type(self.cap))", RULES),
    Mutant("sink forgotten", "rules/normalizers/softmax.py", "total = total + add_up(np.exp(extra - anchor))", "total = total + 0", RULES),
    Mutant("sparsemax off the simplex", "rules/normalizers/sparsemax.py", "axis=-1) - 1) / np.maximum(support_size, 1)", "axis=-1)) / np.maximum(support_size, 1)", RULES),
    Mutant("sigmoid turned", "rules/normalizers/sigmoid.py", "np.where(masked < 0, powers, one)", "np.where(masked > 0, powers, one)", RULES),
    Mutant("rope turns the other way", "rules/positions/rope.py", "cosines - heads[..., second] * sines", "cosines + heads[..., second] * sines", RULES),
    Mutant("rope pairs the other way", "rules/positions/rope.py", "first = slice(0, 2 * pairs, 2) if interleaved", "first = slice(0, 2 * pairs, 2) if not interleaved", RULES),
    Mutant("every column its own wave", "rules/positions/sinusoidal.py", "(column // 2 * 2 / width)", "(column / width)", RULES),
    Mutant("rope forgets the offset", "experiment/executing.py", "np.arange(q.shape[1]) + first_position(settled, problem)", "np.arange(q.shape[1])", RUNS),
    Mutant("bottom-right is top-left", "experiment/variant.py", '"bottom_right": keys - rows', '"bottom_right": 0', ("tests/experiment/test_checks.py", "-k", "conventions")),
    Mutant("flash aligns to the filler", "experiment/variant.py", "has_filler = library.knows_filler and", "has_filler = False and", ("tests/experiment/test_ruled_runs.py", "-k", "flash")),
    Mutant("the unit forgets the softmax", "experiment/variant.py", "return forms.coarser(form_dtype, np.dtype(softmax))", "return form_dtype", ("tests/experiment/test_checks.py", "-k", "unit")),
    Mutant("a small shift", "experiment/checks/invariants.py", "1.1 * float(np.log(float_info(case.settled.computed_in).max))", "5.0", ("tests/experiment/test_checks.py", "-k", "largest_logit")),
    Mutant("an entropy of anything", "experiment/metrics/spread.py", "    shares_by_definition = shares", "    return True\n    shares_by_definition = shares", ("tests/experiment/test_measures.py", "-k", "whatever_normalizes")),
    Mutant("shared heads are summed", "problem/problem.py", ".mean(axis=-3)", ".sum(axis=-3)", RUNS),
    Mutant("query heads take turns", "forms/steps.py", "np.repeat(shared, heads // groups, axis=-3)", "np.concatenate([shared] * (heads // groups), axis=-3)", FORMS),
    Mutant("a value of NaN leaks", "forms/steps.py", "if is_finite.all():", "if True:", ("tests/forms/test_properties.py", "-k", "leak and matrix")),
    Mutant("a looped value of NaN leaks", "forms/looped.py", "if weight != 0:", "if True:", ("tests/forms/test_properties.py", "-k", "leak and looped")),
    Mutant("rows without keys are NaN", "rules/normalizers/softmax.py", "np.where(total == 0, total.dtype.type(1), total)", "total", ("tests/forms/test_properties.py", "-k", "zeros")),
    Mutant("the kernel loses its one", "forms/linear.py", "x + x.dtype.type(1)", "x", FORMS),
    Mutant("decoding forgets the new key", "forms/decode.py", "row + offset.max() + 1", "row + offset.max()", FORMS),
    Mutant("past keys move no query", "forms/_operator.py", "if lengths else inputs.past", "if lengths else 0", (*ONNX, "-k", "past_and_present")),
    Mutant("softmax precision ignored", "forms/_operator.py", "None if softmax_precision is None else read_precision(softmax_precision)", "None", (*ONNX, "-k", "softmax_precision_is_used")),
    Mutant("a mask's end is open", "forms/_operator.py", "False if mask.dtype == np.bool_ else -np.inf", "True if mask.dtype == np.bool_ else 0.0", (*ONNX, "-k", "ends_early")),
    Mutant("masks of two blocks mixed up", "forms/_blocks/operands.py", "(start - block.task.rows.start, stop - start, queries)", "(0, stop - start, queries)", ("tests/forms/test_blockwise.py", "-k", "test_masks")),
    Mutant("underflow of few tokens trusted", "forms/_blocks/plain.py", "np.finfo(total.dtype).eps <= least and most", "most", FAST),
    Mutant("a second run forgets the first", "forms/_blocks/block.py", "            total += run_total", "            total = run_total", FAST),
    Mutant("pieces are merged as if they had one anchor", "forms/blockwise.py", "for part in parts]) * factors).sum", "for part in parts])).sum", FEW),
    Mutant("memory is lent twice", "forms/_blocks/operands.py", "idle.pop() if idle", "idle[-1] if idle", ("tests/forms/test_memory.py", "-k", "within_a_call")),
    Mutant("a mask begins one key late", "forms/_blocks/tasks.py", "(max(first, every_stop), last)", "(max(first, every_stop + 1), last)", FAST),
    Mutant("float32 said to be float64", "forms/onnxruntime.py", 'DTYPE = "float32"', 'DTYPE = "float64"', LENT),
    Mutant("a step is measured from the first row", "experiment/ladder.py", "moved = measure_difference(previous, current)\n        differences", "moved = measure_difference(start, current)\n        differences", STEPS),
    Mutant("a range of one order", "experiment/ladder.py", "for count in range(len(other_changes) + 1)", "for count in (0,)", STEPS),
    Mutant("ulp of the wrong type", "experiment/measuring.py", "errors_in_ulp(checked, exact, dtype)", "errors_in_ulp(checked, exact)", LENT),
    Mutant("sign of the scale lost", "forms/onnxruntime.py", "q * np.sign(rules.scale), k, v", "q, k, v", LENT),
    Mutant("an overflow is kept", "forms/_blocks/block.py", "return sums if keeps_precision(sums.total) and all_finite(sums.context) else", "return sums if True else", FAST),
    Mutant("the second of a pair is lost", "problem/generators/torch.py", "self.spare_sine = radius * math.sin(angle)", "self.spare_sine = None", DRAWN),
    Mutant("a tail is not drawn anew", "problem/generators/torch.py", "blocks(self.draw_fractions(BLOCK), mean, spread)", "blocks(fractions[-BLOCK:], mean, spread)", DRAWN),
    Mutant("a fused product is rounded twice", "problem/generators/torch.py", "np.where((error != 0) & even, odd, total)", "product.astype(np.float32) + added", DRAWN),
    Mutant("a logarithm of the wrong branch", "problem/generators/torch.py", "small = half < np.float32(0.707106781186547524)", "small = half < np.float32(0.7)", DRAWN),
    Mutant("one key for every array", "problem/generators/jax.py", "key, draw_key = split(key)", "_, draw_key = split(key)", DRAWN),
    Mutant("the output of MHA drawn last", "problem/projections.py", "    output = draw_linear_weight(stream, size, size)\n", "    output = draw_linear_weight(stream, size, size + 1)[:, 1:]\n", ("tests/problem/test_drawing.py",)),
    Mutant("biases are drawn after all matrices", "problem/projections.py", "default = pairs if", "default = pairs if not", ("tests/problem/test_drawing.py",)),
    Mutant("heads drawn as one", "problem/projections.py", "names = settings.order_per_head * head + settings.order", "names = settings.order_per_head + settings.order", ("tests/problem/test_drawing.py",)),
    Mutant("causal bent", "rules/masks/causal.py", "grid.key <= grid.query", "grid.key >= grid.query", EXAMPLES),
    Mutant("window bent", "rules/masks/window.py", "distance <= self.right", "distance < self.right", EXAMPLES),
    Mutant("document bent", "rules/masks/document.py", "== ids[grid.key]", "!= ids[grid.key]", EXAMPLES),
    Mutant("padding bent", "rules/masks/padding.py", "grid.key < lengths", "grid.key >= lengths", EXAMPLES),
    Mutant("prefix bent", "rules/masks/prefix.py", "grid.key < self.length", "grid.key <= self.length", EXAMPLES),
    Mutant("array bent", "rules/masks/array.py", "return take_values(self.values, grid)", "return ~take_values(self.values, grid)", EXAMPLES),
    Mutant("added bent", "rules/scores/added.py", "return take_values(self.values, grid)", "return -take_values(self.values, grid)", EXAMPLES),
    Mutant("additive bent", "rules/scores/additive.py", "q[..., :, None, feature] + k[..., None, :, feature]", "q[..., :, None, feature] - k[..., None, :, feature]", EXAMPLES),
    Mutant("additive's twin bent", "rules/scores/additive.py", "math.tanh(q + k)", "math.tanh(q - k)", EXAMPLES),
    Mutant("scores are always products", "forms/steps.py", "if setup.rules.pairing is not None:", "if False:", FORMS),
    Mutant("alibi bent", "rules/scores/alibi.py", "-8 * (index + 1) / count", "-8 * index / count", EXAMPLES),
    Mutant("sink bent", "rules/scores/sink.py", "np.asarray(head) % len(logits)", "0 * np.asarray(head)", EXAMPLES),
    Mutant("softcap bent", "rules/scores/softcap.py", "np.tanh(logits / scalar_type(self.cap))", "np.tanh(logits)", EXAMPLES),
    Mutant("t5 bent", "rules/scores/t5.py", "np.asarray(grid.key - grid.query)", "np.asarray(grid.query - grid.key)", EXAMPLES),
    Mutant("rope bent", "rules/positions/rope.py", "self.base ** (np.arange(0, size, 2) / size)", "self.base ** (np.arange(0, size, 2) / (size + 2))", EXAMPLES),
    Mutant("rope's twin bent", "rules/positions/rope.py", "complex(math.cos(angle), math.sin(angle))", "complex(math.cos(angle), -math.sin(angle))", EXAMPLES),
    Mutant("rope_llama3 bent", "rules/positions/rope_llama3.py", "self.context * speeds / (2 * np.pi)", "self.context * speeds", EXAMPLES),
    Mutant("rope_llama3's twin bent", "rules/positions/rope_llama3.py", "self.context / self.low, self.context / self.high", "self.context / self.high, self.context / self.low", EXAMPLES),
    Mutant("an epsilon beside the root", "problem/models/_parts.py", "1 / np.sqrt(variance + x.dtype.type(epsilon))", "1 / (np.sqrt(variance) + x.dtype.type(epsilon))", FAMILIES),
    Mutant("GPT-2 counts layers from 0", "problem/models/gpt2.py", "/ (number + 1))", "/ max(number, 1))", FAMILIES),
    Mutant("windows of Mistral one token wider", "problem/models/llama.py", '{"left": size - 1, "right": 0}', '{"left": size, "right": 0}', FAMILIES),
    Mutant("windows of Qwen2 a layer later", "problem/models/llama.py", 'number >= config["max_window_layers"]', 'number > config["max_window_layers"]', FAMILIES),
    Mutant("windows of Qwen2 from layer 29 on", "problem/models/llama.py", '"max_window_layers": Field(28, COUNT)', '"max_window_layers": Field(29, COUNT)', FAMILIES),
    Mutant("RoBERTa counts places from its filler", "problem/models/bert.py", "np.cumsum(is_token) * is_token + padding_id", "np.cumsum(is_token) * is_token + padding_id - 1", FAMILIES),
    Mutant("a decoder sees all tokens", "problem/models/bert.py", 'if config["is_decoder"] and', 'if False and', FAMILIES),
    Mutant("unknown fields pass", "problem/models/model.py", "elif name not in harmless and config[name] is not None:", "elif False:", FAMILIES),
    Mutant("sinusoidal bent", "rules/positions/sinusoidal.py", "np.cos(angles), np.sin(angles)", "np.sin(angles), np.cos(angles)", EXAMPLES),
    Mutant("sinusoidal's twin bent", "rules/positions/sinusoidal.py", "(column - column % 2)", "column", EXAMPLES),
    Mutant("softmax bent", "rules/normalizers/softmax.py", "np.exp(masked - anchor)", "np.exp2(masked - anchor)", EXAMPLES),
    Mutant("softmax's twin bent", "rules/normalizers/softmax.py", "math.exp(logit - largest) for", "math.exp2(logit - largest) for", EXAMPLES),
    Mutant("sigmoid bent", "rules/normalizers/sigmoid.py", "np.exp(-np.abs(masked))", "np.exp2(-np.abs(masked))", EXAMPLES),
    Mutant("sigmoid's twin bent", "rules/normalizers/sigmoid.py", "math.tanh(logit / 2)", "math.tanh(logit)", EXAMPLES),
    Mutant("sum bent", "rules/normalizers/sum.py", "np.isneginf(masked), masked.dtype.type(0), masked)", "np.isneginf(masked), masked.dtype.type(0), abs(masked))", EXAMPLES),
    Mutant("sum's twin bent", "rules/normalizers/sum.py", "0.0 if logit == -math.inf else logit", "0.0 if logit == -math.inf else abs(logit)", EXAMPLES),
    Mutant("sparsemax bent", "rules/normalizers/sparsemax.py", "1 + count * descending > sums", "2 + count * descending > sums", EXAMPLES),
    Mutant("sparsemax's twin bent", "rules/normalizers/sparsemax.py", "(math.fsum(support) - 1)", "math.fsum(support)", EXAMPLES),
    Mutant("kl with its arguments exchanged", "experiment/metrics/errors.py", "divergence(baseline, actual)", "divergence(actual, baseline)", MEASURES),
    Mutant("a stable rank unsquared", "experiment/metrics/spread.py", "(values**2).sum(axis=-1) / np.where(largest == 0, 1, largest**2)", "values.sum(axis=-1) / np.where(largest == 0, 1, largest)", MEASURES),
    Mutant("induction counts a repeat's own place", "experiment/metrics/targets.py", "is_target = np.tril(is_target, -1)", "is_target = np.tril(is_target)", MEASURES),
    Mutant("bfloat16 is cut", "experiment/executing.py", "else array.astype(dtype)", "else (array.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(dtype) if np.dtype(dtype).name == 'bfloat16' else array.astype(dtype)", MEASURES),
    Mutant("an axis more passes", "diagnosis/judging/judge_answers.py", 'next((answer.axes for _, answer in answers if answer.axes), "")', '""', ("tests/diagnosis/test_answers.py", "-k", "another_axis")),
    Mutant("an error of ours blames the function", "processes.py", "            is_theirs = not isinstance", "            is_theirs = True or not isinstance", ("tests/test_processes.py", "-k", "error_of_ours")),
    Mutant("a write leaves what a kill left", "machine.py", "    remove_drafts(path.parent)\n", "", ("tests/test_machine.py",)),
]  # fmt: skip


def caught(mutant: Mutant) -> bool | None:
    """Say whether the tests fail on the mutant; None if its text is not in the file exactly once."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("attn_exp", "conf", "tests", "tools"):
            shutil.copytree(ROOT / part, Path(folder, part))  # also what is compiled: it is as old as its source
        shutil.copy(ROOT / "pyproject.toml", folder)
        target = Path(folder, "attn_exp", mutant.file)
        text = target.read_text(encoding="utf-8")
        if text.count(mutant.right) != 1:
            return None
        target.write_text(text.replace(mutant.right, mutant.wrong), encoding="utf-8")
        for compiled in target.parent.glob(f"__pycache__/{target.stem}.*"):
            compiled.unlink()  # of the same second and length, it would be taken for the mutant's
        os.chdir(folder)
        sys.path.insert(0, folder)
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        of_the_rule = ("-k", target.stem) if mutant.tests == EXAMPLES else ()
        found = pytest.main([*OPTIONS, *mutant.tests, *of_the_rule])
        os.chdir(ROOT)
        return found == pytest.ExitCode.TESTS_FAILED


def find_changed_rooms() -> set[str]:
    """Return the rooms whose code changed in the last day of commits; every room if git cannot tell."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    a_day_before = int(git("log", "-1", "--format=%ct")) - 24 * 60 * 60
    base = git("rev-list", "-1", f"--before={a_day_before}", "HEAD")
    changed = git("diff", "--name-only", base, "HEAD").splitlines() if base else []
    parts = [Path(path).parts for path in changed]
    rooms = {of[1] for of in parts if of[0] == "attn_exp"}
    return rooms if base else {Path(mutant.file).parts[0] for mutant in MUTANTS}


def main() -> None:
    """Try the mutants, two at a time, and exit with 1 if one survives."""
    parser = argparse.ArgumentParser(description="Break the code on purpose and see the tests notice.")
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--changed", action="store_true", help="mutants of the rooms that changed in the last day")
    given = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if given.only in mutant.name]
    if given.changed:
        rooms = find_changed_rooms()
        chosen = [mutant for mutant in chosen if Path(mutant.file).parts[0] in rooms]
    for library in LIBRARIES:
        importlib.import_module(library)
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        verdicts = dict(zip(chosen, pool.map(caught, chosen, chunksize=1), strict=True))
    for mutant, verdict in verdicts.items():
        print(f"{mutant.name:32} {'does not apply' if verdict is None else 'caught' if verdict else 'SURVIVED'}")
    found = sum(verdict is True for verdict in verdicts.values())
    print(f"{found} of {len(chosen)} mutants caught")
    sys.exit(found != len(chosen))


if __name__ == "__main__":
    main()
