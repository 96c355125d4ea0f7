"""Complete, compute, check and compare the variants of one problem.

`variant` fills in the settings that a variant takes from the run. `executing` runs a variant on the problem, with its
form or step by step as a recipe. `measuring` makes the `Row` of a variant, and `compare` returns the `Comparison` of a
run. `metrics/` has one family of metrics per file, `checks/` one check per file. `published` compares a run with
printed results. `long_runs` refuses a run that would not fit into memory, before any array is drawn.
"""
