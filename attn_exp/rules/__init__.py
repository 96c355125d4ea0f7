"""What is computed: one file per mask or score rule, found by its name."""
