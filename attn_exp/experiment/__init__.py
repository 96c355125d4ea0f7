"""Complete, compute, check and compare the variants of one problem.

`variant` fills in the settings that a variant leaves to the run. `executing` runs the problem through the variant's
form, or step by step as a recipe. `measuring` makes its `Row`, and `compare` returns the `Comparison`. `metrics/` has
one family of metrics per file, `checks/` one check per file. `published` compares a run with printed results.
`long_runs` refuses a run that would not fit into memory, before any array is drawn.
"""
