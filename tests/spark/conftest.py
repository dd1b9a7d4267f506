from tests.support.fixtures import *  # noqa: F403
from tests.support.spark import spark

__all__ = ["spark"]
