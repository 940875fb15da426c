"""What an administrator changes in the files of accounts: pure functions over a content, and its writer.

    put_account        sets the given fields of an account, the others stay as they are; or adds it
    remove_account     False if the file has no such account
    write              replaces the file in one step, with the rights it had

As in RocketMQ, a file that was changed in this way loses its comments.
Source: PlainPermissionManager.updateAccessConfig and its neighbours, RocketMQ 4.9.7.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pocketmq.broker.access.account import Account
from pocketmq.broker.access.private_file import replace_private

Content = dict[str, Any]
"""What stands in a file; see acl.py."""


def put_account(content: Content, fields: Mapping[str, Any]) -> None:
    """Raises: IllegalArgument for an account that no broker would read, and without the secret."""
    Account.parse(fields)
    accounts = content.get("accounts") or []
    found = next((each for each in accounts if holds_key(each, fields["accessKey"])), None)
    if found is None:
        content["accounts"] = [*accounts, dict(fields)]
    else:
        found.update(fields)


def remove_account(content: Content, access_key: str) -> bool:
    accounts = content.get("accounts") or []
    left = [each for each in accounts if not holds_key(each, access_key)]
    content["accounts"] = left
    return len(left) < len(accounts)


def holds_key(account: Mapping[str, Any], access_key: str) -> bool:
    """Return True if it is the account with this key; YAML may have read the key as a number."""
    return str(account.get("accessKey")) == access_key


def write(path: Path, content: Content) -> None:
    """Replace a file. Blocks. Raises: OSError."""
    import yaml

    replace_private(path, yaml.safe_dump(content, allow_unicode=True, sort_keys=False))
