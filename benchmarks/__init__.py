"""Measurements behind every speed claim, each beside its baseline in the same run: `python -m benchmarks.<name>`.

Not part of the installed package. See docs/benchmarks.md.
"""
