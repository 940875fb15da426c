"""Which policy decides: by type, resource, action and address, as RocketMQ 5.5.0 decides."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.broker.access.account import AccountPermission
from pocketmq.broker.access.users.asked import asked_by_needs
from pocketmq.broker.access.users.policy import (
    ENTRIES_MAX,
    Asked,
    PolicyEntry,
    PolicyType,
    ResourceKind,
    UserPolicies,
    parse_address,
)
from pocketmq.broker.access.users.user import User
from pocketmq.broker.access.users.validator import refused
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.requests import Action

ADDRESS = "10.1.2.3"


def line(resource: str, actions: str = "All", decision: str = "Allow", *ips: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "resource": resource,
        "actions": actions.split(","),
        "decision": decision,
    }
    return {**found, "sourceIps": list(ips)} if ips else found


def policies(*lines: dict[str, Any], default: tuple[dict[str, Any], ...] = ()) -> UserPolicies:
    found = [{"policyType": "Custom", "entries": list(lines)}] if lines else []
    if default:
        found.append({"policyType": "Default", "entries": list(default)})
    return UserPolicies.parse(found)


def asked(key: str, *actions: Action) -> Asked:
    kind, _, name = key.partition(":")
    return Asked(ResourceKind(kind), name, frozenset(actions or (Action.PUB,)))


DENY = "Deny"
CASES: dict[str, tuple[UserPolicies, str, bool]] = {
    "nothing fits": (policies(line("Topic:U")), "Topic:T", False),
    "a whole name": (policies(line("Topic:T")), "Topic:T", True),
    "not a beginning": (policies(line("Topic:T")), "Topic:TT", False),
    "a beginning": (policies(line("Topic:T*")), "Topic:TT", True),
    "another kind": (policies(line("Group:T")), "Topic:T", False),
    "all of a kind": (policies(line("Topic:*")), "Topic:T", True),
    "all": (policies(line("*")), "Cluster:c", True),
    "a name before a beginning": (
        policies(line("Topic:T*"), line("Topic:TT", "Pub", DENY)),
        "Topic:TT",
        False,
    ),
    "a longer beginning": (
        policies(line("Topic:T*", "Pub", DENY), line("Topic:TT*")),
        "Topic:TTT",
        True,
    ),
    "a beginning before all": (
        policies(line("Topic:*", "All", DENY), line("Topic:T*")),
        "Topic:T",
        True,
    ),
    "all of a kind before all": (
        policies(line("*"), line("Topic:*", "Pub", DENY)),
        "Topic:T",
        False,
    ),
    "another action's deny": (
        policies(line("Topic:T*"), line("Topic:T", "Sub", DENY)),
        "Topic:T",
        True,
    ),
    "custom before default": (
        policies(line("Topic:*"), default=(line("Topic:T", "Pub", DENY),)),
        "Topic:T",
        True,
    ),
    "default if custom has nothing": (
        policies(line("Topic:U"), default=(line("Topic:*"),)),
        "Topic:T",
        True,
    ),
    "a name with a colon": (policies(line("Topic:a:b")), "Topic:a:b", True),
    "from a network": (policies(line("Topic:T", "Pub", "Allow", "10.0.0.0/8")), "Topic:T", True),
    "from another address": (
        policies(line("Topic:T", "Pub", "Allow", "10.1.2.4")),
        "Topic:T",
        False,
    ),
    "from one of two": (policies(line("Topic:T", "Pub", "Allow", "::1", ADDRESS)), "Topic:T", True),
    "denied from a network": (
        policies(line("Topic:*"), line("Topic:T", "Pub", DENY, "10.0.0.0/8")),
        "Topic:T",
        False,
    ),
    "a topic of the broker": (
        policies(line("*"), line("Topic:*")),
        f"Topic:{SCHEDULE_TOPIC}",
        False,
    ),
    "a topic of the broker by name": (
        policies(line(f"Topic:{SCHEDULE_TOPIC}")),
        f"Topic:{SCHEDULE_TOPIC}",
        True,
    ),
    "an empty name": (policies(line("Topic:")), "Topic:T", False),
}


@pytest.mark.parametrize("name", CASES)
def test_one_line_decides(name: str) -> None:
    held, resource, allowed = CASES[name]
    assert held.decide(asked(resource), ADDRESS).allowed is allowed


WRONG = {
    "a kind that does not exist": line("Nope:x"),
    "no kind": line("x"),
    "a blank": line(""),
    "a star before a kind": line("*:x"),
    "a star in the middle": line("Topic:a*b*"),
    "two stars": line("Topic:a**"),
    "a line break": line("Topic:a\nb"),
    "a long name": line("Topic:" + "x" * 256),
    "Any": line("Topic:T", "Any"),
    "an unknown action beside one": line("Topic:T", "Pub,Fly"),
    "no action": {**line("Topic:T"), "actions": []},
    "an action that is no text": {**line("Topic:T"), "actions": [1]},
    "an unknown decision": line("Topic:T", "Pub", "Maybe"),
    "no address": line("Topic:T", "Pub", "Allow", "10.0.0.300"),
    "a pattern of ACL 1.0": line("Topic:T", "Pub", "Allow", "10.0.0.*"),
    "a mask": line("Topic:T", "Pub", "Allow", "10.0.0.0/255.0.0.0"),
    "a zone": line("Topic:T", "Pub", "Allow", "fe80::1%eth0"),
    "addresses that are no list": {**line("Topic:T"), "sourceIps": "10.0.0.1"},
}


@pytest.mark.parametrize("name", WRONG)
def test_malformed_line_is_refused(name: str) -> None:
    with pytest.raises(IllegalArgument):
        PolicyEntry.parse(WRONG[name])


@pytest.mark.parametrize(
    ("network", "address", "inside"),
    [
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("::ffff:10.0.0.0/104", "10.1.2.3", True),
        # As numbers they are one range in RocketMQ.
        ("10.0.0.0/8", "::a01:203", False),
        ("::1", "[::1]", True),
        ("2001:db8::/32", "[2001:db8::7]", True),
        ("2001:db8::/32", "[2001:db9::7]", False),
    ],
)
def test_both_kinds_of_addresses_are_compared_as_addresses(
    network: str, address: str, inside: bool
) -> None:
    held = policies(line("Topic:T", "Pub", "Allow", network))
    assert held.decide(asked("Topic:T"), address).allowed is inside


def test_address_that_is_none_fits_denials_only() -> None:
    assert parse_address("unix") is None
    allowed = policies(line("Topic:T", "Pub", "Allow", "0.0.0.0/0"))
    denied = policies(line("Topic:*"), line("Topic:T", "Pub", DENY, "10.0.0.0/8"))
    assert not allowed.decide(asked("Topic:T"), "unix").allowed
    assert not denied.decide(asked("Topic:T"), "unix").allowed


def test_lines_of_one_resource_are_one_line() -> None:
    held = policies(line("Topic:T"), line("Topic:T", "Sub", DENY)).merged(policies(line("Topic:U")))
    assert [str(each) for each in held.custom] == ["Deny Sub on Topic:T", "Allow All on Topic:U"]


def test_too_many_lines_are_refused() -> None:
    full = policies(*(line(f"Topic:t{number}") for number in range(ENTRIES_MAX)))
    with pytest.raises(IllegalArgument):
        full.merged(policies(line("Topic:more")))


def test_pop_retries_of_a_denied_group_stay_its_own() -> None:
    held = policies(line("Group:*", "Sub"), line("Group:secret", "All", DENY))
    retries = list(asked_by_needs([("%RETRY%secret_T", AccountPermission.SUB)]))
    assert [refused(held, each, ADDRESS) for each in retries] == [
        "the decision for Group:secret is deny."
    ]
    named = held.merged(policies(line("Group:secret_T", "Sub")))
    assert [refused(named, each, ADDRESS) for each in retries] == [None]
    both = [each.key for each in asked_by_needs([("%RETRY%G+T", AccountPermission.SUB)])]
    assert both == ["Group:G", "Topic:T"]


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "../../x", "a,b", "a\n", "x" * 129, None, 7]
)
def test_names_that_no_header_can_carry_are_refused(name: object) -> None:
    with pytest.raises(IllegalArgument):
        User.parse({"username": name, "password": "secret"})


_NAMES = st.sampled_from(["a", "ab", "abc", "b"])
_LINES = st.builds(
    line,
    st.one_of(
        st.builds("{}:{}{}".format, st.sampled_from(["Topic", "Group"]), _NAMES, st.sampled_from(["", "*"])),
        st.sampled_from(["*", "Topic:*", "Group:*"]),
    ),
    st.sampled_from(["Pub", "Sub", "Pub,Sub", "All"]),
    st.sampled_from(["Allow", DENY]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(_LINES, min_size=1, max_size=6), _LINES, _NAMES)
def test_what_covers_another_state_allows_all_of_it(
    lines: list[dict[str, Any]], more: dict[str, Any], name: str
) -> None:
    """A connection is left open only if nothing was lost; and a table is what its JSON says."""
    before = policies(*lines)
    after = before.merged(policies(more))
    assert UserPolicies.parse(after.to_json()) == after
    if after.cover(before):
        for action in (Action.PUB, Action.SUB, Action.GET):
            question = asked(f"Topic:{name}", action)
            if before.decide(question, ADDRESS).allowed:
                assert after.decide(question, ADDRESS).allowed
    assert before.without(PolicyType.CUSTOM, before.custom[0].resource) != before
