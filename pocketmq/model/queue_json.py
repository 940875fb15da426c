"""MessageQueue in JSON bodies: as an object, and as the object literal that is a map's key."""

from typing import Any

from pocketmq.model.message import MessageQueue
from pocketmq.remoting.fastjson import FastjsonError, ObjectKey
from pocketmq.remoting.java_number import number


def message_queue(data: Any) -> MessageQueue:
    """Parse a queue from its JSON object or object key. Raises: FastjsonError."""
    try:
        return MessageQueue(
            str(data.get("topic")), str(data.get("brokerName")), number(data.get("queueId") or 0)
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise FastjsonError(f"{data!r} does not name a queue") from error


def queue_json(queue: MessageQueue) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def queue_key(queue: MessageQueue) -> ObjectKey:
    """Return the queue as the key of a map (wire.md trap 1)."""
    return ObjectKey.of(**queue_json(queue))
