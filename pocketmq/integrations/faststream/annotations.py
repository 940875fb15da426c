"""Annotations of a function's arguments: the message, and the broker that delivered it."""

from typing import Annotated

from faststream import Context

from pocketmq.integrations.faststream import broker as brokers
from pocketmq.integrations.faststream import message as messages

PocketBroker = Annotated[brokers.PocketBroker, Context("broker")]
PocketMessage = Annotated[messages.PocketMessage, Context("message")]
