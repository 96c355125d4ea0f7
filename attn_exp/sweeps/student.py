"""Student's t, for intervals of few numbers."""

from __future__ import annotations

T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
"""97.5 % points of Student's t for 1 to 30 degrees of freedom; Abramowitz & Stegun 1964, table 26.10."""
Z_975 = 1.959963985


def t_975(freedom: int) -> float:
    """Return the 97.5 % point of Student's t; beyond the table, Abramowitz & Stegun 1964, formula 26.7.5."""
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z, n = Z_975, freedom
    steps = (
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
    )
    return z + sum(steps)
