"""Outside: what replication uses of a broker that serves."""

import asyncio
from dataclasses import dataclass

from pocketmq.broker.nameservers.registration import Registration
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.remoting.transport.server import RemotingServer


@dataclass(frozen=True, slots=True)
class Outside:
    """The parts that exist only while a broker serves: its entry at name servers, its clients, its own
    requests, its tasks.
    """

    registration: Registration
    server: RemotingServer
    client: RemotingClient
    tasks: asyncio.TaskGroup
