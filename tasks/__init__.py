"""Prefect tasks, one stage each: call the core, publish an artifact, return a small result."""
