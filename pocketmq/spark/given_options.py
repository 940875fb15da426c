"""The options that a user gave: parsed, named as they should be, and checked against their use.

Spark hands over more than the user wrote: options of its own, and the properties of a catalog's table.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import Key
from pocketmq.spark.options import (
    ANY_USE,
    BATCH_ONLY,
    NOT_FOR_USERS,
    STREAM,
    STREAM_ONLY,
    WRITE,
    WRITE_ONLY,
    Options,
)

# Spark's own options that reach a source or a sink.
_SPARKS = {
    "checkpointlocation",
    "queryname",
    "mergeschema",
    "path",
    "__ispythondatasource",
}
_TABLE_PROPERTIES = {
    "owner",
    "provider",
    "external",
    "is_managed_location",
    "comment",
    "collation",
}
_KAFKAS = {
    "kafka.bootstrap.servers": "nameServer names the name servers, host:9876;host2:9876",
    "kafka.group.id": "group names the group",
    "groupidprefix": "reads need no group of their own; group names one to begin at or to show progress in",
    "includeheaders": "columns=kafka has the column headers, and column properties holds the same",
    "kafkaconsumer.polltimeoutms": "pullTimeoutMs is the wait for an answer",
    "fetchoffset.numretries": "retryTimeoutMs is how long faults are lived with",
    "fetchoffset.retryintervalms": "retryTimeoutMs is how long faults are lived with",
}
# CREATE TABLE ... OPTIONS (subscribe ...) comes as subscribe and as option.subscribe.
_TABLE_OPTION = "option."


def parse_options(given: Mapping[str, str]) -> Options:
    """Parse the options' texts. Raises: IllegalArgument that names the option and what is allowed."""
    known: dict[str, Key] = {name.lower(): k for name, k in Options.keys().items()}
    values: dict[str, Any] = {}
    of_table = is_table(given)
    for name, text in _without_tables(given).items():
        found = known.get(name.lower())
        if found is None:
            if name.lower() in _SPARKS or (of_table and name.lower() in _TABLE_PROPERTIES):
                continue
            names = [k.name for k in known.values() if k.name not in NOT_FOR_USERS]
            instead = _instead_of(name)
            if instead:
                raise IllegalArgument(f"option {name!r} belongs to Kafka's source; here {instead}")
            near = get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
            hint = f"; did you mean {known[near[0]].name!r}?" if near else "."
            raise IllegalArgument(
                f"there is no option {name!r}{hint} The options are {', '.join(sorted(names))}"
            )
        if not str(text).strip() and found.type is str and not found.choices:
            # Mostly a variable of the job that was not set; as a default it would mean "everything".
            raise IllegalArgument(
                f"option {found.name} is empty: leave it out, or give {found.help}"
            )
        values[found.attribute] = found.parse(str(text))
    if "retry_timeout_ms" in values:
        values["first_contact_ms"] = values["retry_timeout_ms"]
    return Options(**values)


def _instead_of(name: str) -> str:
    """Return the replacement of a Kafka source's option; nothing for other names."""
    if name.lower() in _KAFKAS:
        return _KAFKAS[name.lower()]
    if name.lower().startswith(("kafka.", "kafkaconsumer.", "fetchoffset.")):
        return "nothing takes its place: leave it out"
    return ""


def _without_tables(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options as for load(): a catalog's table has a location instead of a path."""
    if not is_table(given):
        return dict(given)
    plain = {n: t for n, t in given.items() if not n.lower().startswith(_TABLE_OPTION)}
    places = [n for n in plain if n.lower() == "location"]
    for name in places:
        location = plain.pop(name)
        if not any(n.lower() == "path" for n in plain):
            plain["path"] = location
    return plain


def is_table(given: Mapping[str, str]) -> bool:
    """Return True for a catalog's table (CREATE TABLE ... USING pocketmq), not load() or save()."""
    names = {n.lower() for n in given}
    return {"provider", "owner"} <= names


def table_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options to keep with a table. Raises: IllegalArgument for secrets, which it would show."""
    kept = {n: t for n, t in _without_tables(given).items() if n.lower() not in _TABLE_PROPERTIES}
    secret = {n for n in given_names(kept) if n in ("accessKey", "secretKey", "securityToken")}
    if secret:
        raise IllegalArgument(
            f"{', '.join(sorted(secret))} would be stored in the catalog, where every user can "
            "read it: use a temporary view, CREATE TEMPORARY VIEW t USING pocketmq OPTIONS "
            "(...), or load()"
        )
    return kept


def given_names(given: Mapping[str, str]) -> set[str]:
    """Return the proper names of the given options."""
    known = {k.name.lower(): k.name for k in Options.keys().values()}
    return {known[n.lower()] for n in given if n.lower() in known}


def check_use(given: Mapping[str, str], use: str) -> None:
    """Refuse options that have no effect in this use (read, stream or write).

    Raises: IllegalArgument.
    """
    wrong: set[str] = set()
    names = given_names(given)
    if use == WRITE:
        allowed = WRITE_ONLY | ANY_USE
        wrong = names - allowed - {"path"}
        what = "writing"
    elif use == STREAM:
        wrong = names & (WRITE_ONLY | BATCH_ONLY)
        what = "a stream"
    else:
        wrong = names & (WRITE_ONLY | STREAM_ONLY)
        what = "a batch read"
    if wrong:
        raise IllegalArgument(f"{', '.join(sorted(wrong))} cannot be used for {what}; leave it out")
