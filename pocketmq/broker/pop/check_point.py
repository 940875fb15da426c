"""CheckPoint: what one pop took from one queue, and the records of rmq_sys_REVIVE_LOG_CLUSTER.

    tag  body (JSON)
    ck   {"bm": acked bits, "bn": broker, "c": group, "d": [offset - so, ...], "it": invisible ms, "n": count,
          "pt": pop time ms, "q": queue id, "reviveTime": pt + it, "ro": 0, "so": start offset, "sp": suspend,
          "t": topic}
    ack  {"ao": offset, "bn", "c", "pt", "q", "so", "t"}           one message of that check point
    bAck {"ao": -1, "aol": [offset, ...], "bn", "c", "pt", "q", "so", "t"}

1. (t, c, q, so, pt, bn) identifies a check point. A ck with the name of an earlier one replaces it; ours
   never has the name of one in flight: of two within a millisecond the second gets the next one as its pt.
2. Bit i of bm belongs to the i-th offset; it is a Java int, so bit 31 is its sign.
Source: PopCheckPoint, AckMsg, BatchAckMsg, PopMessageProcessor, RocketMQ 5.3.3 and 5.5.0; disk.md 10.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pocketmq.remoting import fastjson, json_codec
from pocketmq.remoting.transport.peer import Peer

CHECK_POINT_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"
# For how long a consumer that lives keeps what it has received: the proxy's renewMaxTimeMillis.
HELD_MS_MAX = 3 * 3_600_000
# One bit each in a Java int.
OFFSETS_MAX = 32
# By how much a pop time may be ahead of the clock because earlier ones were taken (invariant 1).
MOMENT_MS = 1_000


class CheckPointName(NamedTuple):
    """The identity of a check point (invariant 1)."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_ms: int
    broker_name: str


class CheckPoint:
    """One check point in flight.

    Attributes: name; invisible_ms; offsets in the queue, ascending; acked, bits in their order;
    revive_queue and revive_offset: where its record is in the revive log (-1 before); is_done: it needs no
    further work; suspend: no client tried to consume its messages; tries: how often copying its due
    messages failed; holder: the client that keeps its messages while it is connected (ours).
    """

    __slots__ = (
        "acked",
        "holder",
        "invisible_ms",
        "is_done",
        "name",
        "offsets",
        "revive_offset",
        "revive_queue",
        "suspend",
        "tries",
    )

    def __init__(
        self, name: CheckPointName, invisible_ms: int, offsets: Sequence[int], acked: int = 0
    ) -> None:
        self.name = name
        self.invisible_ms = invisible_ms
        self.offsets = tuple(offsets)
        self.acked = acked
        self.revive_queue = self.revive_offset = -1
        self.is_done = False
        self.suspend = False
        self.holder: Peer | None = None
        self.tries = 0

    def __repr__(self) -> str:
        return f"<CheckPoint {self.name} offsets={self.offsets} acked={self.acked:b}>"

    @property
    def revive_ms(self) -> int:
        """Return the wall time from which its messages may be redelivered."""
        return self.name.pop_ms + self.invisible_ms

    def is_held(self, now_ms: int) -> bool:
        """Return True while its holder is connected and has not held it for too long."""
        holder = self.holder
        return holder is not None and not holder.closed and now_ms - self.name.pop_ms < HELD_MS_MAX

    @property
    def is_acked(self) -> bool:
        """Return True if all of it is acknowledged."""
        return self.acked == (1 << len(self.offsets)) - 1

    @property
    def unacked(self) -> list[int]:
        """Return the offsets not yet acknowledged."""
        return [offset for i, offset in enumerate(self.offsets) if not self.acked >> i & 1]

    def is_out(self, offset: int) -> bool:
        """Return True if a message belongs to this check point and is not acknowledged."""
        try:
            return not self.acked >> self.offsets.index(offset) & 1
        except ValueError:
            return False

    def ack(self, offset: int) -> bool:
        """Set an offset's bit; False if it does not belong here or was acknowledged before."""
        try:
            bit = 1 << self.offsets.index(offset)
        except ValueError:
            return False
        if self.acked & bit:
            return False
        self.acked |= bit
        return True

    def body(self) -> bytes:
        """Return the record's body."""
        name = self.name
        bits = self.acked - (1 << 32) if self.acked >> 31 & 1 else self.acked
        return json_codec.dumps(
            {
                "bm": bits,
                "bn": name.broker_name,
                "c": name.group,
                "d": [offset - name.start_offset for offset in self.offsets],
                "it": self.invisible_ms,
                "n": len(self.offsets),
                "pt": name.pop_ms,
                "q": name.queue_id,
                "reviveTime": self.revive_ms,
                "ro": 0,
                "so": name.start_offset,
                "sp": self.suspend,
                "t": name.topic,
            }
        )

    def unique_key(self) -> str:
        """Return UNIQ_KEY of the record."""
        name = self.name
        return (
            f"{name.topic}@{name.queue_id}@{name.start_offset}@{name.group}@{name.pop_ms}"
            f"@{name.broker_name}@{CHECK_POINT_TAG}"
        )

    @classmethod
    def from_body(cls, body: bytes, broker_name: str) -> "CheckPoint":
        """Parse a record; `broker_name` applies where it names none.

        Raises: KeyError, TypeError, ValueError (FastjsonError too) if it is not a check point.
        """
        data = _object(body)
        name = _name(data, broker_name)
        differences = data.get("d") or range(int(data["n"]))
        offsets = [name.start_offset + int(difference) for difference in differences]
        if not 0 < len(offsets) <= OFFSETS_MAX:
            raise ValueError(f"a check point has 1 to {OFFSETS_MAX} offsets, not {len(offsets)}")
        bits = int(data.get("bm") or 0) & (1 << len(offsets)) - 1
        point = cls(name, int(data["it"]), offsets, bits)
        point.suspend = data.get("sp") is True
        return point


class Ack(NamedTuple):
    """Acknowledged messages of one check point."""

    name: CheckPointName
    offsets: tuple[int, ...]

    @property
    def tag(self) -> str:
        return ACK_TAG if len(self.offsets) == 1 else BATCH_ACK_TAG

    def body(self) -> bytes:
        """Return the record's body."""
        name = self.name
        single = len(self.offsets) == 1
        data = {
            "ao": self.offsets[0] if single else -1,
            "aol": list(self.offsets),
            "bn": name.broker_name,
            "c": name.group,
            "pt": name.pop_ms,
            "q": name.queue_id,
            "so": name.start_offset,
            "t": name.topic,
        }
        if single:
            del data["aol"]
        return json_codec.dumps(data)

    def unique_key(self) -> str:
        """Return UNIQ_KEY of the record; a batch has -1 as its offset, and the suffix of a single ack."""
        name, offset = self.name, self.offsets[0] if len(self.offsets) == 1 else -1
        return (
            f"{name.topic}@{name.queue_id}@{offset}@{name.group}@{name.pop_ms}@{name.broker_name}"
            f"@{ACK_TAG}"
        )

    @classmethod
    def from_body(cls, body: bytes, broker_name: str) -> "Ack":
        """Parse a record of either tag. Raises: KeyError, TypeError, ValueError."""
        data = _object(body)
        offsets = data["aol"] if "aol" in data else [data["ao"]]
        return cls(_name(data, broker_name), tuple(int(offset) for offset in offsets))


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        data = fastjson.loads(body)
    except fastjson.FastjsonError as error:
        raise ValueError(str(error)) from error
    if not isinstance(data, Mapping):
        raise ValueError("a record of the revive log is not a JSON object")
    return data


def _name(data: Mapping[str, Any], broker_name: str) -> CheckPointName:
    return CheckPointName(
        str(data["t"]),
        str(data["c"]),
        int(data["q"]),
        int(data["so"]),
        int(data["pt"]),
        str(data.get("bn") or broker_name),
    )
