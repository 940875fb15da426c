"""OnceConfig: settings of sendOnce. PocketMQ only."""

from dataclasses import dataclass

from pocketmq.remoting.settings import Settings, key


@dataclass
class OnceConfig(Settings):
    """Whether repeated sends are recognised, and among how many messages."""

    send_once: bool = key(
        False,
        name="sendOnce",
        runtime=True,
        help="Store what a client sends twice, because an answer was lost, once (docs/send-once.md). A "
        "topic's attribute sendOnce=true or false overrides it.",
    )
    send_once_window: int = key(
        600_000,
        name="sendOnceWindow",
        min=1_000,
        unit="ms",
        help="How long repetitions are recognised; at least half of it.",
    )
    send_once_keys: int = key(
        1 << 19,
        name="sendOnceKeys",
        min=2,
        max=1 << 26,
        help="Messages among which repetitions are recognised, of all topics; 40 bytes each.",
    )
