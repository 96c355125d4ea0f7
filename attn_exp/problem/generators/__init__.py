"""The generators of libraries, a file to each: what they would draw after a seed, number by number, in NumPy alone.

A notebook that says `torch.manual_seed(123)` has drawn numbers that nothing but its calls decides. The same calls, in
the same order, draw the same numbers here, without that library. `_float32` holds the arithmetic of 32-bit floats
that this takes.
"""

from __future__ import annotations

from attn_exp import registry
from attn_exp.errors import UserError, unknown
from attn_exp.problem.generators.generator import Generator, Start, Stream

GENERATORS: dict[str, Generator] = registry.members(__name__, Generator, without=("generator",))


def begin(name: str, seed: int, alone: bool = False, key: str = "seed") -> Stream:
    """Return a generator's stream as it is right after its seed, of which one array or more are drawn.

    `key` is what the user calls that seed.

    Raises:
        UserError: no such generator, or a seed that it does not take.
    """
    if name not in GENERATORS:
        raise UserError(unknown(name, ("streams", *GENERATORS), "generator"))
    generator = GENERATORS[name]
    if not generator.least <= seed or (generator.most is not None and seed > generator.most):
        most = "" if generator.most is None else f" to {generator.most}"
        expected = f"a whole number from {generator.least}{most}" if most else f"at least {generator.least}"
        raise UserError(f"{key}={seed}: expected {expected} for generator={name}")
    return generator.begin(Start(seed, alone))
