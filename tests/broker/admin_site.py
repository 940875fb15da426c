"""A broker, its name server, and a peer that administrates it."""

from pathlib import Path
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.namesrv import NameServer
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.fastjson import ObjectKey
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.store import StoreConfig

CODE = RequestCode


OK = ResponseCode.SUCCESS


BORN = b"\x7f\0\0\1\0\0\0\1"


class Site:
    """A name server, a broker and a client of both."""

    def __init__(self, folder: Path, namesrv: NameServer, client: RemotingClient) -> None:
        self.folder = folder
        self.namesrv = namesrv
        self.client = client
        self.broker = self.make()

    def make(self, **settings: Any) -> Broker:
        config = BrokerConfig(broker_name="a", listen_port=0, **settings)
        store = StoreConfig(store_path_root_dir=str(self.folder))
        return Broker(config, store, clock=SystemClock(), name_server=self.namesrv.local)

    async def ask(
        self, code: int, body: bytes = b"", *, version: int = 407, **fields: Any
    ) -> RemotingCommand:
        ext = {name: _text(value) for name, value in fields.items()}
        command = RemotingCommand(code, ext, body, version=version)
        return await self.client.invoke(self.broker.address, command, 30_000)

    async def json(self, code: int, body: bytes = b"", **fields: Any) -> Any:
        answer = await self.ask(code, body, **fields)
        assert answer.code == OK, answer
        return fastjson.loads(answer.body)

    async def make_topic(self, topic: str, queues: int = 2, **more: Any) -> RemotingCommand:
        fields: dict[str, Any] = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            **more,
        }
        return await self.ask(CODE.UPDATE_AND_CREATE_TOPIC, **fields)

    def put(
        self, topic: str, queue_id: int = 0, body: bytes = b"b", properties: bytes = b""
    ) -> int:
        """Store a message; its place in the log."""
        return self.broker.parts.messages.store.append(
            topic, queue_id, body, properties, 0, 0, 1, BORN
        ).position


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def queue(topic: str, queue_id: int) -> ObjectKey:
    return ObjectKey.of(brokerName="a", queueId=queue_id, topic=topic)


HEARTBEAT = {
    "clientID": "c1",
    "consumerDataSet": [
        {
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "groupName": "g",
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [
                {
                    "classFilterMode": False,
                    "codeSet": [3552231],
                    "expressionType": "TAG",
                    "subString": "tagA",
                    "subVersion": 5,
                    "tagsSet": ["tagA"],
                    "topic": "T",
                }
            ],
            "unitMode": False,
        }
    ],
    "producerDataSet": [{"groupName": "p"}],
}
