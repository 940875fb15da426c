"""The client instances of this process: one per event loop and client id, shared by all clients with that id.

The last one to leave shuts the instance down. Source: MQClientManager, RocketMQ 4.9.7.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pocketmq.client.errors import CallerError
from pocketmq.client.options import ClientOptions

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance


class InstanceConflict(CallerError):
    """Two clients with the same instance name differ in what an instance has only once."""


@dataclass(slots=True)
class _Shared:
    instance: "MQClientInstance"
    starting: asyncio.Lock
    users: int = 0
    started: bool = False


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Shared]] = WeakKeyDictionary()


async def acquire(client_id: str, config: ClientOptions) -> "MQClientInstance":
    """Return the started instance of that client id; hand it back with `release`.

    Raises: InstanceConflict if it exists with other name servers, credentials or TLS.
    """
    # Here, not at the top: connections, TLS and header tables take longer to import than all the rest.
    from pocketmq.client.network.instance import MQClientInstance

    table = _loops.setdefault(asyncio.get_running_loop(), {})
    shared = table.get(client_id)
    if shared is None:
        instance = MQClientInstance(client_id, config)
        shared = table[client_id] = _Shared(instance, asyncio.Lock())
    elif shared.instance.config.connection_key != config.connection_key:
        raise InstanceConflict(
            f"client {client_id} already exists with other name servers, credentials, TLS or "
            f"header encoding: give this one another instance_name"
        )
    shared.users += 1
    try:
        async with shared.starting:
            if not shared.started:
                await shared.instance.start()
                shared.started = True
    except BaseException:
        shared.users -= 1
        if shared.users == 0:
            table.pop(client_id, None)
        raise
    return shared.instance


async def release(instance: "MQClientInstance") -> None:
    """Leave the instance; the last client shuts it down."""
    table = _loops.get(asyncio.get_running_loop(), {})
    shared = table.get(instance.client_id)
    if shared is None or shared.instance is not instance:
        return
    shared.users -= 1
    if shared.users == 0:
        del table[instance.client_id]
        await instance.shutdown()


def running_instances() -> "list[MQClientInstance]":
    """Return those of all event loops that were not shut down. For a look from another thread."""
    return [shared.instance for table in list(_loops.values()) for shared in list(table.values())]
