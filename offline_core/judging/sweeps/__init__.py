"""Sweeps: many settings of a training, each with many seeds, and what they came to."""
