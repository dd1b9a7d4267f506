"""Faults on real brokers under load, and what proves that nothing was lost. `python -m tests.chaos`."""
