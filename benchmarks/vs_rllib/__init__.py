"""The example of RLlib's document "Working with offline data", by RLlib and by us, side by side."""
