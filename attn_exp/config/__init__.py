"""Settings: the schema of a run, the readers of its values, and their composition by Hydra.

`schema` and `inputs` define every setting once, on its field: the accepted values, the meaning and the default. The
reader, the rules, `--help` and the README's table all use these definitions. `compose` lets Hydra combine `conf/` with
the command line. Hydra knows the keys but no types: it rejects unknown keys, and `read_config` alone reports invalid
values. `hydra_errors` rewords Hydra's own errors for users. Only plain values leave this package, no objects of Hydra.
"""
