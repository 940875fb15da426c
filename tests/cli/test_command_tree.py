"""Every command of `pocketmq`, as a user meets it: help, --json, wrong names."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from pocketmq.cli.app import SINGLE, commands, run
from pocketmq.cli.exits import CannotBegin
from pocketmq.client.errors import refusal
from pocketmq.remoting.codes import ResponseCode
from tests.cli.machine_keys import SPELLING, checked, misspelt
from tests.cli.servers import COMMAND, Server
from tools.json_keys import COMMANDS, SERVERS

ROOT = typer.main.get_command(commands())
# Parsed beside typer, because they start in a fraction of its time.
PLAIN = {"up", "namesrv", "broker", "controller", "health"}


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its words."""
    children: Mapping[str, Any] = getattr(command, "commands", {})
    if not children:
        yield " ".join(path), command
    for name, child in children.items():
        yield from leaves(child, (*path, name))


TREE = dict(leaves(ROOT))
# What each command is asked; {id} is a message's id, {file} one of messages, {store} a store, {copy} one
# that no program has open.
ASKED = {
    "topic list": "",
    "topic create": "Made",
    "topic delete": "Gone --yes",
    "topic show": "T",
    "group list": "",
    "group create": "G",
    "group delete": "GoneG --yes",
    "group show": "g",
    "group doctor": "g",
    "group balance": "g",
    "group redeliver": "g --lost --dry-run",
    "group mode": "g isolate",
    "group producers": "pg",
    "subs export": "",
    "subs plan": "{plan}",
    "offset show": "g",
    "offset reset": "g T --to latest --dry-run",
    "offset set": "g T 0 0 --yes",
    "offset copy": "g h T --yes",
    "message send": "T body",
    "message tail": "T --count 1",
    "message consume": "T --group eater --from-first --count 1",
    "message find": "T --key k",
    "message track": "{id}",
    "message import": "{file}",
    "dlq list": "g",
    "dlq resend": "g --all --yes",
    "dlq export": "g --out {folder}/dead.jsonl",
    "dlq import": "Letters {file}",
    "delay list": "",
    "delay show": "",
    "delay recall": "T {handle}",
    "schedule create": "made-here T body --cron @daily --until +3d",
    "schedule list": "",
    **dict.fromkeys(("schedule show", "schedule pause", "schedule resume"), "daily"),
    "schedule delete": "dropped",
    "cluster list": "",
    "cluster numbers": "",
    "cluster config": "",
    "cluster reload": "",
    "cluster writable": "a yes",
    "account list": "",
    "account set": "made-here --secret secret-words --topic T=PUB",
    "account delete": "gone-soon --yes",
    "account white": "127.0.0.1 --yes",
    "account import": "plain_acl.yml --yes",
    "account explain": "operator Pub Topic:T",
    "account audit": "--user operator",
    "ha status": "",
    "ha elections": "",
    "ha promote": "a",
    "ha demote": "a --dry-run",
    "ha resync": "a",
    "store ls": "{store}",
    "store dump": "{store}",
    "store balance": "{store} --group g",
    "store verify": "{store}",
    "store du": "{store}",
    "store diff": "{store} {store}",
    "store archive": "{store} {folder}/archive",
    "store backup": "{store} {folder}/backup",
    "store backups": "{folder}/backup --check",
    "store restore": "{folder}/backup {folder}/restored",
    "store repair": "{copy} --yes",
    "store export": "{store} --out {folder}/messages.jsonl",
    "doctor net": "",
    "doctor all": "",
    "doctor group": "g",
    "bench produce": "--count 20 --size 64,128",
    "bench both": "--count 20",
    "bench consume": "--topic T",
    "context list": "",
    "context save": "here",
    "context select": "kept",
    "context delete": "kept",
    "lake": "{store} {folder}/warehouse",
    "top": "--every 0.1",
    "migrate": "--broker a --from {namesrv} --check",
}
# A name that is wrong, and what the error says to do next.
WRONG = {
    "topic list": ("--cluster Nope", "cluster list"),
    "topic create": ("a/b", "allowed are letters, digits"),
    "topic delete": ("Nope", "topic list"),
    "topic show": ("Nope", "topic create Nope"),
    "group create": ("a/b", "allowed are letters, digits"),
    "group delete": ("Nope", "group list"),
    **dict.fromkeys(
        ("group show", "group doctor", "group balance", "group mode"), ("Nope", "group list")
    ),
    "group redeliver": ("Nope --lost", "group list"),
    "subs export": ("Nope", "group list"),
    "subs plan": ("{folder}/nope", "subs export"),
    "offset show": ("Nope", "group list"),
    "offset reset": ("g Nope --to latest --yes", "topic create Nope"),
    "offset set": ("g T 99 0 --yes", "topic show"),
    "offset copy": ("Nope h T --yes", "group list"),
    "message send": ("T body --queue 99", "topic show"),
    "message tail": ("Nope", "topic create Nope"),
    "message find": ("Nope --key k", "topic create Nope"),
    "message track": ("0" * 32, "message find"),
    **{f"dlq {act}": ("Nope", "group list") for act in ("list", "export")},
    "dlq resend": ("Nope --all --yes", "group list"),
    "message import": ("{file} --topic Nope", "topic create Nope"),
    "dlq import": ("Nope {file}", "group list"),
    "delay list": ("--broker Nope", "cluster list"),
    "delay show": ("1 --broker Nope", "cluster list"),
    "delay recall": ("T nothing", "recall"),
    "schedule create": ("s T --cron @often", "@hourly"),
    "schedule list": ("--cluster Nope", "cluster list"),
    **{f"schedule {act}": ("x", "schedule list") for act in ("show", "pause", "resume", "delete")},
    "cluster list": ("--cluster Nope", "cluster list"),
    **{f"cluster {act}": ("--broker Nope", "cluster list") for act in ("numbers", "reload")},
    "cluster config": ("--set flushDiskTyp=x", "did you mean 'flushDiskType'"),
    "cluster writable": ("Nope no", "cluster list"),
    "account list": ("--broker Nope", "cluster list"),
    "account set": ("made-here --secret short", "7 characters or more"),
    "account delete": ("Nope --yes", "account list"),
    "account white": ("1.2.3.4.5 --yes", "1.2.3.4.5"),
    "account import": ("Nope.yml --yes", "Nope.yml"),
    "account audit": ("--since Nope", "Nope"),
    "account explain": ("Nope Pub Topic:T", "account list"),
    **dict.fromkeys(("ha status", "ha elections"), ("--broker Nope", "cluster list")),
    **dict.fromkeys(("ha promote", "ha demote", "ha resync"), ("Nope", "cluster list")),
    "store ls": ("{folder}/nope", "--data"),
    "store dump": ("{store} --topic Nope", "store ls"),
    "store balance": ("{store} --group Nope", "groups there"),
    "store verify": ("{folder}/nope", "--data"),
    "store du": ("{folder}/nope", "--data"),
    "store diff": ("{store} {folder}/nope", "--data"),
    "store archive": ("{folder}/nope {folder}/archive", "is not a store"),
    "store backup": ("{folder}/nope {folder}/none", "--data"),
    "store backups": ("{folder}/nope", "store backup"),
    "store restore": ("{folder}/nope {folder}/none", "no backup"),
    "store repair": ("{folder}/nope", "--data"),
    "store export": ("{folder}/nope", "--data"),
    "doctor group": ("Nope", "group list"),
    "bench consume": ("--topic Nope", "topic create Nope"),
    "migrate": ("--broker Nope --from {namesrv}", "cluster list"),
    "lake": ("{store} {folder}/warehouse --topic Nope", "the topics are"),
    "context select": ("Nope", "context list"),
    "context delete": ("Nope", "context list"),
}
# A producer group is known while it is online only; these take no name, or make what they are given.
NO_WRONG_NAME = {
    *("group list", "group producers", "doctor net", "doctor all", "bench produce", "bench both"),
    *("context list", "context save", "top", "message consume"),
}


@dataclass
class Site:
    namesrv: str
    places: dict[str, str]

    def words(self, path: str, more: str) -> list[str]:
        """The command line; a command that asks a site is told which."""
        words = [*path.split(), *(word.format_map(self.places) for word in more.split())]
        names = {option for parameter in TREE[path].params for option in parameter.opts}
        return [*words, "--namesrv", self.namesrv] if "--namesrv" in names else words


def sent(site: Site, more: str) -> dict[str, str]:
    """What `message send` tells of the message."""
    words = [*COMMAND, *site.words("message send", f"{more} --json")]
    shown = subprocess.run(words, capture_output=True, check=True)
    (found,) = json.loads(shown.stdout)
    return dict(found)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--no-console"]
    # The store is copied, so its files are small.
    small = ("mappedFileSizeCommitLog=1048576", "maxHashSlotNum=1000", "maxIndexNum=4000")
    # A group without a member is sick as soon as a message waits for it.
    sizes = [word for each in (*small, "doctorOfflineTime=0") for word in ("--set", each)]
    more = ["--data", "store", "--broker-name", "a", "--json"]
    server = Server(folder, "up", *ports, *more, *sizes)
    try:
        assert server.process.stdout is not None
        ready = json.loads(server.process.stdout.readline())
        assert checked(["up"], ready)["ready"] is True
        found = Site(ready["namesrv"], {name: ready[name] for name in ("store", "namesrv")})
        found.places["folder"] = str(folder)
        for path, words in (
            ("topic create", "T --queues 1"),
            ("topic create", "Gone"),
            ("group create", "GoneG"),
            ("group create", "Letters"),
            ("group create", "g"),
            ("offset reset", "g T --to earliest --yes"),
            ("schedule create", "daily T --cron @daily"),
            ("schedule create", "dropped T --every 1d"),
        ):
            assert run(found.words(path, words)) == 0
        found.places["id"] = sent(found, "T body --keys k")["msgId"]
        found.places["handle"] = sent(found, "T later --deliver-at +1h")["recallHandle"]
        file = folder / "import.jsonl"
        file.write_text('{"topic": "T", "body": "again"}\n')
        found.places["file"] = str(file)
        subscriptions = folder / "plan.yaml"
        subscriptions.write_text("group: new\nsubscriptions: {T: '*'}\n")
        found.places["plan"] = str(subscriptions)
        shutil.copytree(ready["store"], folder / "copy")
        found.places["copy"] = str(folder / "copy")
        yield found
    finally:
        server.kill()


@pytest.fixture
def place(path: str, request: pytest.FixtureRequest) -> Site:
    """Where a command is tried."""
    if path in ("account import", "account explain", "account audit"):
        return Site(request.getfixturevalue("signed_site"), {})
    if path.startswith("account "):
        return Site(request.getfixturevalue("guarded"), {})
    found: Site = request.getfixturevalue("site")
    return found


def test_the_promised_commands_are_there() -> None:
    """The tree below is read from the program: without these names it could be empty."""
    assert set(getattr(ROOT, "commands", {})) >= {
        *("up", "broker", "namesrv", "topic", "group", "offset", "message", "dlq", "delay"),
        *("cluster", "store", "bench", "doctor"),
    }
    assert TREE.keys() >= {"message send", "message tail", "message find", "message track"}
    assert TREE.keys() >= {f"store {name}" for name in ("ls", "dump", "verify", "repair", "export")}


def test_every_table_holds_every_command() -> None:
    assert COMMANDS.keys() == TREE.keys() - PLAIN
    assert SERVERS.keys() == PLAIN
    assert ASKED.keys() | PLAIN == TREE.keys()
    assert WRONG.keys() | NO_WRONG_NAME | PLAIN == TREE.keys()


@pytest.mark.parametrize("path", sorted(TREE.keys() - PLAIN))
def test_help_says_what_a_command_and_each_of_its_options_do(path: str) -> None:
    command = TREE[path]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{path}: {parameter.name} has no help"
    assert "--json" in {option for parameter in command.params for option in parameter.opts}


def test_the_list_of_commands_matches_their_help() -> None:
    for name, text in SINGLE.items():
        assert TREE[name].help.startswith(text)


@pytest.mark.parametrize("path", sorted(PLAIN))
def test_help_of_the_servers_names_json_too(path: str) -> None:
    shown = subprocess.run([*COMMAND, path, "--help"], capture_output=True, text=True, check=True)
    assert "--json" in shown.stdout


@pytest.mark.parametrize("path", sorted(ASKED))
def test_json_of_every_command_is_one_value_on_standard_output(
    place: Site, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    is_sick = path in ("group doctor", "doctor group", "doctor all")
    if is_sick:
        # It finds what waits by the offsets that commands before this one may have moved.
        assert run(place.words("offset reset", "g T --to earliest --yes")) == 0
        capsys.readouterr()
    code = run([*place.words(path, ASKED[path]), "--json"])
    shown = capsys.readouterr().out
    checked(path.split(), json.loads(shown))
    # Group g has no member, and a message waits for it.
    assert code == is_sick


@pytest.mark.parametrize("key", ["deleted on", "deleted_on", "Deleted", "deletedOn?", ""])
def test_a_key_of_another_spelling_is_found(key: str) -> None:
    assert SPELLING.fullmatch(key) is None
    assert misspelt({"rows": [{key: 1, "ok": {"in": {key: 1}}}]}, {"{}.names{}"}) == [key] * bool(
        key
    )
    assert misspelt({"names": {key: 1}}, {"{}.names{}"}) == []


@pytest.mark.parametrize("path", sorted({**COMMANDS, **SERVERS}))
def test_keys_of_the_table_are_in_one_spelling(path: str) -> None:
    for key in {**COMMANDS, **SERVERS}[path]:
        for word in key.removesuffix("?").split(".")[1:]:
            assert SPELLING.fullmatch(word.partition("[")[0].partition("{")[0]) or not word, key


# What the same thing was, or is elsewhere, called; the key that says it is in the comment.
OTHER_WORDS = frozenset(
    {
        *("queue", "queueNumber", "client", "account"),  # queueId, clientId, accessKey
        *(
            "storeTime",
            "bornTime",
            "lastUpdateTimestamp",
        ),  # storeTimestamp, bornTimestamp, lastTimestamp
        *(
            "offsetId",
            "brokerName",
            "brokerAddr",
            "recall",
        ),  # offsetMsgId, broker, address, recallHandle
        *(
            "min",
            "max",
            "read",
            "write",
            "inPerS",
            "outPerS",
        ),  # minOffset, ..., readQueues, ..., in, out
    }
)
# The console shows bounds of a setting.
OF_SETTINGS = frozenset({"min", "max"})


def test_one_thing_has_one_key_in_commands_and_console() -> None:
    keys = {
        re.sub(r"\W.*", "", key.rpartition(".")[2])
        for table in (*COMMANDS.values(), *SERVERS.values())
        for key in table
    }
    assert not keys & OTHER_WORDS
    page = (Path(__file__).parents[2] / "pocketmq" / "console" / "API.md").read_text(
        encoding="utf-8"
    )
    assert not set(re.findall(r'"(\w+)"[:,}\]|]', page)) & (OTHER_WORDS - OF_SETTINGS)


@pytest.mark.parametrize("path", sorted(WRONG))
def test_a_wrong_name_is_one_line_that_says_what_to_do(
    place: Site, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    more, advice = WRONG[path]
    try:
        code = run(place.words(path, more))
        said = capsys.readouterr().err
    except CannotBegin as error:
        code, said = 2, f"pocketmq: {error}\n"
    assert code in (1, 2)
    assert said.startswith("pocketmq: ")
    assert advice in said
    assert said.count("\n") == 1


def test_the_doctor_alone_is_asked_about_everything(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> Any:
        run([*words, "--namesrv", site.namesrv, "--json"])
        return json.loads(capsys.readouterr().out)

    found = said("doctor")
    assert found["network"] == said("doctor", "net")
    assert [each["state"] for each in found["brokers"]] == ["ok"]
    assert [each["group"] for each in found["groups"]] == [
        each["group"] for each in said("group", "doctor")
    ]
    assert run(["doctor", "--namesrv", "127.0.0.1:1", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["ok"] for each in found["network"]] == [False]
    assert found["brokers"] == found["groups"] == []


def test_health_answers_in_json(site: Site) -> None:
    words = ["health", "--namesrv", site.namesrv, "--broker", "-", "--json"]
    shown = subprocess.run([*COMMAND, *words], capture_output=True, check=True)
    assert checked(["health"], json.loads(shown.stdout)) == [
        {"server": "namesrv", "address": site.namesrv, "state": "ok", "findings": []}
    ]


def test_completion_is_offered_for_the_usual_shells() -> None:
    # The shell that it is for is the one that called: without one above it there is nothing to offer.
    # The second command keeps bash from making way for the first.
    calling = f"{shlex.join([*COMMAND, '--show-completion'])}; exit $?"
    shown = subprocess.run(["bash", "-c", calling], capture_output=True, text=True, check=True)
    assert "complete_bash" in shown.stdout


def test_a_mistyped_name_is_answered_with_the_one_that_is_near(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ("topic create Today", "group create today"):
        assert run([*words.split(), "--namesrv", site.namesrv]) == 0
    for words, meant in ("topic show Todya", "Today"), ("group balance todya", "today"):
        assert run([*words.split(), "--namesrv", site.namesrv]) == 1
        assert f"(did you mean '{meant}'?)" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["up", "broker", "topic list", "doctor net", "mqadmin"])
def test_a_client_only_installation_says_what_to_install(words: str, tmp_path: Path) -> None:
    """An installation without extras has the commands, but not their dependencies: no stack trace then."""
    program = (
        "import sys\n"
        "for each in ('typer', 'rich', 'mmh3', 'numpy', 'orjson', 'uvloop', 'lz4'):\n"
        "    sys.modules[each] = None\n"
        "words = sys.argv[1:]\n"
        "if words[0] == 'mqadmin':\n"
        "    from pocketmq.cli.mqadmin.main import run as main\n"
        "    words = ['topicList']\n"
        "else:\n"
        "    from pocketmq.cli.__main__ import main\n"
        "sys.exit(main(words))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *words.split()],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert ran.returncode == 2
    assert 'pip install "FOLDER_OR_WHEEL[broker,console]"' in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_wrong_option_points_to_the_help_of_its_command() -> None:
    with pytest.raises(CannotBegin, match=r"--queue\).*; see: pocketmq message send --help"):
        run(["message", "send", "T", "body", "--queu", "1"])


@pytest.mark.parametrize("text", ["1_8", " 3", "soon", "99999999999999999999"])
def test_a_number_of_an_option_is_one_that_a_broker_would_read(text: str) -> None:
    """Python's int() takes two of these."""
    for words in (
        ["message", "send", "T", "x", "--delay-level"],
        ["topic", "create", "T", "--queues"],
    ):
        with pytest.raises(CannotBegin, match=f"'{text}' is not a whole number"):
            run([*words, text])


def test_an_address_before_the_command_is_told_where_it_stands() -> None:
    with pytest.raises(CannotBegin, match="after the command: pocketmq topic list -n"):
        run(["-n", "127.0.0.1:9876", "topic", "list"])


def test_refusals_read_like_sentences() -> None:
    """An id that no broker knows names no broker, and a remark's own full stop is not doubled."""
    unknown = refusal(ResponseCode.QUERY_NOT_FOUND, "no message has this id", "", "message X")
    assert str(unknown).startswith("message X failed with QUERY_NOT_FOUND (22): no message has")
    blank = refusal(ResponseCode.SYSTEM_ERROR, "The topic is blank.", "127.0.0.1:1", "topic ''")
    assert "127.0.0.1:1" in str(blank)
    assert ".." not in str(blank)
