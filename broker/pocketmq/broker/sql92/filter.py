"""A compiled SQL92 expression, and a cache of recent ones."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

from pocketmq.broker.sql92 import selector_parser
from pocketmq.broker.sql92.errors import SelectorError
from pocketmq.broker.sql92.expression import Evaluate, EvaluationError

EXPRESSION_SIZE_MAX = 65_536
"""Characters of an expression. Ours: RocketMQ has no limit but the frame's."""


@dataclass(slots=True, frozen=True, weakref_slot=True)
class Filter:
    """One compiled expression.

    Attributes: expression (its text), names (the properties it reads: no others need to be decoded),
    evaluate (True, False, None for unknown; raises EvaluationError), cost (parts that an evaluation visits at
    most; each takes about 0.2 us).
    """

    expression: str
    names: frozenset[str]
    evaluate: Evaluate
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
    """Recently compiled expressions, those that somebody holds, and the errors of invalid ones.

    Attributes: size (an estimate of its bytes, at most size_max).
    """

    def __init__(self, size_max: int = 32 << 20) -> None:
        self._size_max = size_max
        self._found: OrderedDict[str, Filter | SelectorError] = OrderedDict()
        self._held: WeakValueDictionary[str, Filter] = WeakValueDictionary()
        self.size = 0

    def compiled(self, text: str) -> Filter:
        """See `compile_expression`."""
        found = self._found.get(text)
        if found is None:
            found = self._held.get(text)
            try:
                if found is None:
                    found = self._held[text] = _compile(text)
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


def _size(text: str, found: Filter | SelectorError) -> int:
    return 500 + 16 * len(text) + (found.cost * 400 if isinstance(found, Filter) else 0)


compile_expression = CompileCache().compiled
"""The filter that a text describes. Raises: SelectorError with position and remark.

    >>> compile_expression("a > 5 AND b = 'x'").matches({"a": "6", "b": "x"})
    True
"""


def _compile(text: str) -> Filter:
    if len(text) > EXPRESSION_SIZE_MAX:
        reason = f"the expression has {len(text)} characters, but at most {EXPRESSION_SIZE_MAX} are allowed"
        raise SelectorError(text[:80], 0, reason)
    node, names = selector_parser.parse(text)
    return Filter(text, names, node.evaluate, node.cost)
