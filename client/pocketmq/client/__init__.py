"""The RocketMQ client: producers and consumers for asyncio, in pure Python.

`pocketmq.client.sync` has the same for programs without an event loop; `pocketmq.admin` administers.
"""

from pocketmq.client.acl import Credentials
from pocketmq.client.consume import ConsumeContext, ConsumeResult, Listener
from pocketmq.client.errors import (
    AnswerTimeout,
    BrokerRefused,
    CallerError,
    ConnectionBroken,
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
    TopicNotExist,
    TransientError,
    Unauthorised,
    Unreachable,
)
from pocketmq.client.heartbeat import ConsumeFromWhere, MessageModel
from pocketmq.client.producer import Producer, send_all
from pocketmq.client.push_consumer import PushConsumer
from pocketmq.client.request_reply import ReplyTimeout, reply_to
from pocketmq.client.send_result import SendResult, SendStatus
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.message import Message, MessageExt, MessageQueue, Property

__all__ = [
    "AnswerTimeout",
    "BrokerRefused",
    "CallerError",
    "ConnectionBroken",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeResult",
    "Credentials",
    "IllegalGroup",
    "IllegalMessage",
    "IllegalTopic",
    "Listener",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "MessageTooLarge",
    "NoPermission",
    "NoRoute",
    "NotRunning",
    "OutcomeUnknown",
    "PocketMQError",
    "Producer",
    "Property",
    "PushConsumer",
    "ReplyTimeout",
    "SendFailed",
    "SendOutcomeUnknown",
    "SendResult",
    "SendStatus",
    "TopicNotExist",
    "TransientError",
    "Unauthorised",
    "Unreachable",
    "reply_to",
    "send_all",
]
