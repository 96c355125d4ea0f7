"""Run many configurations as one sweep: composed once per choice of groups, computed in chunks, and resumable.

`expand` parses the words into a `space` of points, `plan` cuts it into chunks, each named by a hash of everything that
determines it, `task` computes one chunk, an engine chooses where, and `sweep` hands out chunks and writes their lines,
a part per chunk (`parts`, which also finds points of earlier sweeps in the folder). `manifest` describes the sweep, and
`collect` joins the parts and writes the report. Workers are pure functions of a plan and a job. A million points are a
million lines in 500 files.

`rows` reads the lines, as columns and as arrays; `effects` compares rows in pairs, seed by seed, and tests the
differences; `summary` has the means of every combination, and says what the effects are.

Points of a job that differ only in their seed are computed as one batch: problems, variants, reference and rows have an
axis for the seeds, and each line equals, byte for byte, that of the point alone. Inside a batch, positions, forms with
modified logits or with normalizers other than softmax, and most forms in general, are computed one problem at a time. A
point is computed by itself if it fails, has a dtype other than float64, a document's figures, `metrics=` or a user's
function. The remaining time is Python: drawing the arrays, writing the numbers of each line, and reading all lines
again for the report.
"""
