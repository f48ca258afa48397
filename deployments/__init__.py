"""Where flows are offered to a Prefect server."""
