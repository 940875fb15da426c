"""A broker.conf: the settings of a broker and of its store in one file.

A real one also has settings for features that PocketMQ lacks (thread pools, commercial counters): each is
logged once and never makes reading fail.
"""

import logging
from collections.abc import Mapping

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.ha.config import check_role
from pocketmq.remoting.settings import nearest
from pocketmq.store import StoreConfig

log = logging.getLogger(__name__)

# Names that real configuration files hold and that have nothing to act on here.
_IGNORED_PREFIXES = ("commercial", "rocketmqHome", "messageStorePlugIn")
_IGNORED_SUFFIXES = ("ThreadPoolNums", "QueueCapacity", "ThreadPoolQueueCapacity")


def read_broker_conf(properties: Mapping[str, str]) -> tuple[BrokerConfig, StoreConfig]:
    """Parse the text of a broker.conf into both groups of settings (settings.parse_properties).

    Unknown names are logged, with the nearest known one. Raises: IllegalArgument for a value that is
    not allowed.
    """
    _warn_of_unknown(properties)
    config = BrokerConfig.from_properties(properties)
    check_role(config)
    return config, StoreConfig.from_properties(properties)


def _warn_of_unknown(properties: Mapping[str, str]) -> None:
    """Log each name that neither the broker nor the store knows."""
    known = {**BrokerConfig.keys(), **StoreConfig.keys()}
    for name in properties:
        if name in known:
            continue
        if name.startswith(_IGNORED_PREFIXES) or name.endswith(_IGNORED_SUFFIXES):
            log.info("setting has no effect in PocketMQ: %s", name)
        else:
            log.warning("ignored an unknown setting: %s%s", name, nearest(name, known))
