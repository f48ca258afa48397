"""The registry: names and aliases over checkpoints, as a history of moves. Reads no checkpoint itself."""
