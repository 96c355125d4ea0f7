"""Variants on one problem: settled, computed, checked and compared.

`settling` gives each variant what it does not pin itself, `executing` puts the problem through it, `measuring` makes
its `Row`, and `compare` returns the `Comparison`. `metrics/` and `checks/` live one to a file. `published` holds a run
against printed figures. `recipes` says what the steps of a variant give, and `memory` refuses what would not fit before
anything is drawn.
"""
