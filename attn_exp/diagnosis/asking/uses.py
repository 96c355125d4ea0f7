"""What a class does with what it is made of, read from its code: calls it, reads its fields, compares it with texts.

Code is a hint as a name is one: it orders what is tried.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from attn_exp.diagnosis.asking.offer import plain
from attn_exp.diagnosis.code.source import tree_of

NO_FIELDS = {
    *dir(""), *dir(1.0), *dir([]), "shape", "ndim", "dtype", "device", "weight", "bias", "data", "size", "view", "T",
    "mT", "to", "at", "out_features", "in_features", "__class__", "__name__", "name", "apply", "forward", "children",
    "parameters", "modules", "transpose", "reshape", "permute", "float", "numel", "dim", "type", "unsqueeze", "detach",
    "clone", "new_zeros", "repeat", "expand", "requires_grad",
} - {"__getitem__"}  # fmt: skip
"""What is read of arrays, texts, lists and layers too, so that it does not say that there are fields."""
OF_ARRAYS = ("ones", "zeros", "full", "empty")
OF_MAPPINGS = ("get", "pop", "setdefault")


@dataclass
class Use:
    """What is done with one thing: its fields and keys that are read, how it is called, and what it is compared with.

    `made_from`: it is called where the class is made, as a class of layers is; `called`: where the class is called.
    `places`: how many numbers it has at least, where it is a list. `taken`: arguments of its calls.
    """

    fields: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    made_from: bool = False
    called: bool = False
    places: int = 0
    taken: int = 0
    optional: bool = False
    """Whether it is a field or a key that the code can do without."""
    homes: list[str] = field(default_factory=list)
    """Names of which it is compared with a member, as of `Kind.MASKED`."""
    asserted: bool = False
    """Whether the class refuses some values of it."""
    instead: Any = None
    """What the code takes where it is not given, as in `options.get("heads", 8)`."""
    is_square: bool = False
    """Whether it is the length and the width of an array, as that of a mask beforehand is."""
    is_squared: bool = False
    """Whether it is multiplied by itself, or paired with itself, as the side of a window is."""
    is_length: bool = False
    """Whether it stands in a list that a call is given, as the lengths of an array do."""
    divides: bool = False
    """Whether something is divided by it without rest, as a width is by a number of heads."""
    multiple_of: int = 1
    """What it is divided by without rest, where the code says that in numbers."""
    read: int = 0
    tested: int = 0
    """How often it is read, but to be kept, and how often of these only to see whether it is true."""

    @property
    def is_switch(self) -> bool:
        """Whether it is True or False: the code never asks for more."""
        return 0 < self.tested == self.read


MANY = 6
"""Numbers of a list of which the code does not say how many it has."""


def uses_of(kind: Any) -> dict[str, Use]:
    """Return what a class does with each of its parameters and with their fields, by their last name."""
    found: dict[str, Use] = {}
    for home in inspect.getmro(owner_of(kind)) if inspect.isclass(owner_of(kind)) else (owner_of(kind),):
        if is_of_a_library(home):
            continue
        try:
            tree = tree_of(home)
        except (OSError, TypeError, SyntaxError, IndentationError):
            continue
        Reader(found, own_names(tree), helpers_of(home), own_numbers(tree)).visit(tree)
        hidden = [name for name in found if name.startswith("__") and not name.endswith("__")]
        found |= {f"_{home.__name__.lstrip('_')}{name}": found[name] for name in hidden}  # as Python writes it
    return found


def helpers_of(function: Any) -> dict[str, Any]:
    """Return the functions of its own file, and of others that are no library, that a function may call."""
    known = getattr(inspect.unwrap(function), "__globals__", {})
    return {
        name: one for name, one in known.items() if inspect.isfunction(inspect.unwrap(one)) and not is_of_a_library(one)
    }


def owner_of(kind: Any) -> Any:
    """Return the class that a maker of objects stands for."""
    return getattr(kind, "owner", kind)


LIBRARIES = ("builtins", "torch", "flax", "haiku", "equinox", "keras", "jax", "jaxlib", "jaxtyping", "abc", "typing",
             "numpy")  # fmt: skip


def is_of_a_library(kind: Any) -> bool:
    """Say whether a class is one of Python or of a library of layers, whose code says nothing of somebody's."""
    home = str(getattr(kind, "__module__", "")).partition(".")[0]
    return home in LIBRARIES


def own_names(tree: ast.AST) -> dict[str, str]:
    """Return what a class keeps as it was given, and what that is called: `self.x = x`, `self.x = config.x`, fields."""
    kept, taken = dict[str, str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            taken = {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kept[node.target.id] = node.target.id
        for target, value in pairs_of(node) if isinstance(node, ast.Assign) else ():
            if not isinstance(target, ast.Attribute):
                continue
            said = getattr(value, "id", getattr(value, "attr", ""))
            if isinstance(value, ast.Name) and said in taken:
                kept[target.attr] = said
            elif target.attr == said or (isinstance(value, ast.Name) and plain(target.attr) == plain(said)):
                kept[target.attr] = target.attr
    return kept


def own_numbers(tree: ast.AST) -> dict[str, int]:
    """Return the whole numbers that the code of a class gives to names and to its own attributes, one to each."""
    found = dict[str, set[Any]]()
    for node in ast.walk(tree):
        pairs = pairs_of(node) if isinstance(node, ast.Assign) else ()
        pairs = [(node.target, node.value)] if isinstance(node, ast.AnnAssign) and node.value else pairs
        for target, value in pairs:
            name = getattr(target, "id", getattr(target, "attr", ""))
            found.setdefault(name, set()).add(getattr(value, "value", None))
    found.pop("", None)
    return {name: one for name, values in found.items() for one in values if len(values) == 1 and type(one) is int}


def pairs_of(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """Return what is assigned to what: `a, b = c, d` are two."""
    found = [(target, node.value) for target in node.targets]
    for target, value in list(found):
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            found += zip(target.elts, value.elts, strict=True)
    return found


class Reader(ast.NodeVisitor):
    """Reads the code of one class; `kept` are its attributes that are parameters, and what these are called.

    `helpers` are functions that it calls, and `numbers` those that it gives to names.
    """

    def __init__(
        self, found: dict[str, Use], kept: Mapping[str, str], helpers: Mapping[str, Any] | None = None,
        numbers: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.numbers = numbers or {}
        self.found, self.kept, self.making, self.helpers = found, kept, False, helpers or {}

    def of(self, node: ast.AST) -> Use | None:
        """Return what is known of the thing that an expression names: a parameter, or a field of one."""
        name = self.name_of(node)
        return self.found.setdefault(name, Use()) if name else None

    def name_of(self, node: ast.AST) -> str:
        """Return the last name of `config`, `self.config`, `config.model` or `config["model"]`."""
        if isinstance(node, ast.Name):
            return "" if node.id in ("self", "nn", "torch", "F", "math", "np", "jnp", "jax") else node.id
        if isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            return self.kept.get(node.attr, "") if is_own else node.attr if self.name_of(node.value) else ""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and self.name_of(node.value):
            return node.slice.value if isinstance(node.slice.value, str) else ""
        return ""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Note whether it makes the object, which layers of flax do in `setup`."""
        before, self.making = self.making, node.name in ("__init__", "setup", "build", "__post_init__")
        self.generic_visit(node)
        self.making = before

    def visit_Call(self, node: ast.Call) -> None:
        """Note what is called, what is read of a mapping, and what is asked for by `getattr`."""
        names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if isinstance(node.func, ast.Attribute) and node.func.attr in OF_MAPPINGS and names:
            self.note(node.func.value, "keys", names[0])
            read = self.found.setdefault(names[0], Use())
            read.optional |= node.func.attr != "pop" or len(node.args) > 1
            read.instead = next((one.value for one in node.args[1:2] if isinstance(one, ast.Constant)), None)
        elif isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") and names:
            self.note(node.args[0], "fields", names[0])
            self.found.setdefault(names[0], Use()).optional |= node.func.id == "hasattr" or len(node.args) > len("xy")
        elif isinstance(node.func, ast.Name | ast.Attribute) and (use := self.of(node.func)) is not None:
            use.made_from |= self.making
            use.called |= not self.making
            use.taken = max(use.taken, len(node.args) + len(node.keywords))
        if isinstance(node.func, ast.Name) and node.func.id in self.helpers:
            self.note_read_by(node.func.id, node)
        if getattr(node.func, "attr", getattr(node.func, "id", "")) in OF_ARRAYS:
            shape = node.args[0].elts if node.args and isinstance(node.args[0], ast.Tuple | ast.List) else node.args
            lengths = [one for one in shape if not isinstance(one, ast.Constant)]
            names = [self.name_of(one) for one in lengths]
            if len(names) == len("ts") and names[0] == names[1] and (use := self.of(lengths[0])) is not None:
                use.is_square = True
        self.note_lengths(node)
        if getattr(node.func, "id", "") in ("int", "bool") and node.args and (use := self.of(node.args[0])) is not None:
            use.read -= 1  # a switch is counted with like that, and a number is read elsewhere too
        for one in ast.iter_child_nodes(node):
            if one is node.func and isinstance(one, ast.Attribute):
                self.visit(one.value)  # a method that is called is no field
            else:
                self.visit(one)

    def note_lengths(self, node: ast.Call) -> None:
        """Note what stands in a list that a call is given."""
        lists = [one for one in (*node.args, *(one.value for one in node.keywords))
                 if isinstance(one, ast.Tuple | ast.List)]  # fmt: skip
        for length in (length for one in lists for length in one.elts):
            if isinstance(length, ast.Name | ast.Attribute) and (use := self.of(length)) is not None:
                use.is_length = True

    def note_read_by(self, name: str, call: ast.Call) -> None:
        """Note the keys and fields that a helper reads of what it is given; one that calls itself is read once."""
        try:
            tree = tree_of(self.helpers[name])
            taken = list(inspect.signature(self.helpers[name]).parameters)
        except (OSError, TypeError, ValueError, SyntaxError):
            return
        inner: dict[str, Use] = {}
        Reader(inner, {}, {other: one for other, one in self.helpers.items() if other != name}).visit(tree)
        given = [*zip(call.args, taken, strict=False), *((one.value, one.arg) for one in call.keywords)]
        for node, word in given:
            read = inner.get(word or "", Use())
            for key in (*read.keys, *read.fields):
                self.note(node, "keys" if key in read.keys else "fields", key)
                self.found.setdefault(key, inner.get(key, Use()))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Note what is multiplied by itself, and by what something is divided without rest."""
        if isinstance(node.op, ast.FloorDiv | ast.Mod | ast.Div):
            self.note_divided(node)
        is_power = (
            isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant) and node.right.value == len("xx")
        )
        if is_power or (isinstance(node.op, ast.Mult) and ast.dump(node.left) == ast.dump(node.right)):
            self.note_squared(node.left)
        self.generic_visit(node)

    def note_divided(self, node: ast.BinOp) -> None:
        """Note what divides something without rest, and what is divided by a number where the class is made."""
        if not isinstance(node.op, ast.Div) and (use := self.of(node.right)) is not None:
            use.divides = True
        named = self.numbers.get(getattr(node.right, "id", getattr(node.right, "attr", "")), 1)
        number = getattr(node.right, "value", 1) if isinstance(node.right, ast.Constant) else named
        if self.making and type(number) is int and number > 1 and (use := self.of(node.left)) is not None:
            use.multiple_of = math.lcm(use.multiple_of, number)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        """Note what stands twice in a pair."""
        if len(node.elts) == len("xx") and ast.dump(node.elts[0]) == ast.dump(node.elts[1]):
            self.note_squared(node.elts[0])
        self.generic_visit(node)

    def note_squared(self, node: ast.AST) -> None:
        """Note that something is one side of a square."""
        if self.making and isinstance(node, ast.Name | ast.Attribute) and (use := self.of(node)) is not None:
            use.is_squared = True

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Note a field that is read."""
        if isinstance(node.ctx, ast.Load) and node.attr not in NO_FIELDS:
            self.note(node.value, "fields", node.attr)
        if isinstance(node.ctx, ast.Load) and (use := self.of(node)) is not None:
            use.read += 1
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Note that something is read."""
        if isinstance(node.ctx, ast.Load) and (use := self.of(node)) is not None:
            use.read += 1

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        """Note what is asked whether it is true, and what is refused then."""
        self.note_test(node.test)
        if any(isinstance(one, ast.Raise) for one in (node.body if isinstance(node, ast.If) else ())):
            self.note_refused(node.test)
        self.generic_visit(node)

    visit_IfExp = visit_If  # noqa: N815 - ast calls it so

    def note_test(self, node: ast.AST) -> None:
        """Note what a test asks whether it is true, alone or beside others."""
        if isinstance(node, ast.BoolOp):
            for one in node.values:
                self.note_test(one)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.note_test(node.operand)
        elif isinstance(node, ast.Compare) and isinstance(getattr(node.comparators[0], "value", None), bool):
            self.note_test(node.left)
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and (use := self.of(node)) is not None:
            use.tested += 1

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Note a key or a place that is read, and the texts that one thing is the key of."""
        key, use = node.slice, self.of(node.value)
        if isinstance(node.value, ast.Dict):
            for one in node.value.keys:
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    self.note(key, "texts", one.value)
        elif use is not None and isinstance(key, ast.Constant) and isinstance(key.value, str):
            self.note(node.value, "keys", key.value)
        elif use is not None and isinstance(key, ast.Constant) and isinstance(key.value, int):
            use.places = max(use.places, key.value + 1)
        elif use is not None and isinstance(key, ast.Name):
            use.places = max(use.places, MANY)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note into how many parts something falls."""
        for target, value in pairs_of(node):
            if (
                isinstance(target, ast.Name)
                and isinstance(value, ast.Subscript)
                and (use := self.of(value)) is not None
            ):
                self.found[target.id] = use  # what is taken out of a mapping has a name of its own
            is_own = isinstance(target, ast.Attribute) and self.name_of(target) == self.name_of(value)
            if is_own and (kept := self.of(value)) is not None:
                kept.read -= 1
        parts = next((one.elts for one in node.targets if isinstance(one, ast.Tuple)), [])
        if parts and isinstance(node.value, ast.Name | ast.Attribute) and (use := self.of(node.value)) is not None:
            use.places = max(use.places, len(parts))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Note the texts with which something is compared, also in a list of them, and the keys that it may have."""
        sides = [node.left, *node.comparators]
        for side in sides:
            others = (part for one in sides if one is not side for part in ast.walk(one))
            parts = list(others)
            for home in (part.value for part in parts if isinstance(part, ast.Attribute | ast.Subscript)):
                if isinstance(home, ast.Name) and home.id != "self":
                    self.note(side, "homes", home.id)
            for text in (part.value for part in parts if isinstance(part, ast.Constant)):
                if isinstance(text, str):
                    is_in = isinstance(node.ops[0], ast.In | ast.NotIn) and side is not node.left
                    self.note(side, "keys" if is_in and side is sides[-1] else "texts", text)
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Note what a class asserts of what it is made of."""
        self.note_refused(node.test)
        self.note_test(node.test)
        self.generic_visit(node)

    def note_refused(self, test: ast.AST) -> None:
        """Note what a class refuses some values of."""
        for one in ast.walk(test) if self.making else ():
            if isinstance(one, ast.Name | ast.Attribute) and (use := self.of(one)) is not None:
                use.asserted = True

    def note(self, node: ast.AST, what: str, text: str) -> None:
        """Add a text to what is known of something."""
        use = self.of(node)
        if use is not None and text not in (known := getattr(use, what)):
            known.append(text)


OF_SHAPES = ("ndim", "shape")


def numbers_compared(thing: Any) -> list[float]:
    """Return the numbers but 0 and 1 with which the file of a function or a class compares something: a mask, first.

    Shapes are left out, and what is asked of a call.
    """
    try:
        tree = ast.parse("".join(inspect.findsource(thing)[0]))
    except (OSError, TypeError, SyntaxError):
        return []
    found: dict[float, bool] = {}
    for node in (one for one in ast.walk(tree) if isinstance(one, ast.Compare)):
        if any(isinstance(one, ast.Call) or getattr(one, "attr", "") in OF_SHAPES for one in ast.walk(node)):
            continue
        for side in (node.left, *node.comparators):
            with suppress(ValueError, TypeError):
                number = float(ast.literal_eval(side))
                found[number] = found.get(number, False) or "mask" in ast.unparse(node)
    return sorted((number for number in found if number not in (0.0, 1.0)), key=lambda one: not found[one])


FEWEST = 4
"""What is no more than this counts axes rather than what lies along one."""
