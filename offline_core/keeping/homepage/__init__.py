"""The home page of a root: everything below it, as one HTML file."""
