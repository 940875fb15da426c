"""Replication: what a broker does for the others of its name; what has sockets begins and ends here."""

import socket

from pocketmq.broker.ha.listener import HaListener
from pocketmq.broker.parts import Messages, Node

# How long a master that stops waits for its slaves to have the end of the log.
STOP_MS = 3_000


class Replication:
    """As a master: the port for slaves."""

    def __init__(self, node: Node, messages: Messages) -> None:
        self._side_tasks = messages.store.side_tasks
        self.replicas = messages.promise.replicas
        self._listener = HaListener(node.config, node.clock, messages.store, self.replicas)

    async def run(self) -> None:
        """Send to slaves what they lack, until cancelled."""
        await self._side_tasks.repeat("replicas", self._listener.round)

    async def start(self, sock: socket.socket) -> None:
        """Let slaves in."""
        await self._listener.listen(sock)

    async def stop(self) -> None:
        """Nothing is appended any more: the slaves get the rest, and are let go."""
        await self._listener.finish(STOP_MS)
        await self._listener.close()
