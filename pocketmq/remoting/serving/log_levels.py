"""LogConfig: how much the log says, by module, and changed while the broker runs."""

import logging
from dataclasses import dataclass

from pocketmq.remoting.settings import Settings, key

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_OURS = "pocketmq"


@dataclass
class LogConfig(Settings):
    """The log of this process; servers of one process share it."""

    log_levels: str = key(
        "",
        name="logLevels",
        runtime=True,
        # A module and a level, any number of them, with commas between.
        form=rf"(pocketmq(\.\w+)*=({'|'.join(LEVELS)})(\s*,\s*(?=pocketmq)|$))*",
        help="Levels by module, such as `pocketmq.broker.ha=DEBUG,pocketmq.namesrv=WARNING`; a module "
        "without one has that of `--log-level`. PocketMQ only.",
    )


def apply_levels(text: str) -> None:
    """Give each named module its level, and those not named any more the one above them."""
    wanted = dict(each.strip().split("=") for each in text.split(",") if each.strip())
    for name, known in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] == _OURS and isinstance(known, logging.Logger):
            known.setLevel(logging.NOTSET)
    for name, level in wanted.items():
        logging.getLogger(name).setLevel(level)


def start_with_levels(text: str) -> None:
    """Apply the levels that a server starts with; without any, those that its program has set stay."""
    if text:
        apply_levels(text)
