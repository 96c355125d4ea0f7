"""Printed figures of documents, and what they say of a run.

A document is three YAML files: its embeddings, its projections, and an experiment that pins settings and lists the
printed figures. `printed` reads how exactly a figure is printed, `intervals` how far rounded inputs can move it, and
`published` holds it against the run. A figure that no variant forms is left out; one of another size or value
disagrees, and the run goes on.
"""
