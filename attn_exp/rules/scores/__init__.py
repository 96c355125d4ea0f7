"""What is done to logits: one score rule to a file, found by its name."""
