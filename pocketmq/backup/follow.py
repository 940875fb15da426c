"""Brings a folder up to a running broker over the network: what `pocketmq store backup --broker` copies from.

The folder is that of a slave, which follows while this runs, and stops when it is level: the log over the
port for slaves, the tables as every slave asks for them (broker/ha). So the broker does nothing but what it
does for a slave, waits for nothing, and may be Apache's; with accounts it wants an administrator's. The
folder is kept: the next time only what is new comes. No name server and no client hears of this slave.
"""

import asyncio
import json
from collections.abc import Callable, Mapping

from pocketmq.backup.errors import BackupRefused
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.ha.config import SLAVE
from pocketmq.broker.ha.follower import Follower
from pocketmq.remoting.credentials import Credentials
from pocketmq.store import StoreConfig

_LOOK_S = 0.05
# Without a byte and without a table for so long, it is given up.
_PATIENCE_MS = 30_000
_SYNC_MS = 200


async def follow_until_level(
    address: str,
    folder: str,
    settings: Mapping[str, str],
    credentials: Credentials | None = None,
    said: Callable[[str], None] = lambda text: None,
    patience_ms: int = _PATIENCE_MS,
) -> None:
    """Copy what the broker at `ip:port` has now, and stop. settings: its own, as code 26 answers them.

    Raises: BackupRefused, OSError, StoreError.
    """
    if settings.get("brokerRole") == SLAVE:
        raise BackupRefused(
            f"{address} is a slave: name its master, or back up the slave's own folder"
        )
    host, port = address.rpartition(":")[0], int(address.rpartition(":")[2])
    config = BrokerConfig(
        broker_name=settings.get("brokerName", ""),
        broker_cluster_name=settings.get("brokerClusterName", ""),
        broker_id=1,
        broker_role=SLAVE,
        master_address=address,
        ha_master_address=f"{host}:{int(settings.get('haListenPort', '0')) or port + 1}",
        listen_address="127.0.0.1",
        listen_port=0,
        slave_sync_interval=_SYNC_MS,
    )
    if credentials is not None:
        config.inner_client_authentication_credentials = json.dumps(
            {"accessKey": credentials.access_key, "secretKey": credentials.secret_key}
        )
    async with Broker(config, StoreConfig(store_path_root_dir=folder)) as broker:
        await _Level(broker, said, patience_ms).wait()


class _Level:
    """Waits for a slave to have what its master had when this began."""

    def __init__(self, broker: Broker, said: Callable[[str], None], patience_ms: int) -> None:
        self._replication = broker.parts.services.replication
        self._store = broker.parts.messages.store
        self._monotonic_ms = broker.clock.monotonic_ms
        self._said = said
        self._patience_ms = patience_ms
        self._seen = (-1, -1)
        self._seen_ms = self._monotonic_ms()

    @property
    def _follower(self) -> Follower:
        follower = self._replication.follower
        assert follower is not None
        return follower

    @property
    def _rounds(self) -> int:
        metadata = self._replication.metadata
        return 0 if metadata is None else metadata.rounds

    async def wait(self) -> None:
        """Raises: BackupRefused if nothing comes any more."""
        await self._until(lambda: self._follower.state.connected)
        end = await self._follower.master.end()
        self._said(f"following from {self._store.commit_log_max_position} to {end}")
        await self._until(lambda: self._store.commit_log_max_position >= end)
        # One that begins now: a round that is under way may have begun before the log was here.
        rounds = self._rounds + 2
        await self._until(lambda: self._rounds >= rounds)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._look()
            await asyncio.sleep(_LOOK_S)

    def _look(self) -> None:
        seen, now_ms = (self._store.commit_log_max_position, self._rounds), self._monotonic_ms()
        if seen != self._seen:
            self._seen, self._seen_ms = seen, now_ms
        elif now_ms - self._seen_ms > self._patience_ms:
            trouble = self._replication.trouble or "its tables do not come"
            raise BackupRefused(f"nothing comes from the broker any more: {trouble}")
