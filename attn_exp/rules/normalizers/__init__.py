"""What turns a row of masked logits into weights: one normalizer to a file, found by its name."""
