"""Plan an import: from the first rows of a few files to the parameters to continue with, and what is left to decide."""
