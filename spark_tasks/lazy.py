"""PySpark, imported when it is first used: what describes reports runs without it."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Lazy:
    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._module), name)


functions: Any = _Lazy("pyspark.sql.functions")
sql: Any = _Lazy("pyspark.sql")
types: Any = _Lazy("pyspark.sql.types")
