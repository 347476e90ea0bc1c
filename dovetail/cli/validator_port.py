"""One request to the validator's own port: for what only the operator of a node may ask, and no REST API passes on."""

import time
import uuid
from typing import Final, TypeVar

import zmq
from google.protobuf.message import DecodeError, Message
from zmq.utils.monitor import recv_monitor_message

from dovetail.common.errors import Refused
from dovetail.common.output import printable
from dovetail.ledger.hosts import needs_ipv6
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.upstream.keys import handshake_failure, read_keys
from protos.node_pb2 import NotAllowed
from protos.validator_pb2 import Message as Envelope

ANSWER_S_MAX: Final = 30

_REFUSED: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)

AnswerT = TypeVar("AnswerT", bound=Message)


def ask(config: RestConfig, asked: Envelope.MessageType, content: Message, answer: type[AnswerT]) -> AnswerT:
    """Send one request over a connection of its own, and return the answer.

    ``config``: for the validator's address and the keys. Raises Refused, also without an answer in ``ANSWER_S_MAX``.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        keys = read_keys(config.connection_key, config.validator_key) if config.connection_key else None
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IPV6, int(needs_ipv6(config.validator)))
        socket.setsockopt(zmq.MAXMSGSIZE, config.limits.message_bytes_max)
        if keys is not None:
            keys.configure(socket)
        monitor = socket.get_monitor_socket(_REFUSED | zmq.EVENT_CLOSED)
        socket.connect(config.validator)
        name = uuid.uuid4().hex
        request = Envelope(message_type=asked, correlation_id=name, content=content.SerializeToString())
        socket.send(request.SerializeToString())
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(monitor, zmq.POLLIN)
        until_s = time.monotonic() + ANSWER_S_MAX
        while (left_s := until_s - time.monotonic()) > 0:
            ready = dict(poller.poll(int(left_s * 1000) + 1))
            if monitor in ready:
                event = int(recv_monitor_message(monitor)["event"])
                why = handshake_failure(keys, event) if event & _REFUSED else "nothing answers there"
                raise Refused(f"no connection to the validator at {config.validator}: {why}")
            if socket in ready:
                message = Envelope.FromString(socket.recv_multipart()[-1])
                if message.correlation_id == name and message.message_type == Envelope.NOT_ALLOWED:
                    raise Refused(printable(NotAllowed.FromString(message.content).message))
                if message.correlation_id == name:
                    return answer.FromString(message.content)
    except DecodeError:
        raise Refused(f"what answers at {config.validator} is no validator of this release") from None
    except (ValueError, zmq.ZMQError) as error:
        raise Refused(f"cannot ask the validator at {config.validator}: {error}") from None
    finally:
        context.destroy(linger=0)
    raise Refused(
        f"the validator at {config.validator} gave no answer within {ANSWER_S_MAX} s: does it run there, and in a"
        " release that knows this request?"
    )
