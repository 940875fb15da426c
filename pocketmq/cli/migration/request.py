"""What `pocketmq migrate --from` was asked for, and the file that its broker begins with."""

from dataclasses import dataclass
from pathlib import Path

from pocketmq.broker.ha.config import SLAVE
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.servers.server_config import read_file


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """The request. name: the source's; config: a file with more settings for this broker."""

    name_servers: str
    name: str
    data: str
    config: str | None = None
    port: int | None = None
    route_ms: int = 0
    stop_command: str | None = None
    yes: bool = False


def conf_in(data: str) -> Path:
    """Return DIR/broker.conf. Raises: CannotBegin if it is a master's."""
    path = Path(data).absolute() / "broker.conf"
    if path.exists() and read_file(str(path)).get("brokerRole", SLAVE) != SLAVE:
        raise CannotBegin(
            f"{path} belongs to a master, so that migration is complete; start the broker with: "
            f"pocketmq broker -c {path}"
        )
    return path
