"""The name server's request handlers, one function per request code (wire.md 2.8, 6).

`NameServerProcessors.handlers()` is the table; other codes are answered with code 3, as the 5.x name server
does (the 4.9 one stays silent and lets the caller time out). Source: DefaultRequestProcessor, 4.9.7.
"""

import logging
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from pocketmq.model.data_version import DataVersion
from pocketmq.model.names import FAQ
from pocketmq.model.tables import TopicConfig
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfig
from pocketmq.namesrv.registration_body import decode_route_queues, decoding
from pocketmq.namesrv.route_info import BrokerRegistration, RouteInfo
from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import (
    BrokerHeartbeatHeader,
    DeleteKVConfigHeader,
    DeleteTopicInNamesrvHeader,
    GetBrokerMemberGroupHeader,
    GetKVConfigHeader,
    GetKVListByNamespaceHeader,
    GetTopicsByClusterHeader,
    PutKVConfigHeader,
    QueryDataVersionHeader,
    RegisterBrokerHeader,
    RegisterTopicHeader,
    UnregisterBrokerHeader,
    WipeWritePermHeader,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode, Version
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import AnsweringServer, complete
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Steps

log = logging.getLogger(__name__)

_UNIT = 1
_UNIT_SUB = 2


class NameServerProcessors:
    """Handlers over the route table, the key-value table and the settings."""

    def __init__(
        self,
        routes: RouteInfo,
        kv_config: KVConfig,
        config: NamesrvConfig,
        waits: Callable[[str, Connection], None],
    ) -> None:
        """waits: called for a client that asked for an unknown topic and wants to be notified of it."""
        self._routes = routes
        self._waits = waits
        self._kv = kv_config
        self._config = config

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        code = RequestCode
        table: dict[
            int, Callable[[RemotingCommand, Connection], RemotingCommand | Steps | None]
        ] = {
            code.PUT_KV_CONFIG: self.put_kv_config,
            code.GET_KV_CONFIG: self.get_kv_config,
            code.DELETE_KV_CONFIG: self.delete_kv_config,
            code.GET_KVLIST_BY_NAMESPACE: self.get_kv_list,
            code.REGISTER_BROKER: self.register_broker,
            code.UNREGISTER_BROKER: self.unregister_broker,
            code.QUERY_DATA_VERSION: self.query_data_version,
            code.BROKER_HEARTBEAT: self.broker_heartbeat,
            code.GET_BROKER_MEMBER_GROUP: self.get_broker_member_group,
            code.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            code.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            code.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
            code.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            code.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            code.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            code.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            code.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
            code.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_sub_topics,
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_sub_ununit_topics,
            code.UPDATE_NAMESRV_CONFIG: self.update_config,
            code.GET_NAMESRV_CONFIG: self.get_config,
        }
        return complete(
            AnsweringServer.NAME_SERVER, {int(code): each for code, each in table.items()}
        )

    # ------------------------------------------------------------ key-value configuration

    def put_kv_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = PutKVConfigHeader.parse(request.ext)
        self._kv.put(header.namespace, header.key, header.value)
        log.info("kv set namespace=%r key=%r by=%s", header.namespace, header.key, connection.peer)
        return request.answer(ResponseCode.SUCCESS)

    def get_kv_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetKVConfigHeader.parse(request.ext)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return request.answer(ResponseCode.QUERY_NOT_FOUND, remark, ext={})
        return request.answer(ResponseCode.SUCCESS, ext={"value": value})

    def delete_kv_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = DeleteKVConfigHeader.parse(request.ext)
        self._kv.delete(header.namespace, header.key)
        log.info(
            "kv deleted namespace=%r key=%r by=%s", header.namespace, header.key, connection.peer
        )
        return request.answer(ResponseCode.SUCCESS)

    def get_kv_list(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetKVListByNamespaceHeader.parse(request.ext)
        table = self._kv.namespace(header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {header.namespace}"
            return request.answer(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.answer(ResponseCode.SUCCESS, body=fastjson.dumps({"table": table}))

    # ------------------------------------------------------------ brokers

    def register_broker(self, request: RemotingCommand, connection: Connection) -> Steps:
        header = RegisterBrokerHeader.parse(request.ext)
        body = bytes(request.body)
        if header.body_crc32 and zlib.crc32(body) & 0x7FFF_FFFF != header.body_crc32:
            log.warning(
                "refused a registration, because its crc32 does not match peer=%s", connection.peer
            )
            return request.answer(ResponseCode.SYSTEM_ERROR, "crc32 not match", ext={})
        table = yield from decoding(
            body, compressed=bool(header.compressed), bare=request.version < Version.V3_0_11
        )
        registered = yield from self._routes.registering(
            BrokerRegistration(
                header.cluster_name,
                header.broker_name,
                header.broker_id,
                header.broker_addr,
                header.ha_server_addr,
                table.data_version,
                table.topics,
                timeout_ms=header.heartbeat_timeout_millis or self._config.broker_timeout,
            ),
            connection,
        )
        ext: dict[str, str] = {}
        if registered.master_address:
            ext = {
                "haServerAddr": registered.ha_address,
                "masterAddr": registered.master_address,
            }
        order = self._kv.namespace(ORDER_TOPIC_CONFIG)
        return request.answer(
            ResponseCode.SUCCESS,
            ext=ext,
            body=b"" if order is None else fastjson.dumps({"table": order}),
        )

    def unregister_broker(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = UnregisterBrokerHeader.parse(request.ext)
        self._routes.unregister(
            header.broker_name, header.broker_id, header.broker_addr, connection
        )
        return request.answer(ResponseCode.SUCCESS)

    def query_data_version(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = QueryDataVersionHeader.parse(request.ext)
        theirs = DataVersion.from_json(fastjson.loads_request(request.body))
        ours = self._routes.data_version(header.broker_addr)
        changed = ours != theirs
        if not changed:
            self._routes.keep_alive(header.broker_addr)
        return request.answer(
            ResponseCode.SUCCESS,
            ext={"changed": "true" if changed else "false"},
            body=b"" if ours is None else fastjson.dumps(ours.to_json()),
        )

    def broker_heartbeat(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = BrokerHeartbeatHeader.parse(request.ext)
        self._routes.keep_alive(header.broker_addr, header.heartbeat_timeout_mills)
        return request.answer(ResponseCode.SUCCESS)

    def get_broker_member_group(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = GetBrokerMemberGroupHeader.parse(request.ext)
        group = self._routes.member_group(header.cluster_name, header.broker_name)
        body = fastjson.dumps({"brokerMemberGroup": group})
        return request.answer(ResponseCode.SUCCESS, body=body)

    # ------------------------------------------------------------ routes and topics

    def get_route(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        ext = request.ext or {}
        topic = ext.get("topic")
        route = None if topic is None else self._routes.route(topic)
        if route is None or topic is None:
            if topic and ext.get("tellWhenKnown") == "true":
                self._waits(topic, connection)
            return request.answer(
                ResponseCode.TOPIC_NOT_EXIST,
                "No topic route info in name server for the topic: "
                + ("null" if topic is None else topic)
                + FAQ,
            )
        self._as_reached(route["brokerDatas"], connection)
        if self._config.order_message_enable:
            route["orderTopicConf"] = self._kv.get(ORDER_TOPIC_CONFIG, topic)
        standard = (
            request.version >= Version.V4_9_4
            or ext.get("acceptStandardJsonOnly", "").lower() == "true"
        )
        return request.answer(
            ResponseCode.SUCCESS, body=fastjson.dumps(route, quote_integer_keys=standard)
        )

    def get_cluster_info(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        info = self._routes.cluster_info()
        self._as_reached(info["brokerAddrTable"].values(), connection)
        return request.answer(ResponseCode.SUCCESS, body=fastjson.dumps(info))

    def _as_reached(self, brokers: Iterable[dict[str, Any]], connection: Connection) -> None:
        """Replace the address of brokers on this machine by the one through which the client connected."""
        if not self._config.route_by_client:
            return
        host = _host(connection.local)
        for broker in brokers:
            addresses = broker["brokerAddrs"]
            for broker_id, address in addresses.items():
                if self._is_here(address):
                    addresses[broker_id] = f"{host}:{address.rpartition(':')[2]}"

    def _is_here(self, address: str) -> bool:
        """Return True if a broker is in this process or on this machine, by the addresses of its
        connection.
        """
        try:
            over = self._routes.registered_over(address)
        except KeyError:
            return False
        return over is None or (
            isinstance(over, Connection) and _host(over.peer) == _host(over.local)
        )

    def wipe_write_perm(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return self._set_writable(request, connection, False, "wipeTopicCount")

    def add_write_perm(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return self._set_writable(request, connection, True, "addTopicCount")

    def _set_writable(
        self, request: RemotingCommand, connection: Connection, writable: bool, field: str
    ) -> RemotingCommand:
        header = WipeWritePermHeader.parse(request.ext)
        count = self._routes.set_writable(header.broker_name, writable)
        log.info(
            "write permission changed broker=%r writable=%s topics=%d by=%s",
            header.broker_name,
            writable,
            count,
            connection.peer,
        )
        return request.answer(ResponseCode.SUCCESS, ext={field: str(count)})

    def register_topic(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = RegisterTopicHeader.parse(request.ext)
        self._routes.register_topic(header.topic, decode_route_queues(bytes(request.body)))
        return request.answer(ResponseCode.SUCCESS)

    def delete_topic(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = DeleteTopicInNamesrvHeader.parse(request.ext)
        self._routes.delete_topic(header.topic, header.cluster_name)
        log.info("topic deleted from routes topic=%r by=%s", header.topic, connection.peer)
        return request.answer(ResponseCode.SUCCESS)

    def get_all_topics(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return _topic_list(request, self._routes.topics())

    def get_topics_by_cluster(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = GetTopicsByClusterHeader.parse(request.ext)
        return _topic_list(request, self._routes.topics_of_cluster(header.cluster))

    def get_system_topics(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        topics, address = self._routes.system_topics()
        return _topic_list(request, topics, address)

    def get_unit_topics(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return _topic_list(request, self._routes.topics(_is_unit))

    def get_unit_sub_topics(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        return _topic_list(request, self._routes.topics(_has_unit_sub))

    def get_unit_sub_ununit_topics(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        wanted = self._routes.topics(lambda data: _has_unit_sub(data) and not _is_unit(data))
        return _topic_list(request, wanted)

    # ------------------------------------------------------------ settings

    def update_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        from pocketmq.remoting.serving.config_requests import changed

        return changed(self._config, request, connection)

    def get_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        from pocketmq.remoting.serving.config_requests import shown

        return shown(self._config, request)


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _topic_list(
    request: RemotingCommand, topics: list[str], address: str | None = None
) -> RemotingCommand:
    content: dict[str, Any] = {"brokerAddr": address, "topicList": topics}
    return request.answer(ResponseCode.SUCCESS, body=fastjson.dumps(content))


def _is_unit(data: TopicConfig) -> bool:
    return data.sys_flag & _UNIT != 0


def _has_unit_sub(data: TopicConfig) -> bool:
    return data.sys_flag & _UNIT_SUB != 0
