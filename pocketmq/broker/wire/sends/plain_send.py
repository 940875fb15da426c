"""Plain messages: sends that need no look at anything but their queue; and the values that many share."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pocketmq.broker.acts.send import SendAsk
from pocketmq.broker.figures.stats import PutCounter
from pocketmq.broker.internal_append import BROKERS_FLAGS
from pocketmq.model.message_codec import get_property, remove_property
from pocketmq.remoting.codes import RequestCode, Version
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers import SendMessageHeader, SendMessageV2Header
from pocketmq.remoting.java_number import integer, long
from pocketmq.store.queue.tags_code import tags_code

# As the short way finds them in a header: a look-up is quicker than int(), which takes more than numbers.
QUEUE_IDS = {b"%d" % number: number for number in range(1_024)}


class Target:
    """A topic as the short path needs it: its queue count, and a counter per queue."""

    __slots__ = ("counters", "queue_count")

    def __init__(self, queue_count: int) -> None:
        self.queue_count = queue_count
        self.counters: list[PutCounter | None] = [None] * queue_count


class Plain(NamedTuple):
    """What plain messages have in common; as_five: a client of 5.x sent them."""

    code: RequestCode
    sys_flag: int
    flag: int
    as_five: bool


class Template(NamedTuple):
    """Properties of which some values differ from message to message.

    text: with %b for each of these; tag_at: which of them is the tag, -1: code is that of all messages; wait:
    whether the sender waits for what the broker promises.
    """

    text: bytes
    tag_at: int
    code: int
    wait: bool


class AlikeSends(NamedTuple):
    """Values that plain messages share whose headers were cut by place.

    It ends when target is no longer the topic's. answer(opaque, position, queue_id, queue_offset): its frame.
    """

    plain: Plain
    topic: str
    target: Target
    answer: Callable[[int, int, int, int], bytes]
    properties: Template


class AlikeBatchSends(NamedTuple):
    """The same of batches; answer(opaque, positions, queue_id, queue_offset); properties: of all messages."""

    plain: Plain
    topic: str
    target: Target
    answer: Callable[[int, Sequence[int], int, int], bytes]
    properties: str


def stored_properties(text: str, more: bytes, *, as_five: bool) -> tuple[bytes, bool] | None:
    """Return the properties that are stored, and whether the sender waits for what the broker promises.

    more: what the broker adds. Returns: None if this is no plain message.
    """
    if (
        "DELAY\x01" in text
        or "TRAN_MSG\x01" in text
        or "CLUSTER\x01" in text
        or "POP_CK\x01" in text
        or "TIMER_D" in text
    ):
        return None
    wait = True
    # Where the official client puts WAIT=true, most of the time.
    size = len(text)
    text = text.replace("\x02WAIT\x01true\x02", "\x02", 1)
    if "WAIT\x01" in text:
        if len(text) != size or text.count("WAIT\x01") > 1:
            # Named twice: no client's map does that, and the act knows what it means.
            return None
        text, wait = _without_wait(text)
    if not text or (as_five and "MSG_REGION\x01" in text):
        return None
    properties = text.encode()
    return properties + (more if properties[-1] != 2 else more[1:]), wait


def template_of(properties: bytes, names: Sequence[str], *, wait: bool) -> Template | None:
    """Return the template of messages that differ in these properties; None if they have no template."""
    values: list[bytes] = []
    pairs: list[bytes] = []
    found: list[bytes] = []
    for pair in properties.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        found.append(name)
        if name.decode() in names:
            values.append(value)
            pairs.append(name.replace(b"%", b"%%") + b"\x01%b")
        else:
            pairs.append(pair.replace(b"%", b"%%"))
    template = b"\x02".join(pairs)
    # Clients never write properties this irregular: they get no template.
    if len(set(found)) != len(found) or len(values) != len(names):
        return None
    if template % tuple(values) != properties:
        return None
    tag_at = names.index("TAGS") if "TAGS" in names else -1
    return Template(template, tag_at, tags_code(properties), wait)


def place_of(request: RemotingCommand, fields: Sequence[str]) -> tuple[str, int, int, str] | None:
    """Return topic, queue id, time of birth and properties; None if one is missing, or not a number."""
    try:
        topic, queue, born, text = [request.ext[name] for name in fields]  # type: ignore[index]
        return topic, integer(queue), long(born), text
    except (KeyError, TypeError, ValueError):
        return None


def plain_v2(request: RemotingCommand) -> "Plain | None":
    ext = request.ext or {}
    if ext.get("m") == "true" or ext.get("j", "0") != "0":
        return None
    return _plain(request, ext.get("f", ""), ext.get("h", ""))


def plain_batch(request: RemotingCommand) -> "Plain | None":
    ext = request.ext or {}
    # The flags are those of the messages.
    return _plain(request, ext.get("f", ""), "0") if ext.get("j", "0") == "0" else None


def plain_v1(request: RemotingCommand) -> "Plain | None":
    ext = request.ext or {}
    if ext.get("batch") == "true" or ext.get("reconsumeTimes", "0") != "0":
        return None
    return _plain(request, ext.get("sysFlag", ""), ext.get("flag", ""))


def _plain(request: RemotingCommand, sys_flag: str, flag: str) -> "Plain | None":
    """Return what similar plain messages have in common; None if the flags are not numbers."""
    as_five = request.version >= Version.V5_0_0_SNAPSHOT
    # Most messages have neither flag: a comparison is cheaper than a conversion.
    if sys_flag == "0" and flag == "0":
        return _WITHOUT_FLAGS[request.code, as_five]
    try:
        code = RequestCode(request.code)
        return Plain(code, integer(sys_flag) & ~BROKERS_FLAGS, integer(flag), as_five)
    except ValueError:
        return None


_WITHOUT_FLAGS: dict[tuple[int, bool], Plain] = {
    (code, as_five): Plain(code, 0, 0, as_five)
    for code in (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
    )
    for as_five in (False, True)
}


def _without_wait(text: str) -> tuple[str, bool]:
    """Return the properties without WAIT, and whether it was absent or true.

    >>> _without_wait("KEYS\\x01k\\x02WAIT\\x01true")
    ('KEYS\\x01k', True)
    >>> _without_wait("WAIT\\x01false\\x02KEYS\\x01k\\x02")
    ('KEYS\\x01k\\x02', False)
    >>> _without_wait("XWAIT\\x01true")
    ('XWAIT\\x01true', True)
    """
    if text.endswith("\x02WAIT\x01true"):
        return text[:-10], True
    properties = text.encode()
    wait = get_property(properties, b"WAIT") in (None, b"true")
    return remove_property(properties, b"WAIT").decode(), wait


def parse_send(request: RemotingCommand) -> SendAsk:
    """Parse the header of a send or of a reply, by its code."""
    if request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
        return SendMessageHeader.parse(request.ext)
    return SendMessageV2Header.parse(request.ext)
