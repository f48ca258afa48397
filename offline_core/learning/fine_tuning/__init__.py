"""Going on by play from what was learned from recordings."""
