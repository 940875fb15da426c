"""The gRPC port beside `up` and `broker`: whether to open one, decided before `ready`."""

from contextlib import AsyncExitStack

from pocketmq.broker.broker import Broker
from pocketmq.cli.servers.listening import cannot_listen
from pocketmq.grpc.config import OFF, GrpcConfig
from pocketmq.grpc.server import GrpcServer
from pocketmq.remoting.transport.tls import ServerTls

_PORT = "grpcServerPort"


def read_grpc_config(settings: dict[str, str], *, by_default: bool) -> tuple[GrpcConfig, bool]:
    """Take the front's settings out of `settings`; also return whether its port was requested.

    by_default: whether there is a port if nothing is said about it. Raises: IllegalArgument.
    """
    asked = _PORT in settings
    if not asked and not by_default:
        settings[_PORT] = str(OFF)
    return GrpcConfig.taken_from(settings), asked


async def grpc_port(
    stack: AsyncExitStack,
    config: GrpcConfig,
    broker: Broker,
    tls: ServerTls,
    *,
    port_is_asked: bool,
) -> str:
    """Serve the SDKs until `stack` is left. Returns: the address; empty if there is no such port.

    If the port was not requested and another program has it, any free one is used. Raises: CannotBegin.
    """
    if config.is_off:
        return ""
    try:
        server = GrpcServer(broker, config, port_is_wish=not port_is_asked, tls=tls)
        await stack.enter_async_context(server)
    except OSError as error:
        host = broker.config.listen_address
        raise cannot_listen(host, config.port, "--grpc-port", error) from error
    return server.address
