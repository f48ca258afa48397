"""Cards: what a stage did, as a table of numbers and a picture, in Markdown. Knows results only by their numbers."""
