"""Cards: what a result says to people, and how that is shown. Knows results only by their cards."""
