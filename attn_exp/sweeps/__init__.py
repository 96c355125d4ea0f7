"""Run many configurations as one sweep, which can be stopped and resumed.

- `expand` parses the command into a `space` of points. Hydra composes the settings once per choice of groups.
- `plan` cuts the space into chunks, each named by a hash of everything that determines its results.
- `sweep` hands the chunks to an engine, whose workers compute them with `task`, a pure function of a plan and a job.
- `parts` stores the lines of each chunk in a file of its own, a part, and finds points of earlier sweeps in the folder.
- `swept` joins the parts to one table and writes the report; `manifest.json` describes the sweep.
- `rows` reads the lines as columns and as arrays.
- `effects` compares rows in pairs, seed by seed, and tests the differences.
- `summary` computes the mean of every combination, and describes the effects in words.

A million points are a million lines in 500 files.

Points of a job that differ only in their seed are computed as one batch: problems, variants, reference and rows have a
seed axis, and each line is identical, byte for byte, to that of the point computed alone. Some steps still compute one
problem of a batch at a time: positions, most forms, and all forms with modified logits or with a normalizer other than
softmax. A point is computed alone if it fails, or has a dtype other than float64, published results, `metrics=` or user
code.
"""
