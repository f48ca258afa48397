"""Decisions on logs whose truth is known."""
