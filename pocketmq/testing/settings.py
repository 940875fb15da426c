"""The settings that a broker of a test may be given: those that exist, and RocketMQ's without effect here."""

from collections.abc import Iterable

from pocketmq.broker.broker_conf import is_known_elsewhere
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.figures.metrics_config import MetricsConfig
from pocketmq.console.config import ConsoleConfig
from pocketmq.grpc.config import GrpcConfig
from pocketmq.namesrv import NamesrvConfig
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import nearest
from pocketmq.remoting.transport.tls import TlsConfig
from pocketmq.store.store_config import StoreConfig

_GROUPS = (
    BrokerConfig,
    StoreConfig,
    TlsConfig,
    ConsoleConfig,
    MetricsConfig,
    GrpcConfig,
    NamesrvConfig,
)


def check_settings(names: Iterable[str]) -> None:
    """Raises: IllegalArgument for a name that no setting has. A broker.conf only gets a warning: it may be
    another release's; a test's settings are the test's own.
    """
    __tracebackhide__ = True
    known = {name for group in _GROUPS for name in dict(group.keys())}
    for name in names:
        if name not in known and not is_known_elsewhere(name):
            raise IllegalArgument(f"there is no setting {name!r}{nearest(name, known)}")
