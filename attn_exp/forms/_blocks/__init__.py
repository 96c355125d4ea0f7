"""What makes the block-wise form fast: plans, one-threaded BLAS calls on several threads, and blocks of softmax."""
