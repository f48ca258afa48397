"""What may go: old versions, leftovers of killed writers, and episodes that have to be forgotten."""
