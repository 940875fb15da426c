"""Router: dispatches a consumer's messages to functions, by topic and tag.

    consumer = PushConsumer("readers")

    @consumer.on("Orders", "paid || shipped", codec=JSON)
    async def moved(order: dict[str, Any]) -> None: ...

1. A function gets the message, or with a codec the value of its body; a second parameter gets the message.
   It returns a listener's result: None is success; after an exception the message is redelivered.
2. The function of a tag takes precedence over that of all messages of the topic. A message goes to one
   function.
3. The messages of a batch are processed one by one; the first that fails and those behind it are redelivered.
4. A body that its codec cannot read is dead-lettered at once, since retrying would not help.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from pocketmq.client.codecs import Codec
from pocketmq.client.consume.listener import (
    ConsumeContext,
    ConsumeResult,
    Listener,
    check_takes,
    is_coroutine_listener,
)
from pocketmq.model.message import MessageExt
from pocketmq.model.subscription import ALL, TAG, parse_tags
from pocketmq.remoting.errors import IllegalArgument

log = logging.getLogger(__name__)

Handler = Callable[..., ConsumeResult | Awaitable[ConsumeResult | None] | None]
H = TypeVar("H", bound=Handler)
_GIVE_UP = -1
_DONE = (None, ConsumeResult.SUCCESS)


@dataclass(frozen=True, slots=True)
class _Route:
    handler: Handler
    codec: Codec[Any] | None
    wants_message: bool
    is_async: bool

    def arguments(self, message: MessageExt) -> tuple[Any, ...]:
        """Return the function's arguments. Raises: ValueError for a body that the codec cannot read."""
        if self.codec is None:
            return (message,)
        value = self.codec.decode(message.body)
        return (value, message) if self.wants_message else (value,)


class CombinedSubscription(NamedTuple):
    """The combined subscription of a topic's routes."""

    expression: str
    expression_type: str


class Router:
    """Owner: a push consumer without a listener."""

    def __init__(self) -> None:
        # By topic, then by tag; every other message of the topic by "*".
        self._routes: dict[str, dict[str, _Route]] = {}
        self._asked: dict[str, CombinedSubscription] = {}

    def add(
        self,
        topic: str,
        expression: str,
        expression_type: str,
        handler: Handler,
        codec: Codec[Any] | None,
    ) -> CombinedSubscription:
        """Add a route. Returns: the topic's subscription now. Raises: IllegalArgument."""
        takes_two = codec is not None and _takes_two(handler)
        first = "message" if codec is None else "value"
        check_takes(handler, first, *(["message"] if takes_two else []))
        routes = self._routes.setdefault(topic, {})
        tags = parse_tags(expression) if expression_type == TAG else set[str]()
        taken = (tags or {ALL}) & routes.keys()
        known = self._asked.get(topic)
        if taken or (known is not None and (known.expression_type, expression_type) != (TAG, TAG)):
            raise IllegalArgument(f"{topic} {expression} already has a function")
        route = _Route(
            handler,
            codec,
            takes_two,
            is_coroutine_listener(handler),
        )
        routes.update(dict.fromkeys(tags or {ALL}, route))
        if expression_type == TAG:
            expression = ALL if ALL in routes else " || ".join(routes)
        self._asked[topic] = CombinedSubscription(expression, expression_type)
        return self._asked[topic]

    def listener(self) -> Listener:
        """Return a listener for the current routes: a coroutine function if one of them is.

        Raises: IllegalArgument without a route.
        """
        routes = [route for each in self._routes.values() for route in each.values()]
        if not routes:
            raise IllegalArgument(
                "the consumer has no listener: give it one, or functions by @consumer.on(topic)"
            )
        return self._await_all if any(each.is_async for each in routes) else self._call_all

    # ------------------------------------------------------------ a listener call

    def _call_all(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeResult | None:
        consuming = self._consume(messages, context, _called)
        try:
            consuming.send(None)
        except StopIteration as end:
            answer: ConsumeResult | None = end.value
            return answer
        raise AssertionError("a plain function cannot be awaited")

    async def _await_all(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeResult | None:
        return await self._consume(messages, context, _awaited)

    async def _consume(
        self,
        messages: list[MessageExt],
        context: ConsumeContext,
        call: Callable[[_Route, tuple[Any, ...]], Awaitable[Any]],
    ) -> ConsumeResult | None:
        for place, message in enumerate(messages):
            try:
                result = await call(*self._of(message, context, len(messages)))
            except Exception:
                if not place:
                    raise
                log.exception(
                    "a function failed, its message will be redelivered queue=%s", context.queue
                )
                result = ConsumeResult.RECONSUME_LATER
            if result not in _DONE:
                return _ended(place, context, result)
        return ConsumeResult.SUCCESS

    def _of(
        self, message: MessageExt, context: ConsumeContext, count: int
    ) -> tuple[_Route, tuple[Any, ...]]:
        """Return the function of a message, and its arguments. Raises: ValueError, LookupError."""
        routes = self._routes.get(message.topic, {})
        route = routes.get(message.tags or "") or routes.get(ALL)
        if route is None:
            raise LookupError(f"no function for topic {message.topic!r}, tags {message.tags!r}")
        try:
            return route, route.arguments(message)
        except ValueError as error:
            if count == 1:
                context.delay_level = _GIVE_UP
            raise ValueError(f"the body of message {message.msg_id} cannot be read") from error


async def _called(route: _Route, arguments: tuple[Any, ...]) -> Any:
    return route.handler(*arguments)


async def _awaited(route: _Route, arguments: tuple[Any, ...]) -> Any:
    if route.is_async:
        waiting: Any = route.handler(*arguments)
        return await waiting
    return await asyncio.to_thread(route.handler, *arguments)


def _ended(place: int, context: ConsumeContext, result: Any) -> ConsumeResult | None:
    """Return the listener's result after the message at `place` did not succeed (invariant 3)."""
    if not place:
        answer: ConsumeResult | None = result
        return answer
    context.ack_index = place - 1
    return ConsumeResult.SUCCESS


def _takes_two(handler: Handler) -> bool:
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [each for each in inspect.signature(handler).parameters.values() if each.kind in places]
    return len([each for each in given if each.default is inspect.Parameter.empty]) > 1
