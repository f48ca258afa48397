"""Measurements, one JSON line a figure: `python -m benchmarks.<name>`. Results worth keeping are in `results/`, with their date."""
