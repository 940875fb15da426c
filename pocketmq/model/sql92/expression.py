"""Evaluation of an expression: nodes made of closures over the message's properties.

An evaluation gives True, False or None (unknown, from a missing property) or raises EvaluationError:
RocketMQ throws where a property cannot be read as the number it is compared with, and the message then
matches nothing, not even under NOT. A property is always text; a number comes from the grammar only, so
all types but None are known when the expression is compiled.
Sources: ComparisonExpression, LogicExpression, UnaryExpression, ConstantExpression, RocketMQ 4.9.7 and
5.3.3. Differences from SQL are noted at the function, and in the docs page about filters.

1. `evaluate` visits its parts from left to right and no further than RocketMQ does, since the first error
   or unknown decides the result.
2. `depth` bounds the Python frames of an evaluation; chains of AND and OR count once.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

from pocketmq.model.sql92 import java_values
from pocketmq.model.sql92.errors import EvaluationError

DEPTH_MAX = 200
"""Nested operators (AND and OR aside) that an expression may have; RocketMQ's limit is its thread's stack."""

Properties = Mapping[str, str]
Value = Any
"""None, bool, int, float or str; the kind says which."""
Evaluate = Callable[[Properties], Value]


class IllegalExpression(Exception):
    """The grammar allows it, RocketMQ's checks do not; the text says what to write instead."""


class ValueType(Enum):
    """The type of a value that is not None."""

    TEXT = "text"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    NOTHING = "nothing"
    """Always None: what a minus makes of anything but a number."""

    __hash__ = object.__hash__  # Enum's own is a call of Python.


NUMBERS = frozenset({ValueType.INT, ValueType.LONG, ValueType.DOUBLE})


@dataclass(slots=True)
class Expression:
    """One part of an expression.

    is_boolean: may stand alone, under NOT, AND, OR; `as_boolean` makes a property so.
    is_constant: a literal of the grammar with `constant` as its value; minus and NOT take that away.
    name: of the property, if the node is one. chain: parts of an AND or OR, for joining.
    cost: the most parts that an evaluation visits.
    """

    kind: ValueType
    evaluate: Evaluate
    text: str
    is_boolean: bool = False
    is_constant: bool = False
    constant: Value = None
    name: str | None = None
    depth: int = 1
    cost: int = 1
    chain: tuple[str, list[Evaluate]] | None = None


def literal(kind: ValueType, value: Value, text: str) -> Expression:
    return Expression(
        kind, lambda _: value, text, kind is ValueType.BOOLEAN, is_constant=True, constant=value
    )


def decimal(text: str) -> Expression:
    """A whole number: int if it fits 32 bits, else long; a final L changes nothing."""
    digits = text.rstrip("lL")
    value = int(digits) if len(digits) < 20 else java_values.LONG_MAX + 1
    if value > java_values.LONG_MAX:
        raise IllegalExpression(f"{text} is greater than {java_values.LONG_MAX}")
    return literal(ValueType.INT if value <= java_values.INT_MAX else ValueType.LONG, value, text)


def floating(text: str) -> Expression:
    """A double. RocketMQ requires at least Double.MIN_VALUE, which rules out 0.0: write 0 instead."""
    value = float(text)
    if value == float("inf"):
        raise IllegalExpression(
            f"{text} is greater than the greatest double, 1.7976931348623157E308"
        )
    if value < java_values.DOUBLE_MIN:
        raise IllegalExpression(
            f"{text} is less than the smallest double, 4.9E-324; write 0 for zero"
        )
    return literal(ValueType.DOUBLE, value, text)


def text_literal(image: str) -> Expression:
    """A quoted text; two quotes inside stand for one."""
    return literal(ValueType.TEXT, unquote(image), image)


def unquote(image: str) -> str:
    return image[1:-1].replace("''", "'")


def property_(name: str) -> Expression:
    return Expression(ValueType.TEXT, lambda properties: properties.get(name), name, name=name)


def as_boolean(node: Expression) -> Expression:
    """Return the node as a condition. A lone property is unknown if missing, else **false**, even "true"."""
    if node.is_boolean:
        return node
    if node.name is None:
        raise IllegalExpression(f"{node.text} is not a condition: compare it with something")
    name = node.name
    return _condition(
        lambda properties: None if properties.get(name) is None else False, node.text, node
    )


def negated(node: Expression) -> Expression:
    """Minus. Of anything but a number, even a property that holds one, the result is unknown."""
    evaluate, text = node.evaluate, f"-{node.text}"
    if node.kind in NUMBERS:
        value = -evaluate({})
        return Expression(node.kind, lambda _: value, text, depth=_deeper(node), cost=node.cost + 1)

    def nothing(properties: Properties) -> None:
        evaluate(properties)

    return Expression(ValueType.NOTHING, nothing, text, depth=_deeper(node), cost=node.cost + 1)


def inverted(node: Expression) -> Expression:
    """NOT: unknown stays unknown."""
    evaluate = as_boolean(node).evaluate

    def invert(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return None if value is None else not value

    return _condition(invert, f"NOT {node.text}", node)


def conjunction(left: Expression, right: Expression) -> Expression:
    """AND: false as soon as one side is false; else unknown when one side is."""
    return _chained("AND", left, right, _every)


def disjunction(left: Expression, right: Expression) -> Expression:
    """OR: true as soon as one side is true; else unknown when one side is."""
    return _chained("OR", left, right, _some)


def equal(left: Expression, right: Expression) -> Expression:
    """`=`. Unlike SQL: two missing properties are equal, and a value differs from a missing right side."""
    for side in (left, right):
        if side.is_constant and side.constant is None:
            raise IllegalExpression("NULL cannot be compared with =: write IS NULL")
    if (left.is_constant and right.is_constant) and left.is_boolean and not right.is_boolean:
        raise IllegalExpression(f"{left.text} cannot be compared with {right.text}")
    return _equal(left, right)


def unequal(left: Expression, right: Expression) -> Expression:
    return inverted(equal(left, right))


def is_null(node: Expression) -> Expression:
    return _equal(node, literal(ValueType.BOOLEAN, None, "NULL"))


def ordered(symbol: str, left: Expression, right: Expression) -> Expression:
    """`>`, `>=`, `<`, `<=`: numbers only; text is parsed as the type of number on the other side.

    A text against an int must be a whole number ("5.5" > 5 is an error); two texts are read as doubles.
    """
    for side in (left, right):
        if side.is_boolean or (side.is_constant and side.kind not in NUMBERS):
            raise IllegalExpression(
                f"{side.text} cannot be compared with {symbol}: only numbers can"
            )
    text = f"{left.text} {symbol} {right.text}"
    if left.name is not None and right.kind in (ValueType.INT, ValueType.LONG):
        return _condition(_property_against_whole(symbol, left.name, right), text, left, right)
    accepts = _ACCEPTS[symbol]
    compare = _comparison(left.kind, right.kind)
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> bool | None:
        a = first(properties)
        if a is None:
            return None
        b = second(properties)
        if b is None:
            return None
        try:
            return accepts(compare(a, b))
        except ValueError as error:
            raise EvaluationError(str(error)) from None

    return _condition(evaluate, text, left, right)


def between(value: Expression, low: Expression, high: Expression) -> Expression:
    """BETWEEN. Two constants must be in order; a negative number is no constant and is not checked."""
    if low.is_constant and high.is_constant:
        if low.constant is None or high.constant is None:
            raise IllegalExpression("NULL cannot be a bound of BETWEEN")
        numbers = low.kind in NUMBERS and high.kind in NUMBERS
        if numbers and _comparison(high.kind, low.kind)(high.constant, low.constant) < 0:
            raise IllegalExpression(
                f"the left bound {low.text} of BETWEEN must not be greater than the right bound {high.text}"
            )
    return conjunction(ordered(">=", value, low), ordered("<=", value, high))


def not_between(value: Expression, low: Expression, high: Expression) -> Expression:
    """NOT BETWEEN, without the check of `between`, as in RocketMQ."""
    return disjunction(ordered("<", value, low), ordered(">", value, high))


def is_in(node: Expression, elements: Sequence[str], *, wanted: bool) -> Expression:
    """IN and NOT IN, of a property and texts only; a missing property is unknown."""
    if node.name is None:
        raise IllegalExpression(f"{node.text} stands before IN, where only a property may stand")
    name, members = node.name, frozenset(elements)

    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in members) is wanted

    return _condition(evaluate, f"{node.text} IN (...)", node)


def part(word: str, node: Expression, search: str, *, wanted: bool) -> Expression:
    """CONTAINS, STARTSWITH, ENDSWITH (RocketMQ 5). Unlike the rest: false, not unknown, without a text to
    search or to search for, even with NOT before it.
    """
    test = _PARTS[word]
    value_of = node.evaluate

    def evaluate(properties: Properties) -> bool:
        value = value_of(properties)
        if not search or not isinstance(value, str):
            return False
        return test(value, search) is wanted

    return _condition(evaluate, f"{node.text} {word} ...", node)


_PARTS: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_ACCEPTS: Mapping[str, Callable[[int], bool]] = {
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
}
_ORDERS: Mapping[str, Callable[[int, int], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_READERS: Mapping[ValueType, Callable[[str], Value]] = {
    ValueType.INT: java_values.integer,
    ValueType.LONG: java_values.long,
    ValueType.DOUBLE: java_values.double,
    ValueType.BOOLEAN: java_values.boolean,
}


def _condition(evaluate: Evaluate, text: str, *parts: Expression) -> Expression:
    cost = 1 + sum([part.cost for part in parts])
    return Expression(
        ValueType.BOOLEAN, evaluate, text, is_boolean=True, depth=_deeper(*parts), cost=cost
    )


def _deeper(*parts: Expression) -> int:
    depth = 1 + max([part.depth for part in parts])
    if depth > DEPTH_MAX:
        raise IllegalExpression(f"more than {DEPTH_MAX} operators are nested")
    return depth


def _chained(
    word: str,
    left: Expression,
    right: Expression,
    fold: Callable[[list[Evaluate], Properties], bool | None],
) -> Expression:
    left, right = as_boolean(left), as_boolean(right)
    joined, text = left.chain is not None and left.chain[0] == word, f"({left.text} {word} ...)"
    # The left side is used nowhere else, so that its list may grow: a chain of n parts costs n.
    parts = left.chain[1] if left.chain is not None and joined else [left.evaluate]
    parts.append(right.evaluate)
    return Expression(
        ValueType.BOOLEAN,
        lambda properties: fold(parts, properties),
        left.text if joined else text,
        is_boolean=True,
        depth=max(left.depth, _deeper(right)) if joined else _deeper(left, right),
        cost=left.cost + right.cost,
        chain=(word, parts),
    )


def _every(parts: list[Evaluate], properties: Properties) -> bool | None:
    result: bool | None = True
    for evaluate in parts:
        value = evaluate(properties)
        if value is None:
            result = None
        elif not value:
            return False
    return result


def _some(parts: list[Evaluate], properties: Properties) -> bool | None:
    result: bool | None = False
    for evaluate in parts:
        value = evaluate(properties)
        if value is None:
            result = None
        elif value:
            return True
    return result


def _equal(left: Expression, right: Expression) -> Expression:
    same = _sameness(left.kind, right.kind)
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> bool | None:
        a, b = first(properties), second(properties)
        if a is None:
            return True if b is None else None
        if b is None:
            return False
        try:
            return same(a, b)
        except ValueError as error:
            raise EvaluationError(str(error)) from None

    text = f"{left.text} = {right.text}"
    if left.name is not None and right.kind is ValueType.TEXT and right.is_constant:
        return _condition(_property_is(left.name, right.constant), text, left, right)
    return _condition(evaluate, text, left, right)


def _property_is(name: str, text: str) -> Evaluate:
    """The common case `property = 'text'`, without the general path's three calls."""

    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else value == text

    return evaluate


def _property_against_whole(symbol: str, name: str, right: Expression) -> Evaluate:
    """The common case `property > number`."""
    test, read, limit = _ORDERS[symbol], _READERS[right.kind], right.evaluate({})

    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        if value is None:
            return None
        try:
            return test(read(value), limit)
        except ValueError as error:
            raise EvaluationError(str(error)) from None

    return evaluate


@cache
def _sameness(left: ValueType, right: ValueType) -> Callable[[Value, Value], bool]:
    if left is ValueType.BOOLEAN and right is ValueType.TEXT:
        # RocketMQ casts the wrong side and throws ClassCastException: `TRUE = a` matches nothing,
        # while `a = TRUE` works.
        return _boolean_against_text
    if ValueType.BOOLEAN in (left, right) and left is not right and left is not ValueType.TEXT:
        return lambda _a, _b: False
    if left is right:
        return operator.eq
    if left is ValueType.TEXT and right is ValueType.BOOLEAN:
        return lambda a, b: java_values.boolean(a) is b
    compare = _comparison(left, right)
    return lambda a, b: compare(a, b) == 0


def _boolean_against_text(_boolean: Value, text: Value) -> bool:
    raise ValueError(
        f"a condition cannot be compared with the text {text!r}; put the text on the left"
    )


@cache
def _comparison(left: ValueType, right: ValueType) -> Callable[[Value, Value], int]:
    """Return a function for the sign of left - right of two values that are not None; it raises ValueError
    for text that is not a number.
    """
    if left is ValueType.TEXT and right is ValueType.TEXT:
        double = java_values.double
        return lambda a, b: java_values.compare_doubles(double(a), double(b))
    if left is ValueType.TEXT and right in NUMBERS:
        read, compare = _READERS[right], _comparison(right, right)
        return lambda a, b: compare(read(a), b)
    if right is ValueType.TEXT and left in NUMBERS:
        read, compare = _READERS[left], _comparison(left, left)
        return lambda a, b: compare(a, read(b))
    if ValueType.DOUBLE in (left, right):
        return lambda a, b: java_values.compare_doubles(float(a), float(b))
    return lambda a, b: (a > b) - (a < b)
