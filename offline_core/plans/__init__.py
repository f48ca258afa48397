"""Plan an operation before anything is written: what it would read, write and take (`offline train --plan`)."""
