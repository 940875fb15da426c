"""A broker.conf: the settings of a broker and of its store in one file.

A real one also has settings for features that PocketMQ lacks (thread pools, commercial counters): each is
logged once and never makes reading fail. Only a broker that shares its name with others by rules that
PocketMQ lacks is refused: each of them would be a master, and take messages of its own. With a controller the
role and the id are not the file's.
"""

import logging
from collections.abc import Mapping

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.ha.config import check_role
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import has_no_effect, nearest
from pocketmq.store import StoreConfig

log = logging.getLogger(__name__)

# Besides rocketmq_settings.py: names of releases that are not listed there.
_IGNORED_SUFFIXES = ("ThreadPoolNums", "QueueCapacity", "ThreadPoolQueueCapacity")
# Older names of settings.
_ALIASES = {"haSlaveFallbehindMax": "haMaxGapNotInSync"}
# By which other brokers of its name RocketMQ finds the master.
_ELECTIONS = {
    "enableDLegerCommitLog": "DLedger",
}
_BY_CONTROLLER = ("brokerId", "brokerRole")
_CONTAINER = "brokerConfigPaths"


def read_broker_conf(properties: Mapping[str, str]) -> tuple[BrokerConfig, StoreConfig]:
    """Parse the text of a broker.conf into both groups of settings (settings.parse_properties).

    Unknown names are logged, with the nearest known one. Raises: IllegalArgument for a value that is
    not allowed, and for a broker that PocketMQ cannot be.
    """
    _refuse_elections(properties)
    if properties.get("enableControllerMode", "").strip().lower() == "true":
        if not properties.get("controllerAddr", "").strip():
            raise IllegalArgument(
                "enableControllerMode=true needs controllerAddr, the addresses of the controllers"
            )
        # The controller's, whatever the file says; RocketMQ's own files say brokerId=-1.
        properties = {
            name: value for name, value in properties.items() if name not in _BY_CONTROLLER
        }
    older = {new: properties[old] for old, new in _ALIASES.items() if old in properties}
    properties = {
        **older,
        **{name: properties[name] for name in properties if name not in _ALIASES},
    }
    _warn_of_unknown(properties)
    config = BrokerConfig.from_properties(properties)
    check_role(config)
    return config, StoreConfig.from_properties(properties)


def _refuse_elections(properties: Mapping[str, str]) -> None:
    for name, what in _ELECTIONS.items():
        if properties.get(name, "").strip().lower() == "true":
            raise IllegalArgument(
                f"{name}=true makes brokers of one name choose their master by {what}, which PocketMQ "
                "does not have. Remove it, and give each of them its role: brokerRole=SYNC_MASTER and "
                "brokerId=0 for one, brokerRole=SLAVE and brokerId=1 or higher for the others"
            )
    if _CONTAINER in properties:
        raise IllegalArgument(
            f"{_CONTAINER} names brokers that run in one process, which PocketMQ does not do. Start a "
            "pocketmq broker -c FILE for each of these files"
        )


def is_known_elsewhere(name: str) -> bool:
    """Return True for a name that a RocketMQ has, or had, and that is no setting here."""
    refused = name in _ELECTIONS or name == _CONTAINER
    return refused or name in _ALIASES or has_no_effect(name) or name.endswith(_IGNORED_SUFFIXES)


def _warn_of_unknown(properties: Mapping[str, str]) -> None:
    """Log each name that neither the broker nor the store knows."""
    known = {**BrokerConfig.keys(), **StoreConfig.keys()}
    for name in properties:
        if name in known:
            continue
        if is_known_elsewhere(name):
            log.info("setting has no effect in PocketMQ: %s", name)
        else:
            log.warning("ignored an unknown setting: %s%s", name, nearest(name, known))
