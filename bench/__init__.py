"""Benchmarks: figures as ratios, side by side in one run."""
