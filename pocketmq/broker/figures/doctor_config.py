"""DoctorConfig: from when on something about a group is a symptom (model.diagnosis). PocketMQ only."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketmq.remoting.settings import Settings, key

if TYPE_CHECKING:
    from pocketmq.model.diagnosis import Thresholds


@dataclass
class DoctorConfig(Settings):
    """Thresholds of `pocketmq group doctor`, the console and /metrics."""

    doctor_lag_max: int = key(
        10_000,
        name="doctorLagMax",
        min=1,
        runtime=True,
        help="A group counts as sick when it is this many messages behind in a topic, or a tenth of it "
        "that takes more than ten minutes (group doctor, console and /metrics).",
    )
    doctor_retries_per_minute_max: int = key(
        10,
        name="doctorRetriesPerMinuteMax",
        min=0,
        runtime=True,
        help="A group counts as sick when more messages than this fail in a minute, or ten times as many in "
        "an hour.",
    )
    doctor_dead_letters_max: int = key(
        0,
        name="doctorDeadLettersMax",
        min=0,
        runtime=True,
        help="A group counts as sick when it has more dead letters than this.",
    )
    doctor_stuck_time: int = key(
        120_000,
        name="doctorStuckTime",
        min=1_000,
        unit="ms",
        runtime=True,
        help="A member counts as stuck when it holds messages and has finished none for this long.",
    )
    doctor_offline_time: int = key(
        600_000,
        name="doctorOfflineTime",
        min=0,
        unit="ms",
        runtime=True,
        help="A group without a member counts as sick when its next message has waited for this long. After "
        "a day without a member only a lag of doctorLagMax counts.",
    )

    @property
    def thresholds(self) -> "Thresholds":
        """Return them for a diagnosis."""
        # At no start: few brokers are asked for one.
        from pocketmq.model.diagnosis import Thresholds

        return Thresholds(
            lag_max=self.doctor_lag_max,
            retries_max=self.doctor_retries_per_minute_max,
            dead_letters_max=self.doctor_dead_letters_max,
            stuck_ms=self.doctor_stuck_time,
            offline_ms=self.doctor_offline_time,
        )
