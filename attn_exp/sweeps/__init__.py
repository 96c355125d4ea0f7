"""Many runs as one: composed once per choice of groups, computed in chunks, resumed for free.

`expand` reads the words into a `space` of points, `plan` cuts it into chunks, each named by a hash of all that decides
it, `task` computes one chunk, an engine decides where, and `driver` hands chunks out and writes their lines, a part per
chunk (`parts`). `manifest` describes the sweep, `reuse` finds points of earlier sweeps in the folder, and `collect`
joins the parts and writes the report. Workers are pure functions of a plan and a job. A million points are a million
lines in 500 files, and no place holds all of them: `totals` is streamed from the parts, and reports are drawn from it.

Points of a job that differ in their seed alone are computed as one stack: problems, forms, reference and rows have
an axis for the seeds, and each line is to the byte what the point gives alone. Inside such a stack positions are
marked, and forms with bent logits or other normalizers than softmax computed, one problem at a time, as are most forms.
A point is computed by itself where it fails, in types other than float64, with a document's figures, `metrics=` or a
function of one's own. What is left is Python: drawing the arrays, writing the numbers of each line, and reading all
lines again for the report.
"""
