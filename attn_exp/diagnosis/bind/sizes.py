"""Sizes of a layer: values for settings such as `d_model` by their names, or by their use in the code.

`width // parts` implies that `parts` is a number of heads."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from attn_exp.diagnosis.asking.names import ROLES, every_parameter, plain, source_of
from attn_exp.diagnosis.asking.request import Request

NAMES: dict[str, tuple[str, ...]] = {
    "h": (*ROLES["heads"], "nattentionheads", "nh", "numattnheads", "nqheads", "numqueryheads", "numhead", "headnum",
          "headsnum", "headcount"),
    "g": (*ROLES["kv_heads"], "nkvhead", "numkvgroups", "nkvgroups", "kvgroups", "nkv", "numkv", "numquerygroups",
          "multiquerygroupnum"),
    "groups": ("numgroups", "ngroups", "groups"),
    "d": ("dk", "dv", "dq", "dkv", "dqk", "dhead", "dkey", "dvalue", "dkeys", "dvalues", "headdim", "dimhead",
          "headsize", "sizeperhead", "dimperhead", "headhiddendim", "hd", "keydim", "valuedim", "qkvdim", "projdim",
          "attndim", "querypreattnscalar", "keyvaluedim"),
    "side": ("dimq", "dimk", "dimv", "querysize", "keysize", "valuesize", "qsize", "ksize", "vsize", "qdim", "kdim",
             "vdim", "dimkey", "dimvalue", "dimquery"),
    "m": ("dmodel", "dim", "dims", "embeddim", "hiddensize", "nembd", "nembed", "modeldim", "din", "dout", "dimin",
          "dimout", "indim", "outdim", "inputdim", "outputdim", "infeatures", "outfeatures", "inputsize", "outputsize",
          "inchannels", "outchannels", "channels", "nchannels", "numchannels", "embsize", "embedsize", "emb", "embdim",
          "embeddingdim", "embeddingsize", "embed", "hiddim", "hiddendim", "hiddenunits", "hidden", "hid", "nhid",
          "numhiddens", "querydim", "contextdim", "crossattentiondim", "dimcontext", "nstate", "nx", "width", "size",
          "modelsize", "units", "feats", "features", "numfeatures", "dimmodel", "demb", "dembed", "ndim", "numdims",
          "innerdim", "qkvfeatures", "dmod", "modeldimension", "embeddingdimension", "planes", "d", "m", "c", "e", "k",
          "attentiondim", "ninp", "insize", "outsize", "filters", "inchannel", "outchannel", "dimension", "dimensions"),
    "r": ("qkropeheaddim", "ropeheaddim", "ropedim", "rotarydim", "dimrope", "drope", "roped"),
    "room": ("blocksize", "nctx", "maxlen", "maxseqlen", "seqlen", "contextlength", "maxpositionembeddings", "ctxlen",
             "maxseqlength", "npositions", "maxlength", "sequencelength", "seqlength", "numtokens", "contextsize",
             "contextwindow", "maxpositions", "maxsequencelength", "ctxsize", "maxt"),
    "bias": ("bias", "qkvbias", "usebias", "attentionbias", "withbias", "projbias"),
    "causal": (*ROLES["causal"], "masked", "ismasked", "usemask", "usemasking", "maskflag", "withmask",
               "autoregressive", "unidirectional"),
    "evaluates": ("deterministic", "inference"),
    "trains": ("train", "training"),
    "dropout": ("p", "rate", "keeprate"),
}  # fmt: skip
"""Letters of `Layer.sizes` and other kinds of settings, with the names that people use for them."""
LETTER_OF = {name: letter for letter, names in reversed(NAMES.items()) for name in names}
WIDTHS = {"dmodel", "embeddim", "hiddensize"}
FIXED: dict[str, Any] = {
    "layeridx": 0, "layeridxs": 0, "idx": 0, "index": 0, "layer": 0, "layerid": 0, "layernumber": 1, "i": 0, "depth": 0,
    "nlayer": 1, "nlayers": 1, "numlayers": 1, "numhiddenlayers": 1, "batchsize": 8, "maxbatchsize": 8, "bs": 8,
    "device": "cpu", "dtype": None, "seed": 0, "name": "attention", "eps": 1e-5, "layernormeps": 1e-5, "normeps": 1e-5,
    "rmsnormeps": 1e-5, "layernormepsilon": 1e-5, "epsilon": 1e-5, "ropetheta": 1e4, "theta": 1e4, "base": 1e4,
    "ropebase": 1e4, "slidingwindow": None, "slidingwindowsize": None, "ropescaling": None, "vocabsize": 11,
    "windowsize": 4, "window": 4, "clipqkv": None, "attentiontype": "full_attention", "layertypes": ["full_attention"],
    "attnimplementation": "eager", "scaleattnweights": True, "partialrotaryfactor": 1.0, "batchfirst": True,
    "kernelsize": 1, "numclasses": 11,
    "quant": False, "quantize": False,
}  # fmt: skip
"""Settings that are not sizes, and the value of each where it is required."""
CONFIG = re.compile("(conf|params|opts?|options)$|.*(config|cfg|args|hparams)$")
"""Names of configuration objects, in lowercase without underscores."""
ROOM = 40
"""Number of tokens for which a layer makes its masks and tables."""


@dataclass(frozen=True)
class Sizes:
    """Sizes to build a layer with: `h` heads of size `d`, width `m`, `g` key/value heads.

    `told` are the letters fixed by the user or the file, which override defaults of the constructor; `usage` gives the
    letters of unknown names, inferred from the code.
    """

    h: int
    d: int
    m: int
    g: int
    dropout: float = 0.0
    causal: bool = False
    told: frozenset[str] = frozenset()
    usage: Mapping[str, str] = field(default_factory=dict)

    def lengths(self) -> dict[str, int]:
        """Return lengths of batch, queries, keys and the sides of an image that differ from all other sizes."""
        taken = {self.h, self.d, self.m, self.g}
        choices = {"b": (2, 3), "t": (5, 9), "s": (7, 11), "y": (3, 7), "x": (4, 5)}
        return {letter: next((one for one in some if one not in taken), some[-1]) for letter, some in choices.items()}


def letter_of(name: str, siblings: Collection[str] = ()) -> str:
    """Return the kind of a setting by its name: a letter of `Layer.sizes`, another key of NAMES, or an empty string.

    `siblings` are all names of the same constructor: `dim_k` next to `dim_q`, but without `d_model`, is a width.
    """
    word = re.sub("^(number|numbers|nb|no|count)(of|(?=heads))", "num", plain(name))
    exact = LETTER_OF.get(word, "")
    if exact == "side":
        others = {plain(one) for one in siblings} & {"dimq", "querysize", "qsize", "qdim", "dimquery", *WIDTHS}
        return "m" if others and not others & WIDTHS else "d"
    return exact or next((letter for pattern, letter in PARTS if re.search(pattern, word)), "")


PARTS = (
    ("drop", "dropout"),
    ("rope|base|theta|scale|talk|maxhead|headtype|^headmask", ""),
    ("(idx|index|layerid|blockid)$", "index"),
    ("max\\w*(len|length|pos|dist|distance|positions|tokens)$|buckets$", "room"),
    ("^(use|is|return|with|log|has|do|apply|output)", "flag"),
    ("head.*(dim|size)|(dim|size).*head", "d"),
    ("(kv|keyvalue|group).*head|head.*(kv|keyvalue|group)", "g"),
    ("head(?!.*norm)", "h"),
    ("^(?!max|n)\\w*(model|embd|embed|embdim|embeddim|hiddensize|hiddendim|features|channels|width)$", "m"),
)
"""Patterns of names, and the kind of setting that each means; the first match wins."""


def value_of(name: str, sizes: Sizes, siblings: Collection[str] = ()) -> Any:
    word = plain(name)
    known: Mapping[str, Any] = {
        "r": sizes.d // 2, "h": sizes.h, "g": sizes.g, "groups": sizes.g, "d": sizes.d, "m": sizes.m, "room": ROOM,
        "bias": True, "causal": sizes.causal, "evaluates": True, "trains": False, "dropout": sizes.dropout,
        "flag": False, "unread": None, "index": 0,
    }  # fmt: skip
    letter = letter_of(name, siblings) or sizes.usage.get(name, "")
    scales = {"temperature": sizes.d**0.5} | dict.fromkeys(("scale", "scaling", "softmaxscale"), sizes.d**-0.5)
    return FIXED[word] if word in FIXED else scales.get(word, known.get(letter, ...))


def instead_of_default(given: inspect.Parameter, sizes: Sizes, siblings: Collection[str]) -> Any:
    """Return what replaces a default, or `...` to keep it; only sizes that must fit and dropout are replaced.

    Key/value heads stay if they divide the heads. None is replaced if the user named that size.
    """
    letter, default, word = letter_of(given.name, siblings), given.default, plain(given.name)
    is_size = letter in ("h", "g", "d", "m") and type(default) is int and (len(word) > 1 or letter == "h")
    fits = letter == "g" and is_size and "g" not in sizes.told and 0 < default < sizes.h and sizes.h % default == 0
    is_named = letter in ("h", "g", "d") and letter in sizes.told and default is None and word not in ("kdim", "vdim")
    is_state = default is None and (letter in ("evaluates", "trains") or word in ("layeridx", "layerid")
                                    or (letter == "room" and sizes.causal))  # fmt: skip
    is_masked = isinstance(default, bool) and sizes.causal and (letter == "causal" or word == "mask")
    is_replaced = (
        (is_size and not fits) or is_named or is_state or (letter == "dropout" and type(default) in (int, float))
    )
    return True if is_masked else value_of(given.name, sizes, siblings) if is_replaced else ...


def sizes_to_try(owner: Any, request: Request) -> Iterator[Sizes]:
    """Yield sizes for a class: head size 6 (8 if it rotates) with and without dropout, 8 (16), its default heads."""
    defaults = {letter_of(one.name): one.default for one in every_parameter(owner, owner.__name__)}
    file = {letter: size for letter, size in sizes_of_file(owner).items() if letter not in defaults}
    h = request.head or file.get("h", 4)
    named = {"h": request.head, "d": request.size, "g": request.kv_head}
    told = frozenset({*file, *(letter for letter, size in named.items() if size)})
    turns = bool(request.positions) or bool(re.search(r"(?i)rotary|(?<![a-z])rope|freqs", source_of(owner)))
    first = request.size or file.get("d", 0) or file.get("m", 0) // h
    usual = [first, first] if first else [8, 16] if turns or h == 6 else [6, 8]
    tries = [(h, usual[0], 0.3), (h, usual[0], 0.0), (h, usual[1], 0.0)]
    own = defaults.get("h") if not request.head else None
    tries += [(own, max(1, 32 // own), 0.0)] if type(own) is int and own > 0 else []
    for heads, d, dropout in tries:
        yield Sizes(heads, d, file.get("m", heads * d), request.kv_head or heads, dropout, request.is_causal, told)


def sizes_of_file(owner: Any) -> dict[str, int]:
    module = sys.modules.get(getattr(owner, "__module__", None) or "")
    home = {} if module is None else vars(module)
    space = getattr(inspect.unwrap(owner), "__globals__", home) if callable(owner) else home
    source = source_of(owner)
    numbers = {name: value for name, value in space.items() if type(value) is int and value > 0}
    return {letter_of(name): value for name, value in numbers.items() if letter_of(name) in ("h", "d", "m")
            and re.search(rf"(?<![\w.])\b{name}\b(?!\s*=[^=])", source)}  # fmt: skip


def sizes_of_layer(target: Any, arguments: Mapping[str, Any]) -> dict[str, int]:
    fields = [fields_of(module) for module in modules_of(target)]
    found: dict[str, int] = {}
    for name, value in (pair for one in (arguments, *fields) for pair in settings_of(one).items()):
        letter, word = letter_of(str(name)), plain(str(name))
        is_clear = letter in ("h", "r") or (letter in ("g", "d", "m") and len(word) > 1 and word not in NAMES["side"])
        if type(value) is int and value > 0 and is_clear:
            found.setdefault(letter, value)
    return found


def modules_of(target: Any) -> list[Any]:
    is_torch = any(kind.__module__.startswith("torch.") for kind in type(target).__mro__)
    return list(target.modules()) if is_torch and hasattr(target, "modules") else [target]


def settings_of(fields: Mapping[Any, Any]) -> dict[Any, Any]:
    held_by = (fields_of(value) for name, value in fields.items() if CONFIG.match(plain(str(name))))
    return {name: value for one in (fields, *held_by) for name, value in one.items()}


def fields_of(one: Any) -> dict[Any, Any]:
    return dict(one) if isinstance(one, Mapping) else getattr(one, "__dict__", {})


# Meanings by use

LIBRARIES = ("builtins", "torch", "flax", "haiku", "equinox", "keras", "jax", "jaxlib", "jaxtyping", "abc", "typing",
             "numpy")  # fmt: skip


def is_of_a_library(kind: Any) -> bool:
    return str(getattr(kind, "__module__", "")).partition(".")[0] in LIBRARIES


def assigned_pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each assignment target with its value: `a, b = c, d` has two."""
    for target in node.targets:
        several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
        if several and len(target.elts) == len(node.value.elts):  # type: ignore[attr-defined]
            yield from zip(target.elts, node.value.elts, strict=True)  # type: ignore[attr-defined]
        else:
            yield target, node.value


def last_name(node: ast.AST) -> str:
    """Return the last name of `config`, `self.config` or `config["model"]`; empty for `self` and modules."""
    if isinstance(node, ast.Name):
        return "" if node.id in ("self", "nn", "torch", "F", "math", "np", "jnp", "jax") else node.id
    if isinstance(node, ast.Attribute):
        return node.attr if getattr(node.value, "id", "") == "self" or last_name(node.value) else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and last_name(node.value):
        return node.slice.value if isinstance(node.slice.value, str) else ""
    return ""


LINEAR = ("Linear", "LazyLinear", "Dense", "DenseGeneral", "Conv1d", "Conv2d", "LayerNorm", "RMSNorm", "BatchNorm2d",
          "GroupNorm", "Conv1D", "Conv2D")  # fmt: skip
"""Layers whose sizes are widths of tokens."""
ROUNDS = 3
"""How many times inferred meanings are propagated to other names."""


def infer_letters(owner: Any) -> dict[str, str]:
    """Infer the meaning of settings with unknown names: keys of `sizes.NAMES`, or `config`, `flag`, `unread`.

    The rules use `m // h` and `m % h`, `h * d`, sizes of linear layers, conditions on a single name, and names that are
    never read.
    """
    trees = []
    for home in inspect.getmro(owner) if inspect.isclass(owner) else ():
        with suppress(SyntaxError):
            trees += [] if is_of_a_library(home) else [ast.parse(textwrap.dedent(source_of(home)))]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {name for node in nodes if (name := last_name(node))}
    known = {name: letter for name in names if (letter := letter_of(name))}
    same = list(find_aliases(nodes))
    facts = [
        *find_configs(nodes),
        *find_widths(nodes),
        *find_tests(nodes),
        *((name, "unread") for name in find_unread(nodes, same)),
    ]
    found: dict[str, str] = {}
    for _ in range(ROUNDS):
        for node in (one for one in nodes if isinstance(one, ast.BinOp)):
            facts += relate_sizes(node, {**found, **known})
        for name, letter in facts:
            found.setdefault(name, letter)
        for one, other in same:
            facts += [(one, found[other])] if other in found else [(other, found[one])] if one in found else []
    return {name: letter for name, letter in found.items() if name not in known}


def find_aliases(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield pairs of names of one value: `self.n = n_heads`."""
    for node in nodes:
        for target, value in assigned_pairs(node) if isinstance(node, ast.Assign) else ():
            if last_name(target) and last_name(value) and last_name(target) != last_name(value):
                yield last_name(target), last_name(value)


def find_widths(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        kind = last_name(node.func) or getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
        given = [*node.args[:2], *(one.value for one in node.keywords)] if isinstance(node, ast.Call) else []
        letter = "m" if kind in LINEAR else "dropout" if kind == "Dropout" else ""
        for name in filter(None, map(last_name, given if letter else [])):
            yield name, letter


def find_configs(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        key = node.slice if isinstance(node, ast.Subscript) else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and last_name(node.value):  # type: ignore[attr-defined]
            yield last_name(node.value), "config"  # type: ignore[attr-defined]


def find_tests(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the names of switches: names that are a whole condition."""
    for node in nodes:
        tests = [node.test] if isinstance(node, ast.If | ast.IfExp) else []
        tests += node.values if isinstance(node, ast.BoolOp) else []
        tests += [node.operand] if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else []
        for name in filter(None, map(last_name, tests)):
            yield name, "flag"


def find_unread(nodes: list[ast.AST], same: list[tuple[str, str]]) -> Iterator[str]:
    reads = Counter(last_name(node) for node in nodes if isinstance(getattr(node, "ctx", None), ast.Load))
    kept = [last_name(value) for node in nodes if isinstance(node, ast.Assign) for target, value in assigned_pairs(node)
            if isinstance(target, ast.Attribute) and last_name(target)]  # fmt: skip
    for name, count in Counter(kept).items():
        attributes = [target for target, value in same if value == name]
        if name and reads[name] == count and not any(reads[one] for one in attributes):
            yield name


def relate_sizes(node: ast.BinOp, known: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what a division or product implies about each name in it, given the meaning of the other name."""
    left, right = last_name(node.left), last_name(node.right)
    if not left or not right:
        return
    if isinstance(node.op, ast.FloorDiv | ast.Mod):
        if known.get(left, "m") == "m" and left != right:
            yield right, "h"
            yield left, "m" if known.get(right, "h") in ("h", "d") else ""
    elif isinstance(node.op, ast.Mult):
        other = {"h": "d", "d": "h", "g": "d"}
        for one, two in ((left, right), (right, left)):
            if known.get(one) in other:
                yield two, other[known[one]]
