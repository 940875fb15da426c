"""A compiled SQL92 expression, and the cache of the last ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from pocketmq.broker.sql92.errors import SelectorError
from pocketmq.broker.sql92.expression import Evaluate, EvaluationError

EXPRESSION_SIZE_MAX = 65_536
"""Characters of an expression. Ours: RocketMQ has no limit but the frame's."""


@dataclass(slots=True, frozen=True)
class Filter:
    """One expression.

    Attributes: expression (its text), names (the properties it looks at: no others need to be decoded),
    evaluate (True, False, None for unknown; raises EvaluationError).
    """

    expression: str
    names: frozenset[str]
    evaluate: Evaluate

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties passes: only when the expression is true.

        A property that cannot be read as the number it is compared with makes it not pass, whatever the
        rest of the expression says, as in RocketMQ.
        """
        try:
            return self.evaluate(properties) is True
        except EvaluationError:
            return False


@lru_cache(maxsize=256)
def compile_expression(text: str) -> Filter:
    """The filter that `text` describes. Raises: SelectorError with position and remark.

    >>> compile_expression("a > 5 AND b = 'x'").matches({"a": "6", "b": "x"})
    True
    """
    if len(text) > EXPRESSION_SIZE_MAX:
        reason = (
            f"the expression has {len(text)} characters, at most {EXPRESSION_SIZE_MAX} are allowed"
        )
        raise SelectorError(text[:80], 0, reason)
    from pocketmq.broker.sql92 import selector_parser  # lark costs 40 ms: only who filters pays

    node, names = selector_parser.parse(text)
    return Filter(text, names, node.evaluate)
