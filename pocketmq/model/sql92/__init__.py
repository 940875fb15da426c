"""SQL92 filters with RocketMQ's semantics: compile_expression(text).matches(properties)."""

from pocketmq.model.sql92.errors import EvaluationError, SelectorError
from pocketmq.model.sql92.filter import Filter, compile_expression, expressions_in_use

__all__ = [
    "EvaluationError",
    "Filter",
    "SelectorError",
    "compile_expression",
    "expressions_in_use",
]
