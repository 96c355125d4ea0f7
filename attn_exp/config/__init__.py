"""What a user may say: the schema of a run, the readers of its values, and Hydra, which composes them.

`schema` holds every setting: what it takes, what it means and its default stand on the field, and `read`, the rules,
`--help` and the README's table all take them from there. `compose` lets Hydra put `conf/` and the words together; its
keys are untyped, so that Hydra refuses keys that do not exist and `read` alone words what is wrong with a value. What
Hydra itself finds wrong, `hydra_errors` says in the user's words. Plain values leave this room, nothing of Hydra.
"""
