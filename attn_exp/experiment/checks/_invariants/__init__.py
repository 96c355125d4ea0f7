"""What must not change, in families: order, sight, and numbers."""
