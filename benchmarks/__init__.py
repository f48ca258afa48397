"""Measurements, one JSON line a figure: `python -m benchmarks.<name>`. Results are kept in `results/`, with their date."""
