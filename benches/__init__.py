"""Benchmarks: a corpus maker, peers, pytest-benchmark suites, and the table of docs/benchmarks.md."""
