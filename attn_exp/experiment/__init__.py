"""Variants on one problem: settled, computed, checked and compared.

`variant` fills in what each variant does not pin, `executing` runs the problem through its form, or step by step as a
recipe, `measuring` makes its `Row`, and `compare` returns the `Comparison`. `metrics/` and `checks/` hold one family or
check per file. `published` compares a run with printed figures. `long_runs` refuses what would not fit before anything
is drawn.
"""
