"""Benchmarks: Apache Kafka and Odradek side by side on this machine. `python -m tests.bench --help`.

Never part of `make test`: figures of a busy machine say nothing. What runs there are the tests of the
tool's own arithmetic (test_*.py here).
"""
