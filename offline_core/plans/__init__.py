"""What an operation would read, write and take, before anything is written: `offline train --plan` and its like."""
