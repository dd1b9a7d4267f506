"""Keeps Odradek's processes running: decides in ``machine``, does in ``run`` and ``process``."""
