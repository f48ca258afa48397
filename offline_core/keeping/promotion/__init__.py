"""Promotion: moving an alias of the registry by a decision, by an override, or back."""
