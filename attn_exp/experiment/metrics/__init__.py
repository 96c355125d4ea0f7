"""Numbers that describe weights and answers."""
