"""Choose the sizes that a class is built with, and values for its settings by their names.

A setting is an argument of a constructor or a field of a configuration. Its *kind* is what it sets: `find_kind` returns
"h", the number of heads, for `num_heads`. With `Sizes(h=4, d=6, m=24, g=4)`, `value_of` returns 4 for it.

`sizes_to_try` returns the sizes in the order of the attempts; `sizes_of_layer` reads the sizes of the finished layer
from its attributes.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

from attn_exp.diagnosis.asking.names import ROLES, every_parameter, plain, read_names, source_of
from attn_exp.diagnosis.asking.request import Request

NAMES = read_names("""
h: nh
g: numkvgroups nkvgroups kvgroups groupnum nkv numkv numquerygroups multiquerygroupnum
groups: numgroups ngroups groups
d: dk dv dq dkv dqk dhead dkey dvalue dkeys dvalues hd keydim valuedim qkvdim projdim attndim querypreattnscalar \
    keyvaluedim
qkv_size: dimq dimk dimv querysize keysize valuesize qsize ksize vsize qdim kdim vdim dimkey dimvalue dimquery
m: nembd nembed din dout dimin dimout nchannels numchannels emb hidden hid nhid numhiddens dimcontext nstate nx \
    numfeatures demb dmod d m c e k ninp filters inchannel outchannel nhidden ch inch outch dhid dhidn dinput \
    doutput dinner dx neurons nfilters nin nout nmodel dimkv dh dtoken ind outd dimfeedforward
r: qkropeheaddim ropeheaddim ropedim rotarydim dimrope drope roped
max_tokens: blocksize nctx maxlen maxseqlen seqlen contextlength maxpositionembeddings ctxlen maxseqlength npositions \
    maxlength sequencelength seqlength numtokens contextsize contextwindow maxpositions maxsequencelength ctxsize \
    maxt tgtlen targetlen qlen querylen srclen ntokens
bias: bias qkvbias usebias attentionbias withbias projbias
causal: masked ismasked usemask usemasking maskflag withmask autoregressive unidirectional
evaluation: deterministic inference
training: train training
dropout: p rate keeprate
""")
NAMES |= {kind: ROLES[role] + NAMES[kind] for kind, role in (("h", "heads"), ("g", "kv_heads"), ("causal", "causal"))}
"""Kinds of settings, with common names for each.

- `h`, `g`, `d`, `m`, `r`: the sizes in `Layer.sizes`, by their letters.
- `groups`: key/value heads if the argument is required; a default is kept, because it may count the groups of a norm.
- `qkv_size`: the size of q, k or v; `find_kind` decides whether that is `m` or `d`.
- `max_tokens`: the number of tokens for which the layer builds masks and tables.
- `bias`, `causal`, `evaluation`, `training`: flags.
- `dropout`: the dropout rate.
"""
KIND_OF = {name: kind for kind, names in reversed(NAMES.items()) for name in names}
"""The kind of each name; the first kind that lists a name wins."""
WIDTHS = {"dmodel", "embeddim", "hiddensize"}
"""Names of the layer's width: next to one of these, `dim_k` is a head size."""
OTHER_VALUES = {
    "layeridx": 0, "layeridxs": 0, "idx": 0, "index": 0, "layer": 0, "layerid": 0, "layernumber": 1, "i": 0, "depth": 0,
    "nlayer": 1, "nlayers": 1, "numlayers": 1, "numhiddenlayers": 1, "batchsize": 8, "maxbatchsize": 8, "bs": 8,
    "device": "cpu", "dtype": None, "seed": 0, "name": "attention", "eps": 1e-5, "layernormeps": 1e-5, "normeps": 1e-5,
    "rmsnormeps": 1e-5, "layernormepsilon": 1e-5, "epsilon": 1e-5, "ropetheta": 1e4, "theta": 1e4, "base": 1e4,
    "ropebase": 1e4, "slidingwindow": None, "slidingwindowsize": None, "ropescaling": None, "vocabsize": 11,
    "windowsize": 4, "window": 4, "clipqkv": None, "attentiontype": "full_attention", "layertypes": ["full_attention"],
    "attnimplementation": "eager", "scaleattnweights": True, "partialrotaryfactor": 1.0, "batchfirst": True,
    "kernelsize": 3, "numclasses": 11,
    "quant": False, "vis": False, "quantize": False, "srratio": 1, "reductionratio": 1,
}  # fmt: skip
"""Values for required settings that are not sizes."""
CONFIG = re.compile("(conf|params|opts?|options)$|.*(config|cfg|args|hparams)$")
"""A pattern for names of configuration objects, in lowercase without underscores."""
MAX_TOKENS = 40
"""Number of tokens for which layers build their masks and tables."""
PATTERNS = (
    ("drop", "dropout"),
    ("rope|base|theta|scale|talk|maxhead|headtype|^headmask", ""),
    ("(idx|index|layerid|blockid)$", "index"),
    ("max\\w*(len|length|pos|dist|distance|positions|tokens)$|buckets$", "max_tokens"),
    ("^(use|is|flash|return|with|log|has|do|apply|output(?!.*(dim|size|channels|features)))", "flag"),
    ("head.*(dim|size|channels|width)|(dim|size).*head", "d"),
    ("(kv|keyvalue|group).*head|head.*(kv|keyvalue|group)", "g"),
    ("head(?!.*norm)", "h"),
    ("^(?!max|n)\\w*(model|embd|embed|embdim|embeddim|hiddensize|hiddendim|features|channels|width)$", "m"),
    ("patch|kernel|window|chunk|block|vocab|batch|seq|ffn|mlp|rank|code|bucket|ima?ge?|stride|pool|cache|file", ""),
    ("^(?!max)\\w*(dims?|dimensions?|size|feats?|units|planes|embeddings)$|^dim(?!s?$)", "m"),
)
"""Patterns for names that `NAMES` does not list, and the kind that each means; the first match wins."""


@dataclass(frozen=True)
class Sizes:
    """Sizes to build a layer with: `h` heads of size `d`, width `m`, `g` key/value heads.

    - `dropout`: the dropout rate.
    - `causal`: switch on a causal mask.
    - `fixed`: the letters of the sizes that the user sets, or that the user's file defines as constants. These override
      the defaults of the constructor.
    - `guesses`: also choose values for arguments of unknown meaning.
    """

    h: int
    d: int
    m: int
    g: int
    dropout: float = 0.0
    causal: bool = False
    fixed: frozenset[str] = frozenset()
    guesses: bool = False

    def lengths(self) -> dict[str, int]:
        """Return a batch size, numbers of queries and keys, and image sides that differ from all other sizes."""
        taken = {self.h, self.d, self.m, self.g}
        choices = {"b": (2, 3), "t": (5, 9), "s": (7, 11), "y": (3, 7), "x": (4, 5)}
        return {letter: second if first in taken else first for letter, (first, second) in choices.items()}


def find_kind(name: str, siblings: Collection[str] = ()) -> str:
    """Return the kind of a setting from its name (see `NAMES` and `PATTERNS`); an empty string if it is unknown.

    `siblings` are all arguments of the same constructor: `dim_k` is a width next to `dim_q`, but not next to `d_model`.
    """
    word = re.sub("^(number|numbers|nb|no|count)(of|(?=heads))", "num", plain(name))
    kind = KIND_OF.get(word, "")
    if kind == "qkv_size":
        widths = {plain(sibling) for sibling in siblings} & {"dimq", "querysize", "qsize", "qdim", "dimquery", *WIDTHS}
        return "m" if widths and not widths & WIDTHS else "d"
    return kind or next((kind for pattern, kind in PATTERNS if re.search(pattern, word)), "")


def value_of(name: str, sizes: Sizes, siblings: Collection[str] = ()) -> Any:
    """Return the value of a setting by its name, or `...` if its meaning is not known."""
    values = {
        "r": sizes.d // 2, "h": sizes.h, "g": sizes.g, "groups": sizes.g, "d": sizes.d, "m": sizes.m,
        "max_tokens": MAX_TOKENS, "bias": True, "causal": sizes.causal, "evaluation": True, "training": False,
        "dropout": sizes.dropout, "flag": False, "index": 0,
    }  # fmt: skip
    scales = {"temperature": sizes.d**0.5} | dict.fromkeys(("scale", "scaling", "softmaxscale"), sizes.d**-0.5)
    return (scales | OTHER_VALUES).get(plain(name), values.get(find_kind(name, siblings), ...))


def replace_default(parameter: inspect.Parameter, sizes: Sizes, siblings: Collection[str]) -> Any:
    """Return the value that replaces the default of a constructor's parameter, or `...` to keep the default."""
    kind, name, default = find_kind(parameter.name, siblings), plain(parameter.name), parameter.default
    if isinstance(default, bool) and sizes.causal and (kind == "causal" or name == "mask"):
        return True
    is_size = kind in ("h", "g", "d", "m") and (len(name) > 1 or kind == "h")  # `d = 3` may be anything
    may_keep = kind == "g" and "g" not in sizes.fixed  # a default number of key/value heads that divides the heads
    reasons_to_replace = (
        # a size, which must fit the other sizes
        type(default) is int and is_size and not (may_keep and 0 < default < sizes.h and sizes.h % default == 0),
        # a size that the class would otherwise compute; `kdim` and `vdim` of PyTorch are widths
        default is None and kind in ("h", "g", "d") and kind in sizes.fixed and name not in ("kdim", "vdim"),
        # a value without which the call may fail
        default is None and (kind in ("evaluation", "training") or name in ("layeridx", "layerid")),
        # the length of a causal mask
        default is None and kind == "max_tokens" and sizes.causal,
        # the batch size of a cache
        name == "maxbatchsize" and default == 1,
        kind == "dropout" and type(default) in (int, float),
    )
    return value_of(parameter.name, sizes, siblings) if any(reasons_to_replace) else ...


def sizes_to_try(owner: Any, request: Request, drops: bool) -> list[Sizes]:
    """Return the sizes to build a class with, in the order of the attempts; the first that can be called is used.

    1. Head size 6 with dropout, if `drops`.
    2. Head size 6 without dropout, then 8.
    3. The class's default number of heads, unless the user sets one.
    4. Head size 6, with values for arguments of unknown meaning.

    Head sizes 8 and 16 replace 6 and 8 if the class rotates queries and keys, or if there are 6 heads: the number of
    heads and the head size must differ. A head size that the user or the file sets replaces both.
    """
    defaults = {find_kind(parameter.name): parameter.default for parameter in every_parameter(owner, owner.__name__)}
    constants = {letter: size for letter, size in sizes_of_file(owner).items() if letter not in defaults}
    requested = {"h": request.head, "d": request.size, "g": request.kv_head}
    fixed = frozenset({*constants, *(letter for letter, size in requested.items() if size)})
    heads = request.head or constants.get("h", 4)
    first = second = request.size or constants.get("d", 0) or constants.get("m", 0) // heads
    if not first:
        rotates = request.positions or re.search(r"(?i)rotary|(?<![a-z])rope|freqs", source_of(owner))
        first, second = (8, 16) if rotates or heads == 6 else (6, 8)
    choices = [(heads, first), (heads, second)]
    default_heads = None if request.head else defaults.get("h")
    choices += (
        [(default_heads, max(1, 32 // default_heads))] if type(default_heads) is int and default_heads > 0 else []
    )
    usual = [
        Sizes(h, d, constants.get("m", h * d), request.kv_head or h, causal=request.is_causal, fixed=fixed)
        for h, d in choices
    ]
    return [*([replace(usual[0], dropout=0.3)] if drops else []), *usual, replace(usual[0], guesses=True)]


def sizes_of_file(owner: Any) -> dict[str, int]:
    """Return the sizes that a class or function reads from global constants, such as `N_HEADS = 4`."""
    module = sys.modules.get(getattr(owner, "__module__", None) or "")
    members = {} if module is None else vars(module)
    namespace = getattr(inspect.unwrap(owner), "__globals__", members) if callable(owner) else members
    source = source_of(owner)
    names = [name for name, value in namespace.items() if type(value) is int and value > 0]
    return {find_kind(name): namespace[name] for name in names if find_kind(name) in ("h", "d", "m")
            and re.search(rf"(?<![\w.])\b{name}\b(?!\s*=[^=])", source)}  # fmt: skip


def sizes_of_layer(target: Any, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of a layer by letter, from the arguments of its constructor or else from its attributes."""
    sizes: dict[str, int] = {}
    for fields in (arguments, *map(fields_of, modules_of(target))):
        for name, value in settings_of(fields).items():
            letter, word = find_kind(str(name)), plain(str(name))
            is_clear = letter in ("g", "d", "m") and len(word) > 1 and word not in NAMES["qkv_size"]
            if type(value) is int and value > 0 and (is_clear or letter in ("h", "r")):
                sizes.setdefault(letter, value)
    return sizes


def modules_of(target: Any) -> list[Any]:
    is_torch = any(kind.__module__.startswith("torch.") for kind in type(target).__mro__)
    return list(target.modules()) if is_torch and hasattr(target, "modules") else [target]


def settings_of(fields: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return these fields, and the fields of the configuration objects among their values."""
    configurations = (fields_of(value) for name, value in fields.items() if CONFIG.match(plain(str(name))))
    return reduce(or_, configurations, dict(fields))


def fields_of(thing: Any) -> dict[Any, Any]:
    return dict(thing) if isinstance(thing, Mapping) else getattr(thing, "__dict__", {})
