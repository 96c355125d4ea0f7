"""The score rules, one per file, found by file name; a score rule changes logits."""
