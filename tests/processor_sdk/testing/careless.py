"""Handlers with mistakes that the second run must find. They are importable, because two interpreters make them."""

import datetime
import os
import pickle
import random
import secrets
import socket
import subprocess
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from datetime import datetime as datetime_class
from pathlib import Path
from time import time as clock
from typing import Any, ClassVar

from processor_sdk import Context, InvalidTransaction, Transaction, TransactionHandler

ADDRESS = "abcdef" + "0" * 64
WORDS = ["a", "quick", "brown", "fox", "jumps", "over", "one", "lazy", "dog", "beside", "nine", "others"]
CHANCE = random.Random(7)
random.seed(7)
seen: list[str] = []


def write(context: Context, value: object) -> None:
    context.set(ADDRESS, repr(value).encode())


class Careless(TransactionHandler[bytes]):
    """Makes the mistake that the payload names."""

    family_name = "careless"
    family_version = "1.0"
    namespaces = ("abcdef",)
    count = 0
    counts: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        self.before: list[str] = []

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        MISTAKES[transaction.payload.decode()](self, context)

    def remember_on_self(self, context: Context) -> None:
        write(context, len(self.before))
        self.before.append("one")

    def remember_on_the_class(self, context: Context) -> None:
        write(context, type(self).count)
        type(self).count += 1

    def remember_in_the_module(self, context: Context) -> None:
        write(context, len(seen))
        seen.append("one")

    def swallow(self, context: Context) -> None:
        try:
            socket.create_connection(("127.0.0.1", 9))
        except Exception:
            write(context, "offline")

    def log_a_problem(self, context: Context) -> None:
        try:
            raise ValueError("a problem")
        except ValueError as problem:
            import traceback

            traceback.format_exception(problem)
        write(context, "fine")

    def import_late(self, context: Context) -> None:
        import colorsys
        import wave

        write(context, (colorsys.__name__, wave.__name__))


class Made(TransactionHandler[bytes]):
    """Writes its constructor argument."""

    family_name = "made"
    family_version = "1.0"
    namespaces = ("abcdef",)
    value: object

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        write(context, self.value)


class MadeAtATime(Made):
    def __init__(self) -> None:
        self.value = int(time.time())


class MadeSomewhere(Made):
    def __init__(self) -> None:
        self.value = "PATH" in os.environ


class MadeByChance(Made):
    def __init__(self) -> None:
        self.value = random.randrange(2**64)


class MadeInAnOrder(Made):
    def __init__(self) -> None:
        self.value = list(set(WORDS))


class MadeOnlyHere(Made):
    def __init__(self) -> None:
        self.value = os.environ["PATH"]


class MadeWith(Made):
    def __init__(self, value: object) -> None:
        self.value = value


class MadeWithALock(Made):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value = "fine"


class Moment(datetime_class):
    """A handler author's subclass of datetime."""

    @property
    def half(self) -> int:
        return self.hour // 2


class Day(datetime.date):
    """A handler author's subclass of date."""

    @property
    def quarter(self) -> int:
        return (self.month + 2) // 3


def utcnow() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return datetime_class.utcnow().date()


def refuse_with_the_time(_handler: Any, _context: Context) -> None:
    raise InvalidTransaction("too late", str(int(time.time())).encode())


def spin_elsewhere(_handler: Any, context: Context) -> None:
    context.get(ADDRESS)
    while "PATH" not in os.environ:
        pass


def refuse_in_set_order(_handler: Any, _context: Context) -> None:
    raise InvalidTransaction(f"it wants one of {set(WORDS)}")


def events_in_set_order(_handler: Any, context: Context) -> None:
    for word in set(WORDS):
        context.add_event(word)


def writes_in_set_order(_handler: Any, context: Context) -> None:
    for number in set(WORDS):
        context.set("abcdef" + number.encode().hex().ljust(64, "0"), b"1")


def fail_elsewhere(_handler: Any, context: Context) -> None:
    write(context, len(os.environ["PATH"]))


def end_the_process(_handler: Any, context: Context) -> None:
    if "PATH" not in os.environ:
        os._exit(86)


NS_OF_A_DAY = 86_400 * 10**9
Mistake = Callable[[Any, Context], None]


def writing(value: Callable[[], object]) -> Mistake:
    return lambda _handler, context: write(context, value())


def of_the_day(name: str) -> Mistake:
    """Reads a clock of the module ``time``, rounded to a day."""
    return writing(lambda: getattr(time, name)() // (NS_OF_A_DAY if name.endswith("_ns") else 86_400))


DIFFERENT: dict[str, Mistake] = {
    "from time import time": writing(lambda: int(clock())),
    **{
        name: of_the_day(name)
        for clock in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
        for name in (clock, f"{clock}_ns")
    },
    "clock_gettime": writing(lambda: time.clock_gettime(time.CLOCK_REALTIME) // 86_400),
    "clock_gettime_ns": writing(lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC) // NS_OF_A_DAY),
    "times": writing(lambda: os.times().elapsed // 86_400),
    "localtime": writing(lambda: time.localtime().tm_yday),
    "gmtime": writing(lambda: time.gmtime()[:3]),
    "ctime": writing(lambda: time.ctime()[4:10]),
    "mktime": writing(lambda: time.mktime((2020, 1, 1, 0, 0, 0, 0, 0, 0))),
    "zone of a datetime": writing(lambda: datetime_class.fromtimestamp(0).hour),
    "today of datetime": writing(lambda: datetime_class.today().date()),
    "utcnow": writing(utcnow),
    "now of a subclass": writing(lambda: Moment.now().date()),
    "today of a subclass": writing(lambda: Day.today().toordinal()),
    "folder": writing(os.getcwd),
    "extended data": refuse_with_the_time,
    "strftime": writing(lambda: time.strftime("%Y-%m-%d")),
    "datetime": writing(lambda: datetime.datetime.now().date()),
    "from datetime import datetime": writing(lambda: datetime_class.now(datetime.UTC).date()),
    "today": writing(lambda: datetime.date.today().isoformat()),
    "time zone": writing(lambda: time.localtime(0).tm_hour),
    "random": writing(lambda: random.randrange(2**64)),
    "urandom": writing(lambda: os.urandom(8)),
    "secrets": writing(lambda: secrets.token_hex(8)),
    "uuid4": writing(uuid.uuid4),
    "id": writing(lambda: id(object())),
    "hash": writing(lambda: hash("text")),
    "set order": writing(lambda: ",".join(set(WORDS))),
    "pid": writing(os.getpid),
    "environment": fail_elsewhere,
    "message in set order": refuse_in_set_order,
    "events in set order": events_in_set_order,
}
LATER: dict[str, Mistake] = {
    "on self": Careless.remember_on_self,
    "on the class": Careless.remember_on_the_class,
    "in the module": Careless.remember_in_the_module,
    "chance of the module": writing(lambda: CHANCE.random()),
}
"""Mistakes that show only in a second transaction."""

FORBIDDEN: dict[str, Mistake] = {
    "uses the network: socket.getaddrinfo('localhost'": writing(lambda: socket.getaddrinfo("localhost", 80)[0][0]),
    "uses the network: socket.gethostname(": writing(socket.gethostname),
    "starts a process: subprocess.Popen(": writing(lambda: subprocess.run(["true"]).returncode),
    "starts a process: os.system(": writing(lambda: os.system("true")),
    "starts a thread: threading.Thread.start(": writing(lambda: threading.Thread(target=int).start()),
    "opens a file: open('/etc/passwd'": writing(lambda: len(Path("/etc/passwd").read_bytes())),
    "reads a folder: os.listdir('/')": writing(lambda: len(os.listdir("/"))),
    "uses the network: socket.": Careless.swallow,
}
FINE: dict[str, Mistake] = {
    "writes in set order": writes_in_set_order,
    "sorted": writing(lambda: sorted(set(WORDS))),
    "a seed of its own": writing(lambda: random.Random(7).random()),
    "a given time": writing(
        lambda: (datetime.datetime(2020, 1, 2), isinstance(datetime.date(2020, 1, 2), datetime.date))
    ),
    "gmtime of a given time": writing(lambda: time.strftime("%H", time.gmtime(0))),
    "a subclass of datetime": writing(lambda: (Moment(2020, 1, 2, 10).half, repr(Moment(2020, 1, 2)))),
    "a subclass of date": writing(lambda: (Day(2020, 4, 1).quarter, isinstance(Day(2020, 4, 1), datetime.date))),
    "no subclass": writing(lambda: isinstance(datetime_class(2020, 1, 2), Moment)),
    "its type": writing(lambda: {datetime.datetime: "moment"}.get(type(datetime_class(2020, 1, 2)))),
    "pickled": writing(lambda: pickle.dumps([datetime.datetime(2020, 1, 2), datetime.date(2020, 1, 2)])),
    "a traceback": Careless.log_a_problem,
    "imports": Careless.import_late,
}
MISTAKES: dict[str, Mistake] = {
    **DIFFERENT,
    **LATER,
    **FORBIDDEN,
    **FINE,
    "end the process": end_the_process,
    "spin": spin_elsewhere,
}
