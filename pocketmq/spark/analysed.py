"""What a query over all our columns uses: columns, and conditions that the index can answer.

1. A condition counts if every read of the messages in the query has it, in a filter with nothing but
   projections between: a query may name the messages several times.
2. Spark still applies every condition itself: the conditions found here may pass more rows, never fewer.
3. A value is computed here if all of it is constant; the current time is not.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pocketmq.bulk.columns.schema import COLUMNS
from pocketmq.spark.pushdown import KINDS, Pushed, narrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What costs least where a query looks at no column at all, as a count does.
_CHEAPEST = "queueId"
# Plans that hand on rows one by one: a filter above them is one below them.
_ROW_BY_ROW = ("Filter", "Project", "SubqueryAlias", "View")
_MIRRORED = {
    "EqualTo": "EqualTo",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
}
_TYPES = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "tags": "string",
    "keys": "string",
    "storeTimestamp": "timestamp",
}


# As Spark writes one: name#number, with a suffix for some types.
_ATTRIBUTE = re.compile(r"([^,#]*)#(\d+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US_MAX = 60_000_000_000_000_000


class _Condition(NamedTuple):
    column: str
    kind: str
    value: Any


class Analysed:
    """The plan of a query, whose messages are an empty frame of all columns."""

    def __init__(self, frame: "DataFrame") -> None:
        plan = frame._jdf.queryExecution().analyzed()
        self._used = set(_numbers(plan.output()))
        # Our columns by the number of the attribute.
        self._ours: dict[int, str] = {}
        # Conditions of each read of the messages.
        self._conditions: list[set[_Condition]] = []
        waiting: list[tuple[Any, tuple[Any, ...]]] = [(plan, ())]
        while waiting:
            node, filters = waiting.pop()
            waiting += (
                (below, filters_below) for below, filters_below in self._step(node, filters)
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the used columns in our order; at least one."""
        names = {self._ours[number] for number in self._used if number in self._ours}
        return tuple(c for c in COLUMNS if c in names) or (_CHEAPEST,)

    @property
    def pushed(self) -> Pushed:
        """Return the conditions that the index can answer (invariant 1)."""
        pushed = Pushed()
        for one in set.intersection(*self._conditions) if self._conditions else ():
            pushed = narrow(pushed, one.kind, one.column, one.value) or pushed
        return pushed

    def _step(self, node: Any, filters: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """Note what one node uses. Yields: the plans below it, with the filters that apply to their rows."""
        name = node.nodeName()
        for below in _each(node.subqueries()):
            self._used |= set(_numbers(below.output()))
            yield below, ()
        children = list(_each(node.children()))
        if name == "CTERelationDef":
            # Its users number its columns anew.
            self._used |= {n for child in children for n in _numbers(child.output())}
        if name == "Project":
            # Views select every column by name; a column that no node above reads is not used.
            for one in _each(node.projectList()):
                if one.exprId().id() in self._used:
                    self._used |= set(_numbers(one.references().toSeq()))
        elif children:
            self._used |= set(_numbers(node.references().toSeq()))
        else:
            self._read(node, filters)
        if name == "Filter":
            filters = (*filters, node.condition())
        elif name not in _ROW_BY_ROW:
            filters = ()
        for child in children:
            yield child, filters

    def _read(self, leaf: Any, filters: tuple[Any, ...]) -> None:
        output = dict(_named(leaf.output()))
        if list(output.values()) != list(COLUMNS):
            return
        self._ours |= output
        found = (_condition(part, output) for one in filters for part in _conjuncts(one))
        self._conditions.append({one for one in found if one is not None})


def _conjuncts(expression: Any) -> Iterator[Any]:
    """Yield a, b and c of `a AND b AND c`."""
    waiting = [expression]
    while waiting:
        one = waiting.pop()
        if _kind(one) == "And":
            waiting += [one.left(), one.right()]
        else:
            yield one


def _condition(expression: Any, ours: dict[int, str]) -> _Condition | None:
    """Return the condition if it compares one of our columns with constants."""
    kind = _kind(expression)
    if kind == "In":
        column = _column(expression.value(), ours)
        values = [_value(one, column) for one in _each(expression.list())] if column else [None]
        return None if None in values else _Condition(column, kind, tuple(values))
    if kind not in KINDS:
        return None
    column, other = _column(expression.left(), ours), expression.right()
    if not column:
        column, other = _column(expression.right(), ours), expression.left()
        kind = _MIRRORED[kind]
    value = _value(other, column) if column else None
    return None if value is None else _Condition(column, kind, value)


def _column(expression: Any, ours: dict[int, str]) -> str:
    """Return the name of our column that an expression is; else nothing."""
    name = (
        ours.get(expression.exprId().id(), "") if _kind(expression) == "AttributeReference" else ""
    )
    return name if name in _TYPES else ""


def _value(expression: Any, column: str) -> Any:
    """Return a constant to compare a column with; None for anything else, or if Spark cannot tell yet."""
    leaves = _each(expression.collectLeaves())
    constant = (
        expression.foldable()
        and expression.deterministic()
        and expression.dataType().simpleString() == _TYPES[column]
        and all(_kind(leaf) == "Literal" for leaf in leaves)
    )
    if not constant:
        return None
    try:
        found = expression.eval(None)
    except (Py4JError, PySparkException):
        return None
    if _TYPES[column] == "string":
        return None if found is None else str(found.toString())
    if column == "storeTimestamp" and found is not None:
        # Years that Python does not know are left to Spark.
        in_range = abs(found) < _US_MAX
        return _EPOCH + timedelta(microseconds=found) if in_range else None
    return found


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _numbers(attributes: Any) -> Iterator[int]:
    return (number for number, _ in _named(attributes))


def _named(attributes: Any) -> list[tuple[int, str]]:
    """Numbers and names of attributes: by their text, since each call into the JVM costs its 0.1 ms.

    A name with "#" or "," in it shows more numbers than there are; columns of ours have none.
    """
    found = _ATTRIBUTE.findall(attributes.mkString(","))
    return [(int(number), name) for name, number in found]


def _each(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    for number in range(sequence.size()):
        yield sequence.apply(number)
