"""A master's slaves under a controller: whom it believes, and what the end of a connection takes away."""

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.election.epochs import Epochs
from pocketmq.broker.election.in_sync import InSync
from pocketmq.broker.election.switch_slaves import SwitchSlave, SwitchSlaves
from pocketmq.broker.election.switch_wire import Epoch, Hello
from pocketmq.broker.ha.wire import HaWireError


class _Ends:
    """A log from 0 to 900."""

    commit_log_min_position, commit_log_max_position = 0, 900


@pytest.fixture
def slaves() -> SwitchSlaves:
    """Of broker 1, which leads; 2 is in sync."""
    config = BrokerConfig()
    in_sync = InSync(config, own_id=1)
    in_sync.lead(5, (1, 2), 10)
    found = SwitchSlaves(config, _Ends(), lambda: True, in_sync)
    found.epochs = Epochs("nowhere")
    found.epochs.entries = [Epoch(5, 0)]
    return found


def _greeted(slaves: SwitchSlaves, broker_id: int = 2) -> SwitchSlave:
    member = slaves.connect("10.0.0.2:1", 0)
    assert isinstance(member, SwitchSlave)
    slaves.greeted(member, Hello(broker_id, learner=False))
    return member


def test_the_end_of_an_old_connection_takes_nothing_away(slaves: SwitchSlaves) -> None:
    """RocketMQ takes the id out of the set, although a newer connection of it is there."""
    old = _greeted(slaves)
    slaves.reported(old, 900, 0)
    new = _greeted(slaves)
    slaves.reported(new, 900, 10)
    slaves.disconnect(old)
    assert slaves.set.wanted(20) is None
    slaves.disconnect(new)
    wanted = slaves.set.wanted(30)
    assert wanted is not None
    assert wanted.members == {1}


@pytest.mark.parametrize("end", [901, 1 << 40])
def test_a_report_beyond_the_log_is_no_report(slaves: SwitchSlaves, end: int) -> None:
    """RocketMQ believes it: the slave joins, and is served from the middle of a record later."""
    member = _greeted(slaves, 3)
    with pytest.raises(HaWireError, match=str(end)):
        slaves.reported(member, end, 0)
    assert slaves.set.union == {1, 2}
    slaves.reported(member, 500, 0)
    with pytest.raises(HaWireError, match="was sent up to"):
        slaves.reported(member, end, 0)


def test_a_broker_is_not_its_own_slave(slaves: SwitchSlaves) -> None:
    with pytest.raises(HaWireError, match="copied store"):
        _greeted(slaves, 1)
