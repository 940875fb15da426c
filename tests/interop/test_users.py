"""The twelve commands of mqadmin 5.5.0 for users and policies, at PocketMQ as at RocketMQ 5.5.0.

What RocketMQ's broker made them print was recorded (`python -m tests.interop.test_users` records it again).
"""

import json
import tempfile
from pathlib import Path

from tests.interop.brokers import JavaBroker, PocketBroker, RunningBroker
from tests.interop.conftest import or_missing
from tests.interop.mqadmin import Mqadmin, Printed, mqadmin

RECORDED = Path(__file__).with_name("users_550.txt")
FIRST = {"username": "operator", "password": "operator-secret"}
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps(FIRST),
}
_AUTH = "org.apache.rocketmq.auth.auth"
PROVIDERS = {
    "authenticationProvider": f"{_AUTH}entication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}entication.provider.LocalAuthenticationMetadataProvider",
    "authorizationProvider": f"{_AUTH}orization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}orization.provider.LocalAuthorizationMetadataProvider",
}
STEPS = (
    "createUser -u boss2 -p pw-boss2 -t Super",
    "createUser -u app -p pw-app",
    "createUser -u app -p pw-app",
    "updateUser -u app -p pw-app2",
    "updateUser -u app -s disable",
    "updateUser -u app -s enable",
    "updateUser -u none -p x",
    "getUser -u app",
    "getUser -u none",
    "listUser",
    "listUser -f ap",
    "copyUser -f BROKER -t BROKER -u app",
    "createAcl -s User:app -r Topic:T -a Pub,Sub -d Allow",
    "createAcl -s User:app -r Topic:pre*,Group:g -a All -i 10.0.0.0/8,192.168.1.1 -d Deny",
    "createAcl -s User:app -r Cluster:* -a Get,List -d Allow",
    "createAcl -s User:app -r * -a Get -d Allow",
    "createAcl -s User:app -r Nope:x -a Pub -d Allow",
    "createAcl -s User:app -r Topic:x -a Any -d Allow",
    "createAcl -s User:app -r Topic:x -a Fly -d Allow",
    "createAcl -s User:app -r Topic:x -a Pub -d Maybe",
    "createAcl -s User:app -r Topic:x -a Pub -i 10.0.0.300 -d Allow",
    "createAcl -s User:app -r Topic:x -a Pub -i 10.0.0.* -d Allow",
    "createAcl -s User:none -r Topic:x -a Pub -d Allow",
    "createAcl -s User:app -r Topic: -a Pub -d Allow",
    "createAcl -s User:app -r Topic:a:b -a pub -d allow",
    "createAcl -s User:app -r topic:low -a PUB -d ALLOW",
    "getAcl -s User:app",
    "getAcl -s User:none",
    "getAcl -s User:operator",
    "getAcl -s app",
    "updateAcl -s User:app -r Topic:T -a Pub -d Deny",
    "updateAcl -s User:app -r Topic:new -a Pub -d Allow",
    "listAcl",
    "listAcl -s app",
    "listAcl -r Topic:T",
    "listAcl -s none",
    "copyAcl -f BROKER -t BROKER -s User:app",
    "deleteAcl -s User:app -r Topic:T",
    "deleteAcl -s User:app -r Topic:none",
    "deleteAcl -s User:none -r Topic:T",
    "deleteAcl -s User:app",
    "getAcl -s User:app",
    "deleteAcl -s User:app",
    "deleteUser -u app",
    "deleteUser -u none",
    "listUser",
)
# RocketMQ takes them: an unknown type for Normal, a * in the middle for one at that place.
STRICTER = (
    "createUser -u bad -p pw -t Other",
    "createUser -u ../../x -p pw",
    "updateUser -u operator -t Wrong",
    "updateUser -u operator -s off",
    "createAcl -s User:operator -r Topic:a*b* -a Pub -d Allow",
    "createAcl -s User:operator -r Topic:x -a Pub,Fly -d Deny",
)


def run(tool: Mqadmin, step: str, address: str) -> Printed:
    words = step.replace("BROKER", address).split()
    where = [] if words[0].startswith("copy") else ["-b", address]
    return tool(*words, *where)


def played(tool: Mqadmin, broker: RunningBroker) -> str:
    """Each step, what it printed, and the code it was refused with."""
    lines: list[str] = []
    for step in STEPS:
        printed = run(tool, step, broker.address)
        lines += [f"$ {step}", *printed.out.replace(broker.address, "BROKER").splitlines()]
        _, refused, words = printed.err.partition("CODE: ")
        lines += [f"refused with {words.split()[0]}"] if refused else []
    return "\n".join(line.rstrip() for line in lines if line.strip()) + "\n"


def operator(folder: Path) -> Mqadmin:
    keys = folder / "mqadmin-5.5.0-home" / "conf" / "tools.yml"
    keys.parent.mkdir(parents=True)
    keys.write_text("accessKey: operator\nsecretKey: operator-secret\n", encoding="utf-8")
    return mqadmin("5.5.0", folder)


def test_commands_for_users_and_policies(tmp_path: Path) -> None:
    with (
        PocketBroker(tmp_path / "broker", config=SETTINGS) as broker,
        or_missing(lambda: operator(tmp_path / "tool")) as started,
    ):
        tool = started.at(broker.namesrv)
        assert played(tool, broker) == RECORDED.read_text(encoding="utf-8")
        for step in STRICTER:
            assert "CODE: 16" in run(tool, step, broker.address).err, step
        # It is one of the signed requests of any other command, too.
        assert run(tool, "brokerStatus", broker.address).value("brokerVersionDesc")


def record() -> None:
    with tempfile.TemporaryDirectory() as folder, operator(Path(folder, "tool")) as started:
        real = JavaBroker(Path(folder, "broker"), version="5.5.0", config={**SETTINGS, **PROVIDERS})
        with real as broker:
            text = played(started.at(broker.namesrv), broker)
    RECORDED.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    record()
