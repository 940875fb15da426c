"""How planners and tasks connect to brokers and name servers."""

from dataclasses import dataclass

from pocketmq.remoting.credentials import Credentials
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.transport.blocking import BlockingConnection
from pocketmq.remoting.transport.tls import client_context
from pocketmq.spark.options import Options


@dataclass(frozen=True)
class BrokerAccess:
    """How to connect; primitives only, so that it travels to executors.

    first_contact_ms: how long to wait for name servers that have never answered; None: as for any other
    fault.
    """

    name_server: str
    timeout_ms: int = 3000
    access_key: str = ""
    secret_key: str = ""
    use_tls: bool = False
    security_token: str = ""
    retry_timeout_ms: int = 1000
    first_contact_ms: int | None = None

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.access_key, self.secret_key, self.security_token or None)

    @classmethod
    def of(cls, options: Options, *, planning: bool = False) -> "BrokerAccess":
        """Read the options. planning: for the driver, where a name server that never answered is probably a
        wrong one.

        Raises: IllegalArgument when only one of the two keys is given.
        """
        if bool(options.access_key) != bool(options.secret_key):
            raise IllegalArgument("accessKey and secretKey belong together: give both or none")
        if options.security_token and not options.access_key:
            raise IllegalArgument(
                "option securityToken needs accessKey and secretKey: give both, too"
            )
        return cls(
            options.name_server,
            options.pull_timeout_ms,
            options.access_key,
            options.secret_key,
            options.use_tls,
            options.security_token,
            options.retry_timeout_ms,
            options.first_contact_ms if planning else None,
        )

    def connect(self, address: str) -> BlockingConnection:
        """Open a connection. Raises: ConnectFailed."""
        return BlockingConnection(
            address,
            timeout_ms=self.timeout_ms,
            credentials=self.credentials if self.access_key else None,
            tls=client_context() if self.use_tls else None,
        )
