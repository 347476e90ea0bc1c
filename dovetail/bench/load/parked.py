"""Batches that stay in a node's queue during a run, because no processor serves their family."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dovetail.bench.connection import Target
from dovetail.bench.request_loop import ask
from dovetail.bench.signed_load import Load, Post, sign
from dovetail.common.errors import Refused
from dovetail.common.workers import Workers
from dovetail.node.config import load as load_config

_CONNECTIONS: Final = 16


async def sign_parked(
    workers: Workers, load: Load, transactions: int, beside: int, on_signed: Callable[[int], None]
) -> list[Post]:
    """Sign ``transactions`` transactions in batches like the load's, for a family that the load does not use.

    ``beside``: how many more transactions the queue must hold. Raises Refused if the node's limits, as this process's
    environment sets them, are too low.
    """
    parked = replace(load, first_family=load.families, families=1, transactions=transactions)
    posts = await sign(workers, parked, on_signed)
    limits = load_config(config_file=None, environ=os.environ, flags={}).validator.limits
    a_transaction = sum(len(post.body) for post in posts) / transactions
    needed = {
        "transactions": transactions + beside,
        "batches": parked.batches + -(-beside // load.shape),
        "bytes": round((transactions + beside) * a_transaction),
    }
    most = {name: getattr(limits, f"pending_{name}_max") for name in needed}
    lacking = [name for name in needed if needed[name] > most[name]]
    if lacking:
        wanted = ", ".join(f"{needed[name]} {name}" for name in lacking)
        held = ", ".join(f"{most[name]} {name}" for name in lacking)
        set_them = " ".join(f"DOVETAIL_LIMITS_PENDING_{name.upper()}_MAX={needed[name]}" for name in lacking)
        raise Refused(
            f"--parked {transactions} and {beside} transactions beside it are {wanted}, the node's queue holds {held}:"
            f" set {set_them}"
        )
    return posts


async def park(url: str, posts: list[Post], on_accepted: Callable[[int], None]) -> None:
    """Submit the parked batches. Raises Refused."""
    target = Target.of(url)
    requests = [target.post("/batches", post.body) for post in posts]
    a_post = posts[0].transactions
    await ask(
        url,
        requests,
        status="202",
        connections=_CONNECTIONS,
        on_answered=lambda answered: on_accepted(answered * a_post),
    )
