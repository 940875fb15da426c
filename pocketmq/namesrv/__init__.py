"""The name server: which broker serves which topic. May import pocketmq.remoting and pocketmq.store."""

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.name_server import NameServer
from pocketmq.namesrv.route_info import BrokerRegistration, RouteInfo
from pocketmq.remoting.lazy_names import lazy_names

__all__ = ["BrokerRegistration", "NameServer", "NamesrvConfig", "RouteInfo"]

__getattr__, __dir__ = lazy_names(__name__, {}, renamed={"Registration": "BrokerRegistration"})
