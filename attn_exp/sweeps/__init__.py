"""Run many configurations as one sweep, which is composed once per choice of groups, computed in chunks and resumable.

`expand` parses the command into a `space` of points, and `plan` cuts it into chunks, each named by a hash of everything
that determines its results. An engine decides where chunks are computed, and `task` computes them. `sweep` hands out
the chunks and writes their lines, one file per chunk (a part); `parts` also finds points of earlier sweeps in the
folder. `manifest.json` describes the sweep, and `swept` joins the parts and writes the report. Workers are pure
functions of a plan and a job. A million points are a million lines in 500 files.

`rows` reads the lines as columns and as arrays; `effects` compares rows in pairs, seed by seed, and tests the
differences; `summary` computes the mean of every combination, and describes the effects in words.

Points of a job that differ only in their seed are computed as one batch: problems, variants, reference and rows have a
seed axis, and each line is identical, byte for byte, to that of the point computed alone. Inside a batch, positions,
forms with modified logits or with normalizers other than softmax, and most other forms are computed one problem at a
time. A point is computed alone if it fails, or has a dtype other than float64, published results, `metrics=` or user
code. The rest of the time is spent in Python: drawing the arrays, formatting the numbers of each line, and reading all
lines again for the report.
"""
