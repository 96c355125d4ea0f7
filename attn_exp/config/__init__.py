"""What a user may say: the schema of a run, the readers of its values, and Hydra, which composes them."""
