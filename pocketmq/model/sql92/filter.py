"""A compiled SQL92 expression, and a cache of recent ones."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketmq.model.sql92.errors import EvaluationError, SelectorError

if TYPE_CHECKING:
    from pocketmq.model.sql92.expression import Evaluate

EXPRESSION_SIZE_MAX = 65_536
"""Characters of an expression. Ours: RocketMQ has no limit but the frame's."""


@dataclass(slots=True, frozen=True)
class Filter:
    """One compiled expression.

    Attributes: expression (its text), names (the properties it reads: no others need to be decoded),
    evaluate (True, False, None for unknown; raises EvaluationError), cost (parts that an evaluation visits at
    most; each takes about 0.2 us).
    """

    expression: str
    names: frozenset[str]
    evaluate: "Evaluate"
    cost: int

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return True if a message with these properties passes: only if the expression is true.

        A property that cannot be read as the number it is compared with makes the message fail, whatever the
        rest of the expression says, as in RocketMQ.
        """
        try:
            return self.evaluate(properties) is True
        except EvaluationError:
            return False


class CompileCache:
    """Recently compiled expressions, and the errors of invalid ones.

    Attributes: size (an estimate of its bytes, at most size_max; those in use come on top).
    """

    def __init__(self, size_max: int = 32 << 20) -> None:
        self._size_max = size_max
        self._found: OrderedDict[str, Filter | SelectorError] = OrderedDict()
        # With how often each is in use.
        self._used: dict[str, tuple[Filter, int]] = {}
        self.size = 0

    def compiled(self, text: str) -> Filter:
        """See `compile_expression`."""
        found = self._found.get(text)
        if found is None:
            try:
                found = self._used[text][0] if text in self._used else _compile(text)
            except SelectorError as error:
                found = error
            self._found[text] = found
            self.size += _size(text, found)
            while self.size > self._size_max:
                self.size -= _size(*self._found.popitem(last=False))
        else:
            self._found.move_to_end(text)
        if isinstance(found, SelectorError):
            raise found.with_traceback(None)
        return found

    @contextmanager
    def in_use(self) -> Iterator[Callable[[str], None]]:
        """Yield what compiles a text, if that can be, and keeps it to the end of the block."""
        texts: list[str] = []

        def use(text: str) -> None:
            with suppress(SelectorError):
                found = self.compiled(text)
                self._used[text] = found, self._used.get(text, (found, 0))[1] + 1
                texts.append(text)

        try:
            yield use
        finally:
            for text in texts:
                found, count = self._used.pop(text)
                if count > 1:
                    self._used[text] = found, count - 1


def _size(text: str, found: Filter | SelectorError) -> int:
    return 500 + 16 * len(text) + (found.cost * 400 if isinstance(found, Filter) else 0)


_CACHE = CompileCache()
expressions_in_use = _CACHE.in_use
compile_expression = _CACHE.compiled
"""The filter that a text describes. Raises: SelectorError with position and remark.

    >>> compile_expression("a > 5 AND b = 'x'").matches({"a": "6", "b": "x"})
    True
"""


def _compile(text: str) -> Filter:
    if len(text) > EXPRESSION_SIZE_MAX:
        reason = f"the expression has {len(text)} characters, but at most {EXPRESSION_SIZE_MAX} are allowed"
        raise SelectorError(text[:80], 0, reason)
    # Most brokers filter by tags only, and need no parser.
    from pocketmq.model.sql92 import selector_parser

    node, names = selector_parser.parse(text)
    return Filter(text, names, node.evaluate, node.cost)
