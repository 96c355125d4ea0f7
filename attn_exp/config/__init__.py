"""What a user may say: the schema of a run, the readers of its values, and Hydra, which composes them.

`schema` and `inputs` hold every setting: what it takes, what it means and its default stand on the field, and the
reader, the rules, `--help` and the README's table all take them from there. `compose` lets Hydra put `conf/` and the
words together; its keys are untyped, so that Hydra refuses keys that do not exist and `read_config` alone words what is
wrong with a value. What Hydra itself finds wrong, `hydra_errors` says in the user's words. Plain values leave this
room, nothing of Hydra.
"""
