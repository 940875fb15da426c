"""Signatures: the one rule of clients, brokers and the data source."""

import base64
import hashlib
import hmac

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.credentials import Credentials


def test_the_signature_is_that_of_the_known_answer() -> None:
    """HMAC-SHA1 over the values in the order of their names, then the body; Base64."""
    command = RemotingCommand(RequestCode.SEND_MESSAGE, {"b": "2", "a": "1"}, b"body")
    Credentials("ak", "secret").sign(command)
    wanted = base64.b64encode(hmac.new(b"secret", b"ak12body", hashlib.sha1).digest()).decode()
    assert (command.ext or {})["Signature"] == wanted


def test_a_security_token_is_sent_and_signed() -> None:
    command = RemotingCommand(RequestCode.SEND_MESSAGE, {"a": "1"}, b"")
    Credentials("ak", "secret", "token").sign(command)
    wanted = base64.b64encode(hmac.new(b"secret", b"aktoken1", hashlib.sha1).digest()).decode()
    assert (command.ext or {})["SecurityToken"] == "token"
    assert (command.ext or {})["Signature"] == wanted
