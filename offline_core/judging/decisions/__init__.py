"""Decisions: which of several policies may replace what runs today, told from a log."""
