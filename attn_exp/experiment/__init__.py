"""Complete, compute, check and compare the variants of one problem.

`variant` takes the settings that a variant does not pin from the run, `executing` runs the problem through its form, or
step by step as a recipe, `measuring` makes its `Row`, and `compare` returns the `Comparison`. `metrics/` holds one
family of metrics per file, `checks/` one check per file. `published` compares a run with printed results. `long_runs`
refuses a run that would not fit into memory before anything is drawn.
"""
