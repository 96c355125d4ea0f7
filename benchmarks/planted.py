"""Known mistakes, planted by rule into right implementations of others: python benchmarks/planted.py FOLDER OUT

FOLDER is one that `benchmarks/check.py --world` takes. OUT becomes another: each right file of FOLDER in which a rule
finds its place, with the mistake in it, and a `truth.csv` that says which. What others wrote keeps its structure, so
this asks whether a mistake is named however the rest is written:

    python benchmarks/planted.py FOLDER OUT --each 14
    python benchmarks/check.py --world OUT

Some files stay right, where the code that was changed never runs or two ways are the same: read what is `not seen`.
"""

from __future__ import annotations

import argparse
import ast
import csv
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

MOST = 12_000
"""Bytes of a file in which something is planted: in longer ones, most of the code is not attention."""
FUSED = re.compile(r"scaled_dot_product_attention|dot_product_attention|MultiheadAttention\(")
"""What does the whole by itself, so that nothing can be planted in it."""
MASK = re.compile(r"mask|tril|triu|causal", re.IGNORECASE)
WEIGHTS = re.compile(r"attn|attention|weight|prob|score|alpha|^[awAp]$|^att$", re.IGNORECASE)
VALUES = re.compile(r"^v|val", re.IGNORECASE)
SIDES = {"q": re.compile(r"^(x?q|query|queries|qs|q_)$"), "k": re.compile(r"^(x?k|key|keys|ks|k_)$"),
         "v": re.compile(r"^(x?v|value|values|vs|v_)$")}  # fmt: skip
LIBRARIES = ("F", "torch", "nn.functional", "torch.nn.functional", "jax.nn", "nn", "ops", "keras.ops", "np", "jnp")
Rule = Callable[[Any], Any]
"""Takes a node of a file, and returns another one in its place, or None where it is not what the rule is about."""


def text(node: ast.AST) -> str:
    """Return a node as code."""
    return ast.unparse(node)


def name_of(node: ast.expr) -> str:
    """Return the last name of what is called."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def calls(node: Any, *names: str) -> bool:
    """Say whether a node is a call of something with one of these names."""
    return isinstance(node, ast.Call) and name_of(node.func) in names


def is_method(node: ast.Call) -> bool:
    """Say whether it is a method of an array, and no function of a library."""
    return isinstance(node.func, ast.Attribute) and text(node.func.value) not in (*LIBRARIES, "self")


def expression(code: str) -> ast.expr:
    """Return code as a node."""
    return ast.parse(code, mode="eval").body


def is_scale(node: ast.expr) -> bool:
    """Say whether a number is one that scores are multiplied or divided by, by how it is written."""
    said = text(node)
    return len(said) < 60 and "0.25" not in said and not re.search("softmax|matmul|@", said) and bool(
        re.search(r"\*\* ?\(?-? ?(0\.5|\(1 / 2\))|sqrt\(|scal(e|ing)|temper|norm_fact", said)
    )  # fmt: skip


# The softmax


def over(axis: int) -> Rule:
    """Return the rule that lets a softmax run along another axis than the last."""

    def planted(node: Any) -> Any:
        if not calls(node, "softmax", "Softmax"):
            return None
        for keyword in node.keywords:
            if keyword.arg in ("dim", "axis") and text(keyword.value) == "-1":
                keyword.value = expression(str(axis))
                return node
        place = 0 if name_of(node.func) == "Softmax" or is_method(node) else 1
        if len(node.args) > place and text(node.args[place]) == "-1":
            node.args[place] = expression(str(axis))
            return node
        return None

    return planted


def without_softmax(node: Any) -> Any:
    """Take the softmax away."""
    if calls(node, "softmax"):
        return node.func.value if is_method(node) else next(iter(node.args), None)
    return None


def softmax_twice(node: Any) -> Any:
    """Take the softmax of a softmax."""
    if calls(node, "softmax") and not is_method(node) and node.args:
        node.args[0] = deepcopy(node)
        return node
    return None


# The scale


def without_scale(node: Any) -> Any:
    """Take the scale away."""
    is_scaled = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult)
    return node.left if is_scaled and is_scale(node.right) and not is_scale(node.left) else None


def multiplied(node: Any) -> Any:
    """Multiply by the root instead of dividing by it."""
    divides = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
    if divides and "sqrt" in text(node.right) and is_scale(node.right) and not isinstance(node.left, ast.Constant):
        node.op = ast.Mult()
        return node
    return None


def by_d(node: Any) -> Any:
    """Divide by the number itself instead of its root."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and text(node.right) in ("-0.5", "0.5"):
        node.right = expression(str(2 * float(text(node.right))))
        return node
    is_root = calls(node, "sqrt") and text(node.func).split(".")[0] in ("math", "np", "numpy", "jnp", "sqrt")
    return node.args[0] if is_root and len(node.args) == 1 else None


# Masks


def filled_with(number: float) -> Rule:
    """Return the rule that fills another number in where a mask hides."""

    def planted(node: Any) -> Any:
        if calls(node, "masked_fill", "masked_fill_") and len(node.args) == len(("mask", "number")):
            node.args[1] = ast.Constant(number)
            return node
        return None

    return planted


def without_mask(node: Any) -> Any:
    """Leave out what a mask fills in."""
    is_filled = calls(node, "masked_fill") and is_method(node) and node.args and MASK.search(text(node.args[0]))
    return node.func.value if is_filled else None


def subtracted(node: Any) -> Any:
    """Subtract a mask that should be added."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and re.fullmatch(r"\w*mask\w*", text(node.right)):
        node.op = ast.Sub()
        return node
    return None


def after_softmax(node: Any) -> Any:
    """Exchange a mask that is filled in and the softmax behind it, where they stand one after the other."""
    if not isinstance(node, ast.FunctionDef):
        return None
    for place, (one, other) in enumerate(zip(node.body, node.body[1:], strict=False)):
        inner = one.body[0] if isinstance(one, ast.If) and len(one.body) == 1 and not one.orelse else one
        if not (isinstance(inner, ast.Assign) and isinstance(other, ast.Assign) and "softmax" in text(other.value)):
            continue
        scores, weights = text(inner.targets[0]), text(other.targets[0])
        if calls(inner.value, "masked_fill") and text(inner.value.func.value) == scores in text(other.value):
            inner.targets[0], inner.value.func.value = other.targets[0], expression(weights)
            inner.value.args[1] = ast.Constant(0.0)
            node.body[place : place + 2] = [other, one]
            return node
    return None


def diagonal(step: int, *, flipped: bool = False) -> Rule:
    """Return the rule that moves the edge of a causal mask, or turns it to the other side."""

    def planted(node: Any) -> Any:
        if not calls(node, "tril", "triu") or len(node.args) > 1 + (not is_method(node)):
            return None
        words, kind = [one for one in node.keywords if one.arg in ("diagonal", "k")], name_of(node.func)
        given = words[0].value if words else node.args[-1] if len(node.args) > (not is_method(node)) else None
        at = 0 if given is None else int(text(given)) if re.fullmatch(r"-?\d+", text(given)) else None
        if at != (0 if kind == "tril" else 1):
            return None
        whole = text(node.args[0] if not is_method(node) else node.func.value)
        home = text(node.func).rpartition(".")[0] if not is_method(node) else "torch"
        other = {"tril": "triu", "triu": "tril"}[kind] if flipped else kind
        return expression(f"{home}.{other}({whole}, {-at if flipped else at + step})")

    return planted


# Heads, sides and the output


def merged(node: Any) -> Any:
    """Put heads together by a view alone."""
    if not (calls(node, "view", "reshape") and isinstance(node.func, ast.Attribute) and len(node.args) <= len("btm")):
        return None
    inner = node.func.value
    inner = inner.func.value if calls(inner, "contiguous") else inner
    if calls(inner, "transpose", "permute") and text(inner).endswith(("(1, 2)", "(0, 2, 1, 3)")):
        node.func.value, node.func.attr = inner.func.value, "reshape"
        return node
    return None


def split(node: Any) -> Any:
    """Cut into heads by a view alone."""
    if calls(node, "transpose", "permute") and text(node).endswith((".transpose(1, 2)", ".permute(0, 2, 1, 3)")):
        inner = node.func.value
        if calls(inner, "view", "reshape") and len(inner.args) == len("bthd"):
            inner.args[1], inner.args[2], inner.func.attr = inner.args[2], inner.args[1], "reshape"
            return inner
    return None


def turned(node: Any) -> Any:
    """Turn the weights before they meet the values."""
    if calls(node, "matmul", "bmm") and len(node.args) == len("av"):
        one, other = node.args
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        one, other = node.left, node.right
    else:
        return None
    if isinstance(one, ast.Name) and WEIGHTS.search(one.id) and VALUES.search(text(other)):
        return expression(f"{text(one)}.swapaxes(-1, -2) @ {text(other)}")
    return None


def made_of(side: str, instead: str) -> Rule:
    """Return the rule that makes a side with the projection of another."""

    def planted(node: Any) -> Any:
        found = dict[str, ast.Call]()
        for step in node.body if isinstance(node, ast.FunctionDef) else ():
            target = text(step.targets[0]).lower() if isinstance(step, ast.Assign) else ""
            own = [one for one in ast.walk(step) if isinstance(one, ast.Call) and text(one.func).startswith("self.")]
            found |= {name: one for name, words in SIDES.items() for one in own if words.match(target) and one.args}
        if len({text(one.func) for one in found.values()}) < len(SIDES):
            return None
        found[side].func = deepcopy(found[instead].func)
        return node

    return planted


def without_output(node: Any) -> Any:
    """Leave out the output projection."""
    is_output = isinstance(node, ast.Call) and re.fullmatch(r"self\.\w*(out|proj|wo|w_o|fc|unify|combine)\w*",
                                                             text(node.func), re.IGNORECASE)  # fmt: skip
    if is_output and len(node.args) == 1 and re.fullmatch(r"\w*(out|attn|context|ctx|^y|^z)\w*", text(node.args[0])):
        return node.args[0]
    return None


def tiled(node: Any) -> Any:
    """Repeat shared heads in turns instead of each in a row."""
    if calls(node, "repeat_interleave") and is_method(node):
        dims = [text(one.value) for one in node.keywords if one.arg == "dim"] + [text(one) for one in node.args[1:]]
        places = {"1": "1, {}, 1, 1", "-3": "1, {}, 1, 1", "2": "1, 1, {}, 1", "-2": "1, 1, {}, 1"}
        if dims and dims[0] in places:
            return expression(f"{text(node.func.value)}.repeat({places[dims[0]].format(text(node.args[0]))})")
    return None


def dropout_on(node: Any) -> Any:
    """Leave dropout on in evaluation."""
    if calls(node, "dropout") and any(one.arg == "training" for one in node.keywords):
        return expression(f"{text(node.func)}({text(node.args[0])}, p=0.3)")
    return None


RULES: dict[str, tuple[str, Rule]] = {
    "over_queries": ("softmax_over_queries", over(-2)),
    "over_heads": ("softmax_over_heads|softmax_over_queries", over(1)),
    "without_softmax": ("no_softmax", without_softmax),
    "softmax_twice": ("softmax_twice", softmax_twice),
    "without_scale": ("no_scale", without_scale),
    "multiplied": ("scale_multiplied", multiplied),
    "by_d": ("scale_by_d", by_d),
    "filled_with_0": ("mask_small_fill|mask_multiplied", filled_with(0.0)),
    "filled_with_1e-9": ("mask_small_fill", filled_with(1e-9)),
    "without_mask": ("mask_ignored|causal_ignored", without_mask),
    "subtracted": ("mask_sign", subtracted),
    "after_softmax": ("mask_after_softmax", after_softmax),
    "strict": ("causal_strict", diagonal(-1)),
    "next": ("causal_next", diagonal(1)),
    "flipped": ("causal_flipped", diagonal(0, flipped=True)),
    "merged": ("heads_merged_wrong", merged),
    "split": ("heads_not_transposed", split),
    "turned": ("weights_transposed", turned),
    "keys_of_queries": ("keys_from_queries", made_of("k", "q")),
    "values_of_keys": ("values_from_keys", made_of("v", "k")),
    "values_of_queries": ("values_from_queries", made_of("v", "q")),
    "without_output": ("no_output_projection|projections_unused", without_output),
    "tiled": ("kv_heads_tiled", tiled),
    "dropout_on": ("dropout_on", dropout_on),
}
"""What is planted: the names of the catalogue that say it, and the rule."""
EVERYWHERE = (split,)
"""Rules that are followed wherever they find their place, as all three sides are cut the same way."""


class Planter(ast.NodeTransformer):
    """Follows a rule in the first place where it holds; of how a class is made, nothing but its scale is touched."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.done = rule, 0

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, ast.FunctionDef) or node.name not in ("__init__", "build") or self.rule is by_d:
            node = self.generic_visit(node)
        if self.done and self.rule not in EVERYWHERE:
            return node
        other = self.rule(node)
        self.done += other is not None
        return node if other is None else other


def planted(code: str, rule: Rule) -> str | None:
    """Return code with a mistake in it, or None where the rule finds no place for it."""
    planter = Planter(rule)
    tree = ast.fix_missing_locations(planter.visit(ast.parse(code)))
    return ast.unparse(tree) if planter.done else None


def right_ones(folder: Path) -> Iterator[tuple[dict[str, str], str]]:
    """Yield the rows of right files, in a mixed order that is always the same, and their code."""
    with (folder / "truth.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["right_or_wrong"] == "right"]
    random.Random(7).shuffle(rows)
    for row in rows:
        code = (folder / row["file"]).read_text(encoding="utf-8")
        if len(code) <= MOST and not FUSED.search(code):
            yield row, code


def main() -> None:
    """Write the folder of planted files, and say how often each rule found its place."""
    parser = argparse.ArgumentParser(description="Plants known mistakes in right implementations of others.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--each", type=int, default=14, help="files for each rule")
    arguments = parser.parse_args()
    if not (arguments.folder / "truth.csv").is_file():
        parser.error(f"{arguments.folder} holds no truth.csv, which says what is right in it")
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows, counts = list[dict[str, str]](), Counter[str]()
    for row, code in right_ones(arguments.folder):
        for name, (expected, rule) in RULES.items():
            if counts[name] < arguments.each and (wrong := planted(code, rule)) is not None:
                counts[name] += 1
                file = f"{len(rows) + 1:04d}_{name}__{re.sub(r'[^0-9a-zA-Z]', '_', Path(row['file']).stem)}.py"
                (arguments.out / file).write_text(wrong, encoding="utf-8")
                rows.append({"file": file, "name": row["name"], "right_or_wrong": "bug", "expected": expected,
                             "words": row.get("words", ""), "framework": row.get("framework", "")})  # fmt: skip
    with (arguments.out / "truth.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["file", "name", "right_or_wrong", "expected", "words", "framework"])
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} files: {', '.join(f'{name} {count}' for name, count in counts.items())}")


if __name__ == "__main__":
    main()
