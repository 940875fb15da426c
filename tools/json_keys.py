"""The keys of `pocketmq … --json`, command by command: docs/json.md is made of this table.

tests/cli/test_command_tree.py runs every command and holds its answer against the table.

    KEY       a value
    KEY[]     a list of objects, whose keys follow as KEY[].OTHER
    KEY{}     an object whose keys are names that users or RocketMQ chose: of settings, topics, properties
    KEY{*}  an object of figures, whose keys differ by row
    KEY?      may be missing

Each begins with what the command prints: {} an object, [] a list of them, - an object a line.
"""

from collections.abc import Mapping

Keys = Mapping[str, str]


def _under(place: str, keys: Keys) -> dict[str, str]:
    return {f"{place}.{key}": words for key, words in keys.items()}


def _rows(keys: Keys) -> dict[str, str]:
    return _under("[]", keys)


def _one(keys: Keys) -> dict[str, str]:
    return _under("{}", keys)


_BROKERS = "names of the brokers that did it"
_QUEUE = {"broker": "name of the broker", "queueId": "id of the queue"}
_PROGRESS = {
    "topic": "topic",
    **_QUEUE,
    "brokerOffset": "offset behind the last message",
    "consumerOffset": "offset of the next message that the group gets",
    "lag": "messages that wait",
    "lastTimestamp": "when the last message that the group has consumed was stored, ms since 1970, or null",
    "owner": "client id of the member that has the queue, or null",
    "shared": "true if members pop: they share the queue, and none owns it",
}
_MESSAGE = {
    "topic": "topic",
    **_QUEUE,
    "queueOffset": "offset in the queue",
    "msgId": "id that the producer gave it",
    "offsetMsgId": "id by its place in the broker's log",
    "tags": "tag, or null",
    "keys": "keys, separated by spaces, or null",
    "bornTimestamp": "when it was sent, ms since 1970",
    "bornHost": "address of its producer",
    "storeTimestamp": "when it was stored, ms since 1970",
    "storeHost": "address of its broker",
    "reconsumeTimes": "failures so far",
    "properties{}": "properties by name",
    "body": "body as text; bytes that are no UTF-8 as \\xNN",
    "bodyBase64": "body as it is",
}
_SYMPTOM = {
    "kind": "what is wrong, one word: LAG, MEMBER_STUCK, GROUP_DIFFERS, ...",
    "severity": "error, warning or info",
    "group": "group",
    "topic": "topic, or null",
    "text": "what is wrong, a sentence",
    "advice": "what to do, or null",
    "since": "ms since 1970, or null",
    "parameters{*}": "figures of the sentence",
}
_FINDING = {
    "group": "group",
    "topic": "topic that members subscribe differently",
    "raised": "true once it lasts",
    "since": "ms since 1970, or null",
    "stored": "expression by which the broker filters, or null",
    "text": "what is lost, a sentence",
    "camps[]": "members that subscribe alike",
    "camps[].clientIds": "client ids of them",
    "camps[].expression": "expression of them; null: they do not subscribe",
    "camps[].expressionType": "TAG, SQL92 or null",
    "losses[]": "what is lost in which queues",
    "losses[].holder": "client id of the member that reads them, or null",
    "losses[].lost": "tags that are lost",
    "losses[].lostTo": "client ids of the members that lose them",
    "losses[].queueIds": "ids of the queues",
}
_DIAGNOSIS = {
    "group": "group",
    "mode": "compatible, strict or isolate; null: a broker of Apache",
    "state": "sick or well",
    "symptoms[]": "what is wrong",
    **_under("symptoms[]", _SYMPTOM),
    "findings[]": "topics that members subscribe differently",
    **_under("findings[]", _FINDING),
}
_CLIENT = {
    "clientId": "client id",
    "address": "ip:port as the broker sees it",
    "language": "language of its library",
    "version": "version of RocketMQ that it reports",
}
_CONTEXT = {
    "context": "name",
    "selected": "true if commands without --context use it",
    "namesrv": "name servers",
    "accessKey": "access key, or null",
    "tls": "true if connections use TLS",
    "tlsCa": "file of authorities, or null",
}
_BENCH = {
    "size": "bytes of each body; 0: as found",
    "rate": "wanted sends per second; 0: no limit",
    "messages": "messages measured",
    "seconds": "duration",
    "messagesPerS": "messages per second",
    "p50Ms": "time within which half of them were done, ms",
    "p99Ms": "the same for 99 %",
    "p999Ms": "the same for 99.9 %",
    "maxMs": "the longest time, ms",
    "latency[]": "how many took how long, shortest first",
    "latency[].upToMs": "upper bound, ms; null: none",
    "latency[].messages": "messages of this class",
}
_STEP = {"topic": "topic", **_QUEUE, "from": "offset before", "to": "offset after"}
_NETWORK = {
    "check": "server that was asked",
    "ok": "true if nothing is wrong",
    "found": "what was found",
    "advice": "what to do, or empty",
}
_PROBLEM = {
    "code": "what is wrong, one word ([list](store-findings.md))",
    "severity": "error, warning or info",
    "where": "file and place",
    "bytes": "bytes that it concerns",
    "what": "what is wrong",
    "mender": "who mends it: start, repair or operator",
    "advice": "how",
}
_EXPORTED = {"exported": "messages written", "file": "file"}
_SCHEDULE = {
    "name": "name of the schedule",
    "topic": "topic that its messages go to",
    "when": "cron expression and time zone, interval, or `once`",
    "state": "active or paused",
    "next": "next time, ms since 1970; null while it is paused",
    "last": "time of its last message, ms since 1970; null before the first",
    "fired": "messages sent",
    "broker": "name of the broker that keeps it",
}
_SCHEDULE_ACT = {"schedule": "name of the schedule", "done": "pause, resume or delete"}
_READY = {
    "ready": "true",
    "namesrv": "address of the name server",
    "pid": "process id",
}
_SITE = {
    **_READY,
    "broker": "address of the broker; of several, separated by commas",
    "grpc?": "address for gRPC",
    "name": "name of the broker",
    "cluster": "cluster",
    "store": "folder of the store",
    "console?": "address of the console",
    "metrics?": "address of the metrics",
}

# What the servers and `health` print, which are no part of the tree below.
SERVERS: Mapping[str, Keys] = {
    "up": _one(
        _SITE
        | {
            "brokers?": "how many brokers, with --brokers",
            "replicas?": "how many replicas, with --replicas",
            "readonly?": "brokers that accept no messages",
            "controller?": "address of the controller, with --controller",
        }
    ),
    "broker": _one(_SITE),
    "namesrv": _one(
        _READY
        | {
            "kv": "file of the key-value table",
            "controller?": "address of the controller, with enableControllerInNamesrv=true",
        }
    ),
    "controller": _one(
        {name: text for name, text in _READY.items() if name != "namesrv"}
        | {"controller": "address of the controller", "file": "file of the sets of brokers"}
    ),
    "health": _rows(
        {
            "server": "namesrv or broker",
            "address": "address that was asked",
            "state": "`ok`, or what is wrong",
            "findings": "damage to its store, which it serves around: code, place, what to do",
        }
    ),
}
_BALANCE = {
    "topic": "topic",
    "group": "group",
    "stored": "messages stored since the group began, or since --since",
    "consumed": "acknowledged by a member that keeps them",
    "filtered": "passed, and no member wanted them",
    "inHand": "given, not acknowledged yet",
    "waiting": "not given yet",
    "retry": "sent back, and not consumed yet",
    "dead": "in the dead letters",
    "expired": "deleted before they were given",
    "skipped": "passed by a move of the offset",
    "lost": "passed though a member wanted them",
    "redelivered": "lost or skipped, given back, and consumed",
    "unknown": "passed, and no record says how",
    "difference": "stored less all the others: 0",
}
COMMANDS: Mapping[str, Keys] = {
    "account delete": _one({"accessKey": "access key", "brokers": _BROKERS}),
    "account list": _rows(
        {
            "broker": "name of the broker",
            "accessKey": "access key",
            "admin": "true if it may change brokers",
            "mayAll": "true for an administrator without rights in single topics or groups",
            "whiteAddress": "pattern of the addresses from which it needs no signature, or null",
            "topicPerms": "rights in single topics, `T=PUB`",
            "defaultTopicPerm": "right in all others: DENY, PUB, SUB or `PUB|SUB`",
            "groupPerms": "rights in single groups, `g=SUB`",
            "defaultGroupPerm": "right in all others",
            "enabled": "false for a user that is disabled",
        }
    ),
    "account import": _rows(
        {
            "broker": "name of the broker",
            "accessKey": "the account's, which is the user's name",
            "imported": "false if there was a user of that name",
        }
    ),
    "account audit": _rows(
        {
            "broker": "name of the broker",
            "time": "when, in ms since 1970",
            "user": "who; of a refusal, whom the request named",
            "address": "`ip:port` from which it came",
            "act": "the request code's name, or the method of the gRPC call",
            "resources": "names of topics, groups, users and settings, by field",
            "outcome": "done, failed or refused",
            "reason": "why not",
            "times": "how often the same was refused in a minute",
        }
    ),
    "account explain": _rows(
        {
            "broker": "name of the broker",
            "allowed": "true if the user may do it",
            "decidedBy": "the policy that says so, or what else",
        }
    ),
    "account set": _one({"accessKey": "access key", "brokers": _BROKERS}),
    "account white": _one({"whiteAddresses": "patterns that hold now", "brokers": _BROKERS}),
    "bench both": _rows(_BENCH),
    "bench consume": _rows(_BENCH),
    "bench produce": _rows(_BENCH),
    "cluster config": {"{}": "by name of the broker, its settings by name"},
    "cluster list": _rows(
        {
            "cluster": "cluster",
            "broker": "name of the broker",
            "brokerId": "0: master, more: a slave",
            "address": "host:port for clients",
            "version": "version that it reports, or null",
            "in": "messages stored per second, or null",
            "delivered": "messages delivered per second, consumed or not, or null",
            "diskRatio": "share of the disk in use, 0 to 1, or null",
            "state": "`ok`, or why it does not answer",
        }
    ),
    "cluster numbers": {"{}": "by name of the broker, its figures by RocketMQ's names"},
    "cluster reload": _rows(
        {
            "broker": "name of the broker",
            "brokerId": "0: master, more: a slave",
            "changed": "names of settings that were changed",
            "needsRestart": "names of settings that change with a restart only",
            "failure": "why the old configuration stays, or empty",
        }
    ),
    "cluster writable": _one(
        {
            "broker": "name of the broker",
            "writable": "true if producers may send to it",
            "topics": "topics whose routes have changed",
        }
    ),
    "context delete": _one(_CONTEXT),
    "context list": _rows(_CONTEXT),
    "context save": _one(_CONTEXT),
    "context select": _one(_CONTEXT),
    "delay list": _rows(
        {
            "broker": "name of the broker",
            "level": "delay level; null: messages for a time of their own",
            "name": "duration of the level, or `own time`",
            "topic": "topic of messages for a time of their own, else null",
            "waiting": "messages that wait for their time",
        }
    ),
    "delay recall": _one({"topic": "topic", "recalled": "id of the message that was recalled"}),
    "delay show": _rows(
        {
            "due": "when it will be delivered, ms since 1970",
            "broker": "name of the broker",
            "topic": "topic that it will go to",
            "keys?": "keys, or null; with a level",
            "msgId": "id that the producer gave it",
            "body?": "beginning of the body; with a level",
            "recallHandle?": "handle for `delay recall`; without a level",
        }
    ),
    "dlq export": _one(_EXPORTED),
    "dlq import": _one({"imported": "messages stored", "group": "group"}),
    "dlq list": _rows(_MESSAGE | {"sentAgain": "when it was resent, ms since 1970 each"}),
    "dlq resend": _rows({"msgId": "id of the message", "status": "SEND_OK, or how far it is safe"}),
    "doctor all": _one(
        {
            "network[]": "name servers and brokers",
            **_under("network[]", _NETWORK),
            "brokers[]": "all brokers; empty while a server cannot be reached",
            "brokers[].broker": "name of the broker",
            "brokers[].brokerId": "0: a master",
            "brokers[].address": "its address",
            "brokers[].state": "ok, or why it does not serve",
            "brokers[].findings[]": "what an operator has to mend, though it serves",
            "groups[]": "all groups; empty while a server cannot be reached",
            **_under("groups[]", _DIAGNOSIS),
        }
    ),
    "doctor group": _one(_DIAGNOSIS),
    "doctor net": _rows(_NETWORK),
    "group balance": _rows(_BALANCE),
    "group redeliver": _rows(
        {
            "broker": "name of the broker",
            "given": "messages given back",
            "left": "messages not given yet",
            "unwanted": "messages that no member wants now",
            "deleted": "messages that are not stored any more",
        }
    ),
    "group create": _one({"group": "group", "brokers": _BROKERS}),
    "group delete": _one({"group": "group", "deletedOn": "names of the brokers that had it"}),
    "group doctor": _one(_DIAGNOSIS),
    "group list": _rows(
        {
            "group": "group",
            "members": "members online",
            "topics": "topics that it subscribes or has offsets of",
            "lag": "messages that wait",
        }
    ),
    "group mode": _one({"group": "group", "modes{}": "mode by name of the broker"}),
    "group producers": _rows(_CLIENT),
    "group show": _one(
        _DIAGNOSIS
        | {
            "consumeType": "CONSUME_PASSIVELY, CONSUME_ACTIVELY or CONSUME_POP; null: no member is online",
            "messageModel": "CLUSTERING or BROADCASTING; null: no member is online",
            "consumeFromWhere": "where a new group begins; null: no member is online",
            "members[]": "members online",
            **_under("members[]", _CLIENT | {"subscribes": "its own subscriptions, `T: A`"}),
            "subscriptions[]": "subscriptions by which the broker filters",
            "subscriptions[].topic": "topic",
            "subscriptions[].expression": "tags or SQL",
            "subscriptions[].version": "when it was made, ms since 1970 as the client says",
            "queues[]": "queues with the group's progress",
            **_under("queues[]", _PROGRESS),
        }
    ),
    "ha demote": _one(
        {
            "address": "address of the broker",
            "act": "what was done",
            "brokerId?": "number as a slave, with --dry-run",
        }
    ),
    "ha promote": _one({"address": "address of the broker", "act": "what was done"}),
    "ha resync": _one(
        {
            "address": "address of the broker",
            "act": "what was done",
            "cutOff?": "files of what only this slave had, at the broker's machine",
        }
    ),
    "ha elections": _rows(
        {
            "broker": "name of the brokers",
            "epoch": "number of the election",
            "time": "when it was carried out, ms since 1970",
            "masterId": "id of the broker that was elected, as the controller numbers them; null: none",
            "master": "its address",
            "gapMs": "how long it had heard nothing of the earlier master, ms; -1: it followed none",
        }
    ),
    "ha status": _rows(
        {
            "broker": "name of the broker",
            "brokerId": "0: master, more: a slave",
            "address": "host:port for clients",
            "role": "ASYNC_MASTER, SYNC_MASTER or SLAVE",
            "end": "end of its log, bytes",
            "slaves": "slaves that follow it",
            "inSync": "of these, how many are close behind",
            "follows": "address of the master that it follows, or empty",
            "behind": "bytes that it lacks",
            "controller": "address of the controller that decides its role, or empty",
            "epoch": "number of the election by which its master leads",
            "brokersInSync": "ids of the brokers in sync, as the controller numbers them",
            "confirmed": "up to where all of them have the log: readers see no more",
            "elections": "how many it has seen since it started",
            "trouble": "what is wrong, or empty",
        }
    ),
    "message consume": _under("-", _MESSAGE),
    "message find": _rows(
        _MESSAGE | {"bodyFields{}?": "fields of the body by name, with --body-schema"}
    ),
    "message import": _one({"imported": "messages stored", "file": "file"}),
    "message send": _rows(
        {
            "status": "SEND_OK, or how far it is safe",
            **_QUEUE,
            "queueOffset": "offset in the queue",
            "msgId": "id that the producer gave it",
            "offsetMsgId": "id by its place in the broker's log",
            "recallHandle?": "handle for `delay recall`, with --deliver-at",
        }
    ),
    "message tail": _under("-", _MESSAGE),
    "message track": _rows(
        {
            "group": "group",
            "verdict": "what became of it by the broker's record; null: a broker of Apache",
            "trackType": "RocketMQ's track type, computed from offsets",
            "text": "the same in a sentence",
            "deliveries[]": "to whom it was given, as recorded",
            "deliveries[].clientId": "client id",
            "deliveries[].clientSubscription": "what that client subscribed, or null",
            "deliveries[].filteredBy": "what the broker filtered by, or null",
            "deliveries[].firstTimestamp": "ms since 1970",
            "deliveries[].lastTimestamp": "ms since 1970",
        }
    ),
    "migrate": _rows(
        {
            "level": "refused (it cannot begin) or told (something is different afterwards)",
            "what": "what is not migrated",
        }
    ),
    "offset copy": _rows(_STEP),
    "offset reset": _rows(_STEP),
    "offset set": _rows(_STEP),
    "offset show": _rows(_PROGRESS),
    "schedule create": _one(_SCHEDULE),
    "schedule delete": _one(_SCHEDULE_ACT),
    "schedule list": _rows(_SCHEDULE),
    "schedule pause": _one(_SCHEDULE_ACT),
    "schedule resume": _one(_SCHEDULE_ACT),
    "schedule show": _one(
        _SCHEDULE
        | {
            "start": "nothing before this time, ms since 1970, or null",
            "until": "nothing after this time, ms since 1970, or null",
            "missed": "what is done about missed times: once, all or skip",
            "owner": "text by which a program finds its schedules, or null",
            "tags": "tag of the message, or null",
            "keys": "keys of the message, or null",
            "properties": "properties of the message, NAME=VALUE each",
            "body": "beginning of the body",
        }
    ),
    "store archive": _one(
        {
            "files": "files copied",
            "bytes": "size of them",
            "records": "records in them",
            "archive": "where they are",
        }
    ),
    "store backup": _one(
        {
            "position": "where the log of the backup ends",
            "time": "everything stored before is in it, ms",
            "bytes": "size of its log",
            "written": "bytes that no earlier backup had",
            "removed": "older backups that were removed",
            "backup": "where it is",
        }
    ),
    "store backups": _one(
        {
            "backups[]": "backups, oldest first",
            "backups[].position": "where its log ends",
            "backups[].time": "everything stored before is in it, ms",
            "backups[].bytes": "size of its log",
            "problems[]": "what is damaged, with --check",
        }
    ),
    "store restore": _one(
        {
            "position": "where the log ends",
            "time": "everything stored before is in it, ms",
            "records": "records in it",
            "damages": "damaged places of the log, which the source had, too",
            "data": "folder of the store",
        }
    ),
    "store balance": _rows(_BALANCE),
    "store diff": _rows(
        {
            "topic": "topic",
            "queueId": "id of the queue",
            "queueOffset": "offset in the queue",
            "what": "how the two stores differ there",
        }
    ),
    "store du": _one(
        {
            "folders{}": "bytes by folder or file",
            "topics[]": "topics in the log, largest first",
            "topics[].topic": "topic",
            "topics[].messages": "messages",
            "topics[].bytes": "size of them",
            "topics[].oldest": "when the first was stored, ms since 1970",
            "topics[].newest": "when the last was stored, ms since 1970",
        }
    ),
    "store dump": _rows(
        {
            "topic": "topic",
            "queueId": "id of the queue",
            "queueOffset": "offset in the queue",
            "position": "place in the log, bytes",
            "storeSize": "bytes of the record",
            "offsetMsgId": "id by its place in the log",
            "storeTimestamp": "when it was stored, ms since 1970",
            "bornTimestamp": "when it was sent, ms since 1970",
            "bornHost": "address of its producer",
            "flag": "flag that its producer set",
            "sysFlag": "RocketMQ's flags of a record",
            "reconsumeTimes": "failures so far",
            "properties{}": "properties by name",
            "body?": "body in the form of --body; not with --body none",
        }
    ),
    "store export": _one(_EXPORTED),
    "store ls": _one(
        {
            "store": "folder",
            "lastWrittenBy": "PocketMQ or RocketMQ; null: nothing tells it",
            "stoppedCleanly": "false after a crash, and while a broker runs",
            "logFrom": "beginning of the log, bytes",
            "logTo": "end of the log, bytes",
            "logFiles": "files of the log",
            "onDisk": "bytes of the whole folder",
            "queues[]": "queues",
            "queues[].topic": "topic",
            "queues[].queueId": "id of the queue",
            "queues[].minOffset": "offset of the first message",
            "queues[].maxOffset": "offset behind the last message",
            "queues[].messages": "messages between them",
        }
    ),
    "store repair": _one(
        {
            "queues": "queues that were built",
            "damagedPlaces": "damaged places in the log",
            "offsetsMoved": "offsets of groups that were beyond the end of their queue",
            "oldFiles": "folder of the files before the repair",
            "left[]": "what is left for an operator",
            **{f"left[].{key}": word for key, word in _PROBLEM.items()},
        }
    ),
    "store verify": _one(
        {
            "records": "records checked",
            "entries": "queue entries checked",
            "sideFiles": "other files checked",
            "givenUp": "messages that a repair knew to be lost",
            "queuesUnseen": "true if the queues are in RocksDB, which is not read",
            "problems[]": "what is wrong",
            **{f"problems[].{key}": word for key, word in _PROBLEM.items()},
        }
    ),
    "subs export": _rows(
        {
            "group": "group",
            "model": "clustering or broadcasting",
            "from": "where a new group begins",
            "replaces?": "group whose work it continues",
            "subscriptions{}": "by topic, tags, or an object with the type of the expression",
        }
    ),
    "subs plan": _rows(
        {
            "group": "group",
            "consequences[]": "what members that are replaced one by one bring about",
            "consequences[].effect": "lost, delayed, twice, unwanted or dropped",
            "consequences[].group": "group",
            "consequences[].topic": "topic",
            "consequences[].messages": "which messages",
            "consequences[].why": "why",
            "steps": "the safest order",
            "lost": "messages that the group has lost before",
        }
    ),
    "lake": _one(
        {
            "rows": "rows added",
            "tables[]": "tables that got some",
            "tables[].table": "name of the table, with its namespace",
            "tables[].rows": "rows added to it",
            "files": "data files written",
            "losses[]": "what was missing or damaged, with --skip-losses",
            "maintained": "what --compact and --keep-snapshots did; null without them",
            "maintained.merged": "small files merged",
            "maintained.into": "files in their place",
            "maintained.expired": "snapshots expired",
            "maintained.deleted": "files deleted that nothing named",
        }
    ),
    "top": _one(
        {
            "failing[]": "brokers that do not serve",
            "failing[].broker": "name of the broker",
            "failing[].address": "host:port",
            "failing[].state": "why it does not serve",
            "topics[]": "busiest topics",
            "topics[].topic": "topic",
            "topics[].in": "messages stored per second",
            "topics[].messages": "messages ever stored",
            "groups[]": "groups with the most lag",
            "groups[].group": "group",
            "groups[].lag": "messages that wait",
            "groups[].in": "messages stored for it per second",
            "groups[].out": "messages that it consumes per second",
            "groups[].emptyInS": "seconds until nothing waits, `never`; null: little waits, or unknown",
        }
    ),
    "topic create": _one({"topic": "topic", "brokers": _BROKERS}),
    "topic delete": _one({"topic": "topic", "deletedOn": "names of the brokers that had it"}),
    "topic list": {"[]": "names of topics"},
    "topic show": _one(
        {
            "topic": "topic",
            "brokers[]": "brokers that have it",
            "brokers[].broker": "name of the broker",
            "brokers[].addresses": "host:port of the master and its slaves",
            "brokers[].readQueues": "queues for reading",
            "brokers[].writeQueues": "queues for writing",
            "brokers[].perm": "`rw-`: readable, writable, inherited",
            "queues[]": "queues",
            "queues[].broker": "name of the broker",
            "queues[].queueId": "id of the queue",
            "queues[].minOffset": "offset of the first message",
            "queues[].maxOffset": "offset behind the last message",
            "queues[].messages": "messages between them",
            "queues[].lastTimestamp": "when the last message was stored, ms since 1970, or null",
            "groups": "names of the groups that consume it",
        }
    ),
}
