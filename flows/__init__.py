"""Prefect flows, one a file: they chain tasks and hold one Ray session around them, nothing else."""

import logging

# Prefect hands on what our loggers let through (`logging.extra_loggers` in pyproject.toml), and the root lets little through.
logging.getLogger("offline_core").setLevel(logging.INFO)
