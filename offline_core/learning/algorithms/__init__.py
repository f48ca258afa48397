"""What can be learned from a dataset, and how: one algorithm a file, and their registry."""
