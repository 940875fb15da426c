"""The routes of the API, one row each; API.md describes them and a test compares the two."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pocketmq.console.api import acl as acl_api
from pocketmq.console.api import alarm as alarm_api
from pocketmq.console.api import balance as balance_api
from pocketmq.console.api import cluster as cluster_api
from pocketmq.console.api import dead_letter as dead_letter_api
from pocketmq.console.api import delay as delay_api
from pocketmq.console.api import group as group_api
from pocketmq.console.api import kv as kv_api
from pocketmq.console.api import message as message_api
from pocketmq.console.api import offset as offset_api
from pocketmq.console.api import overview as overview_api
from pocketmq.console.api import producer as producer_api
from pocketmq.console.api import replica as replica_api
from pocketmq.console.api import search as search_api
from pocketmq.console.api import session as session_api
from pocketmq.console.api import topic as topic_api
from pocketmq.console.api import trace as trace_api
from pocketmq.console.api import warning as warning_api
from pocketmq.console.api.request import ApiRequest
from pocketmq.console.state import Console

Handle = Callable[[Console, ApiRequest], Awaitable[Any]]


class Needs(Enum):
    """What a user of the brokers needs beside what the brokers check: name servers know no users."""

    NOTHING = "nothing"
    CLUSTER = "cluster"
    SUPER = "super"


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """path: behind /api. is_login: allowed without being logged in. needs: what no broker checks."""

    method: str
    path: str
    handle: Handle
    is_login: bool = False
    needs: Needs = Needs.NOTHING


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("GET", "/session", session_api.show, is_login=True),
    ApiRoute("POST", "/login", session_api.log_in, is_login=True),
    ApiRoute("POST", "/logout", session_api.log_out, is_login=True),
    ApiRoute("GET", "/overview", overview_api.overview),
    ApiRoute("GET", "/history", overview_api.history),
    ApiRoute("GET", "/live", overview_api.live),
    ApiRoute("PUT", "/warnings/quiet", warning_api.silence),
    ApiRoute("DELETE", "/warnings/quiet", warning_api.show),
    ApiRoute("GET", "/search", search_api.everything),
    ApiRoute("GET", "/cluster", cluster_api.cluster, needs=Needs.CLUSTER),
    ApiRoute("GET", "/brokers/{broker}", cluster_api.broker, needs=Needs.CLUSTER),
    ApiRoute("PUT", "/brokers/{broker}/settings", cluster_api.change_settings),
    ApiRoute("PUT", "/brokers/{broker}/writable", cluster_api.change_writable, needs=Needs.SUPER),
    ApiRoute("PUT", "/brokers/{broker}/role", replica_api.change_role),
    ApiRoute("GET", "/replicas", replica_api.replicas, needs=Needs.CLUSTER),
    ApiRoute("GET", "/topics", topic_api.list_topics),
    ApiRoute("GET", "/topics/{topic}", topic_api.show),
    ApiRoute("GET", "/topics/{topic}/consumers", topic_api.consumers),
    ApiRoute("GET", "/topics/{topic}/tail", search_api.tail),
    ApiRoute("PUT", "/topics/{topic}", topic_api.put),
    ApiRoute("DELETE", "/topics/{topic}", topic_api.delete),
    ApiRoute("POST", "/topics/{topic}/messages", topic_api.send),
    ApiRoute("GET", "/groups", group_api.list_groups),
    ApiRoute("GET", "/groups/{group}", group_api.show),
    ApiRoute("PUT", "/groups/{group}", group_api.put),
    ApiRoute("DELETE", "/groups/{group}", group_api.delete),
    ApiRoute("PUT", "/groups/{group}/mode", group_api.set_mode),
    ApiRoute("GET", "/groups/{group}/balance", balance_api.show),
    ApiRoute("GET", "/groups/{group}/balance/{state}", balance_api.messages),
    ApiRoute("POST", "/groups/{group}/redeliver", balance_api.redeliver),
    ApiRoute("POST", "/groups/{group}/reset", offset_api.reset),
    ApiRoute("POST", "/groups/{group}/skip", offset_api.skip),
    ApiRoute("POST", "/groups/{group}/clone", offset_api.clone),
    ApiRoute("POST", "/groups/{group}/offset", offset_api.place),
    ApiRoute("GET", "/groups/{group}/members/{clientId}", group_api.member),
    ApiRoute("GET", "/producers", producer_api.producers, needs=Needs.CLUSTER),
    ApiRoute("GET", "/messages", message_api.list_messages),
    ApiRoute("GET", "/messages/export", message_api.export),
    ApiRoute("GET", "/messages/search", search_api.messages),
    ApiRoute("GET", "/messages/{id}", message_api.show),
    ApiRoute("GET", "/messages/{id}/body", message_api.body),
    ApiRoute("GET", "/messages/{id}/track", message_api.track),
    ApiRoute("POST", "/messages/{id}/consume", message_api.consume),
    ApiRoute("GET", "/dlq", dead_letter_api.list_groups),
    ApiRoute("GET", "/dlq/{group}", dead_letter_api.show),
    ApiRoute("POST", "/dlq/{group}/resend", dead_letter_api.resend),
    ApiRoute("GET", "/dlq/{group}/export", dead_letter_api.export),
    ApiRoute("GET", "/dlq/{group}/reasons", dead_letter_api.reasons),
    ApiRoute("GET", "/delays", delay_api.overview),
    ApiRoute("GET", "/delays/{level}", delay_api.level),
    ApiRoute("POST", "/delays/recall", delay_api.recall),
    ApiRoute("GET", "/schedules", delay_api.schedules),
    ApiRoute("POST", "/schedules/change", delay_api.change_schedule),
    ApiRoute("GET", "/acl", acl_api.show),
    ApiRoute("GET", "/acl/{broker}/{accessKey}", acl_api.may),
    ApiRoute("GET", "/audit", acl_api.audit),
    ApiRoute("GET", "/alarms", alarm_api.show, needs=Needs.CLUSTER),
    ApiRoute("GET", "/trace", trace_api.show),
    ApiRoute("GET", "/nameservers", cluster_api.name_servers, needs=Needs.CLUSTER),
    ApiRoute("GET", "/kv", kv_api.show, needs=Needs.CLUSTER),
    ApiRoute("PUT", "/kv", kv_api.put, needs=Needs.SUPER),
    ApiRoute("DELETE", "/kv", kv_api.delete, needs=Needs.SUPER),
)
