"""Plain sends: those that need no look at anything but their queue; and what many of them share."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pocketmq.broker.acts.plain_topic import PlainTopic
from pocketmq.broker.acts.send import SendAsk
from pocketmq.broker.internal_append import BROKERS_FLAGS
from pocketmq.broker.once.once_topic import exempt
from pocketmq.model.message_codec import get_property, remove_property
from pocketmq.remoting.codes import RequestCode, Version
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers import SendMessageHeader, SendMessageV2Header
from pocketmq.remoting.java_number import integer
from pocketmq.store.queue.tags_code import tags_code

# By topic, as headers have it. It is cleared when topics have changed; when settings have, it is cleared and
# another one used: so nothing is sent that was prepared under other settings.
PlainTopics = dict[bytes, PlainTopic]
# (opaque, position, queue id, queue offset): a frame, or b"" for a one-way request.
AnswerOne = Callable[[int, int, int, int], bytes]
# The same of the positions of a batch.
AnswerBatch = Callable[[int, Sequence[int], int, int], bytes]


class SendFields(NamedTuple):
    """Names of header fields."""

    topic: str
    queue: str
    born: str
    properties: str
    sys_flag: str
    flag: str
    times: str
    batch: str


V1 = SendFields(
    "topic",
    "queueId",
    "bornTimestamp",
    "properties",
    "sysFlag",
    "flag",
    "reconsumeTimes",
    "batch",
)
V2 = SendFields("b", "e", "g", "i", "f", "h", "j", "m")


class PlainSends(NamedTuple):
    """What plain messages share that differ in topic, queue, time of birth and values of properties.

    properties: with %b for each of these values; tag_at: which of the values is the tag, -1: tag_code is that
    of all messages; wait: whether the sender waits for what the broker promises. once: the topics where a
    message may be a repetition; key_at: which of all values is UNIQ_KEY, -1: none, or the message is exempt.
    """

    topics: PlainTopics
    code: int
    flag: int
    sys_flag: int
    answer: AnswerOne
    properties: bytes
    tag_at: int
    tag_code: int
    wait: bool
    once: PlainTopics
    key_at: int


class PlainBatches(NamedTuple):
    """What batches share that differ in topic, queue and time of birth; properties: of all their messages."""

    topics: PlainTopics
    code: int
    sys_flag: int
    answer: AnswerBatch
    properties: str
    as_five: bool


def sent_as_five(request: RemotingCommand) -> bool:
    """Return True if a client of 5.x sent it."""
    return request.version >= Version.V5_0_0_SNAPSHOT


def plain_flags(ext: Mapping[str, str], fields: SendFields) -> tuple[int, int] | None:
    """Return sysFlag and flag; None if they are no numbers, or the message was consumed before."""
    sys_flag, flag = ext.get(fields.sys_flag, ""), ext.get(fields.flag, "")
    if ext.get(fields.times, "0") != "0":
        return None
    # Most messages have neither flag: a comparison is cheaper than a conversion.
    if sys_flag == "0" and flag == "0":
        return 0, 0
    try:
        return integer(sys_flag) & ~BROKERS_FLAGS, integer(flag)
    except ValueError:
        return None


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
        # No client writes an empty pair.
        or "\x02\x02" in text
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


def template_of(properties: bytes, names: Sequence[str]) -> tuple[bytes, int, int] | None:
    """Return `properties`, `tag_at` and `tag_code` of PlainSends; None if they have no template."""
    if not names:
        return properties.replace(b"%", b"%%"), -1, tags_code(properties)
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
    return template, names.index("TAGS") if "TAGS" in names else -1, tags_code(properties)


def key_place(properties: bytes, names: Sequence[str]) -> int:
    """Return which of these values is UNIQ_KEY; -1: none, or the message may be exempt of sendOnce."""
    if "UNIQ_KEY" not in names or exempt(properties):
        return -1
    return names.index("UNIQ_KEY")


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
