"""Complete, compute, check and compare the variants of one problem.

`variant` fills in the settings that a variant does not pin, `executing` runs the problem through its form, or step by
step as a recipe, `measuring` makes its `Row`, and `compare` returns the `Comparison`. `metrics/` has one family of
metrics per file, `checks/` one check per file. `published` compares a run with printed results. Before anything is
drawn, `long_runs` refuses a run that would not fit into memory.
"""
