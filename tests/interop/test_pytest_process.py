"""The plug-in's `pocketmq_proc` under the official Java and Go clients, as in their users' own tests."""

from pocketmq.testing.plugin import StartProcess
from tests.interop.driver import Session, message


def test_java_and_go_programs_use_the_plug_ins_process(
    pocketmq_proc: StartProcess, java_498: Session, go_client: Session
) -> None:
    """Usable by Java and Go tests; what one sends the other gets, and the test sees both."""
    server = pocketmq_proc(brokerName="from-pytest")
    server.create_topic("T", queues=1)
    java_498.producer(server.namesrv, "java").send(message("T", "from java", tags="a"))
    go_client.producer(server.namesrv, "go").send(message("T", "from go", tags="a"))
    consumer = java_498.push_consumer(
        server.namesrv,
        "g",
        {"T": "a"},
        settings={"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"},
    )
    assert {each.text for each in consumer.wait(2)} == {"from java", "from go"}
    server.wait_until_consumed("g", "T")
    assert [each.body for each in server.messages("T")] == [b"from java", b"from go"]
