"""The RocketMQ client: producers and consumers for asyncio, in pure Python.

`pocketmq.client.sync` is the same for programs without an event loop; `pocketmq.admin` is for administration.
Names are loaded on first use, so that importing this package costs nothing.
"""

from typing import TYPE_CHECKING

from pocketmq.remoting.lazy_names import lazy_names

if TYPE_CHECKING:
    from pocketmq.client.codecs import JSON, MSGPACK, TEXT, Codec, Model
    from pocketmq.client.consume.allocate import (
        AllocateStrategy,
        averagely,
        averagely_by_circle,
        by_config,
        by_machine_room,
        consistent_hash,
        machine_room_nearby,
    )
    from pocketmq.client.consume.listener import ConsumeContext, ConsumeResult, Listener
    from pocketmq.client.errors import (
        AnswerTimeout,
        BrokerRefused,
        CallerError,
        ConnectionBroken,
        ForkedClient,
        IllegalGroup,
        IllegalMessage,
        IllegalTopic,
        MessageTooLarge,
        NoPermission,
        NoRoute,
        NotRunning,
        OutcomeUnknown,
        SendFailed,
        SendOutcomeUnknown,
        SubscriptionIllegal,
        TopicNotExist,
        TransientError,
        Unauthorised,
        Unreachable,
    )
    from pocketmq.client.lite_pull_consumer import LitePullConsumer
    from pocketmq.client.network.heartbeat import ConsumeFromWhere, MessageModel
    from pocketmq.client.producer import Producer, send_all
    from pocketmq.client.pull.pull_result import PullResult, PullStatus
    from pocketmq.client.pull_consumer import PullConsumer
    from pocketmq.client.push_consumer import PushConsumer
    from pocketmq.client.request_reply import ReplyTimeout, reply_to
    from pocketmq.client.send.result import SendResult, SendStatus
    from pocketmq.client.simple_consumer import SimpleConsumer
    from pocketmq.client.transaction import TransactionProducer, TransactionResult, TransactionState
    from pocketmq.model.message import Message, MessageExt, MessageQueue, Property
    from pocketmq.remoting.credentials import Credentials
    from pocketmq.remoting.errors import PocketMQError
    from pocketmq.remoting.flags import Compression

__all__ = [
    "JSON",
    "MSGPACK",
    "TEXT",
    "AllocateStrategy",
    "AnswerTimeout",
    "BrokerRefused",
    "CallerError",
    "Codec",
    "Compression",
    "ConnectionBroken",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeResult",
    "Credentials",
    "ForkedClient",
    "IllegalGroup",
    "IllegalMessage",
    "IllegalTopic",
    "Listener",
    "LitePullConsumer",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "MessageTooLarge",
    "Model",
    "NoPermission",
    "NoRoute",
    "NotRunning",
    "OutcomeUnknown",
    "PocketMQError",
    "Producer",
    "Property",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReplyTimeout",
    "SendFailed",
    "SendOutcomeUnknown",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "SubscriptionIllegal",
    "TopicNotExist",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "TransientError",
    "Unauthorised",
    "Unreachable",
    "averagely",
    "averagely_by_circle",
    "by_config",
    "by_machine_room",
    "consistent_hash",
    "machine_room_nearby",
    "reply_to",
    "send_all",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "pocketmq.client.consume.allocate": (
            "AllocateStrategy",
            "averagely",
            "averagely_by_circle",
            "by_config",
            "by_machine_room",
            "consistent_hash",
            "machine_room_nearby",
        ),
        "pocketmq.client.codecs": (
            "JSON",
            "MSGPACK",
            "TEXT",
            "Codec",
            "Model",
        ),
        "pocketmq.client.consume.listener": (
            "ConsumeContext",
            "ConsumeResult",
            "Listener",
        ),
        "pocketmq.client.errors": (
            "AnswerTimeout",
            "BrokerRefused",
            "CallerError",
            "ConnectionBroken",
            "ForkedClient",
            "IllegalGroup",
            "IllegalMessage",
            "IllegalTopic",
            "MessageTooLarge",
            "NoPermission",
            "NoRoute",
            "NotRunning",
            "OutcomeUnknown",
            "SendFailed",
            "SendOutcomeUnknown",
            "SubscriptionIllegal",
            "TopicNotExist",
            "TransientError",
            "Unauthorised",
            "Unreachable",
        ),
        "pocketmq.client.network.heartbeat": (
            "ConsumeFromWhere",
            "MessageModel",
        ),
        "pocketmq.client.lite_pull_consumer": ("LitePullConsumer",),
        "pocketmq.client.producer": (
            "Producer",
            "send_all",
        ),
        "pocketmq.client.pull_consumer": ("PullConsumer",),
        "pocketmq.client.pull.pull_result": (
            "PullResult",
            "PullStatus",
        ),
        "pocketmq.client.push_consumer": ("PushConsumer",),
        "pocketmq.client.request_reply": (
            "ReplyTimeout",
            "reply_to",
        ),
        "pocketmq.client.send.result": (
            "SendResult",
            "SendStatus",
        ),
        "pocketmq.client.simple_consumer": ("SimpleConsumer",),
        "pocketmq.client.transaction": (
            "TransactionProducer",
            "TransactionResult",
            "TransactionState",
        ),
        "pocketmq.remoting.credentials": ("Credentials",),
        "pocketmq.remoting.errors": ("PocketMQError",),
        "pocketmq.remoting.flags": ("Compression",),
        "pocketmq.model.message": (
            "Message",
            "MessageExt",
            "MessageQueue",
            "Property",
        ),
    },
)
