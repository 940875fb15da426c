"""A SQL92 expression that does not parse, response code 23, and one that has no value for a message."""

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import IllegalArgument


class SelectorError(IllegalArgument):
    """The expression does not parse.

    Attributes: expression, reason (what is wrong and what to write), position (characters from the
    start), line and column (both from 1).
    """

    code = ResponseCode.SUBSCRIPTION_PARSE_FAILED

    def __init__(self, expression: str, position: int, reason: str) -> None:
        self.expression = expression
        self.reason = reason
        self.position = position
        before = expression[:position].replace("\r\n", "\n").replace("\r", "\n")
        self.line = before.count("\n") + 1
        self.column = len(before) - (before.rfind("\n") + 1) + 1
        super().__init__(
            f"SQL92 expression, line {self.line}, column {self.column}: {reason} "
            f"(in {_excerpt(expression, position)})"
        )


class EvaluationError(Exception):
    """The message's properties cannot be compared as the expression requires; the message does not match."""


def _excerpt(expression: str, position: int) -> str:
    """Return the text around the position, short enough for a remark."""
    first, last = max(0, position - 40), position + 40
    part = expression[first:last]
    return ("..." if first else "") + ascii(part) + ("..." if last < len(expression) else "")
