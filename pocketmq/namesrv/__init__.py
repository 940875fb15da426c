"""The name server: which broker serves which topic. May import pocketmq.remoting and pocketmq.store."""

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.name_server import NameServer
from pocketmq.namesrv.route_info import Registration, RouteInfo

__all__ = ["NameServer", "NamesrvConfig", "Registration", "RouteInfo"]
