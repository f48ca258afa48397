"""Which episodes are unlike the others, and what a dataset speaks for."""
