"""Subscriptions as people write them, to texts as in the delivery record."""

from collections.abc import Iterable

from pocketmq.model.sql92 import SelectorError, compile_expression
from pocketmq.model.subscription import TAG, parse_tags
from pocketmq.remoting.errors import IllegalArgument

_SQL92 = "SQL92"


def texts_of(subscriptions: Iterable[str]) -> tuple[str, ...]:
    """Return the texts, sorted. Raises: IllegalArgument for one that cannot be read.

    >>> texts_of(["B || A", "SQL92 a > 1", "*"])
    ('SQL92 a > 1', 'TAG *', 'TAG B || A')
    """
    return tuple(sorted({_text_of(each.strip()) for each in subscriptions}))


def _text_of(subscription: str) -> str:
    kind, _, expression = subscription.partition(" ")
    try:
        if kind == _SQL92:
            compile_expression(expression)
            return subscription
        if not parse_tags(subscription) and subscription != "*":
            raise IllegalArgument("it names no tag")
    except (IllegalArgument, SelectorError) as error:
        raise IllegalArgument(
            f'{subscription!r} is no subscription like "TagA || TagB", "SQL92 a > 1" or *: {error}'
        ) from error
    return f"{TAG} {subscription}"
