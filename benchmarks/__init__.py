"""Measurements of RowDelta beside its peers, in one run: `python -m benchmarks --rows 6000000`."""
