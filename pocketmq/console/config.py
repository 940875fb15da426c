"""ConsoleConfig: the settings of the web console, as `key=value` of broker.conf or --set. PocketMQ only."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import Settings, key

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8082
OFF = -1


@dataclass
class ConsoleConfig(Settings):
    """The address of the console, its login, charts and alarms."""

    port: int = key(
        DEFAULT_PORT,
        name="consolePort",
        min=OFF,
        max=65_535,
        help="Port of the web console; 0: any free one, -1: no console. When the default is in use, a free "
        "one is taken.",
    )
    host: str = key(
        LOOPBACK,
        name="consoleHost",
        help="Address that the console listens on. Beyond loopback it is read-only until consoleUser and a "
        "password are set.",
    )
    host_names: str = key(
        "",
        name="consoleHostNames",
        help="Names under which browsers may reach the console, comma-separated, beside its addresses, "
        "localhost and this machine's name (others are refused: DNS rebinding); *: any.",
    )
    trusted_proxies: str = key(
        "",
        name="consoleTrustedProxies",
        help="Trusted reverse proxies (addresses or networks, comma-separated), whose X-Forwarded-For "
        "is used for login limits and the log.",
    )
    user: str = key("", name="consoleUser", help="User of the console; set, a login is required.")
    password: str = key("", name="consolePassword", help="Password of consoleUser.")
    password_file: str = key(
        "", name="consolePasswordFile", help="File whose first line is the password of consoleUser."
    )
    broker_users: bool = key(
        False,
        name="consoleBrokerUsers",
        help="Users of the brokers (authenticationEnabled) log in, with what their policies allow. Beside a "
        "broker that has users this is so unless consoleUser is set.",
    )
    access_key: str = key(
        "",
        name="consoleAccessKey",
        help="Access key with which the console signs its requests, where brokers check signatures.",
    )
    secret_key: str = key(
        "", name="consoleSecretKey", help="Secret key of consoleAccessKey; an administrator's."
    )
    sample_interval_ms: int = key(
        3_000,
        name="consoleSampleInterval",
        min=500,
        max=60_000,
        unit="ms",
        help="Pause between two samples of rates and lag for the charts.",
    )
    folder: str = key(
        "",
        name="consoleFolder",
        help="Folder where the console keeps 30 days of charts (3.5 MB); beside a broker it is `console` in "
        "the store's folder unless set. Empty: in memory only.",
    )

    alarm_file: str = key(
        "",
        name="consoleAlarmFile",
        help="TOML file of alarm rules for groups and their web hooks; reloaded when it changes.",
    )

    @property
    def is_off(self) -> bool:
        return self.port == OFF

    @property
    def is_loopback(self) -> bool:
        """Return True if only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def proxies(self) -> list[str]:
        """Return the entries of trusted_proxies. Raises: IllegalArgument if one is no address or network."""
        found = [each.strip() for each in self.trusted_proxies.split(",") if each.strip()]
        for each in found:
            try:
                ipaddress.ip_network(each)
            except ValueError as error:
                raise IllegalArgument(
                    f"consoleTrustedProxies has {each!r}, which is neither an address nor a network: {error}"
                ) from error
        return found

    def secret(self) -> str | None:
        """Return the password; None if no login is set.

        Raises: IllegalArgument if a user has no password, a password no user, or the file is unreadable.
        """
        password = self.password
        if self.password_file:
            try:
                password = Path(self.password_file).read_text("utf-8").partition("\n")[0].strip()
            except (OSError, UnicodeDecodeError) as error:
                raise IllegalArgument(
                    f"cannot read consolePasswordFile {self.password_file}: {error}"
                ) from error
        if bool(password) != bool(self.user):
            missing = "consoleUser" if password else "consolePassword or consolePasswordFile"
            raise IllegalArgument(f"a login of the console needs {missing}, too")
        return password or None
