"""``status``: a node's readiness, head, queue, processors, and totals since its start."""

import contextlib
from collections.abc import Iterable
from typing import Any, Final

import typer
from prometheus_client.samples import Sample

from dovetail.cli.options import Json, Url, examples
from dovetail.cli.printing import print_json, print_table, short
from dovetail.client import ApiError, DovetailClient
from dovetail.common.errors import Refused
from dovetail.common.output import printable
from dovetail.common.urls import DEFAULT_URL, misread, shown_url

app = typer.Typer()

_NOT_READY: Final = 15
_TOTALS: Final = (
    ("blocks", "committed"),
    ("batches", "committed"),
    ("batches", "invalid"),
    ("transactions", "committed"),
    ("transactions", "invalid"),
)


@app.command(epilog=examples("dovetail status", "dovetail status --url http://127.0.0.1:8080 --json"))
def status(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show whether a node is ready, its head, its queue, its processors, and what it has committed since it started.

    Exit code 1, with the reason, when it is not ready.
    """
    ready: dict[str, Any] = {}
    samples: list[Sample] = []
    reason = ""
    with DovetailClient(url) as client:
        try:
            ready = client.data("/readyz")
        except ApiError as error:
            # A validator without a genesis block answers the other requests.
            if error.code != _NOT_READY:
                raise
            reason = str(error)
        totals, config = client.data("/stats/validator"), client.data("/status/config")
        # A proxy may forbid /metrics and allow the rest.
        with contextlib.suppress(ApiError):
            samples = client.metrics()
    counted = {
        "pending_by_reason": _counts(samples, "dovetail_validator_pending_batches", "reason"),
        "processors": _counts(samples, "dovetail_validator_processors", "family", "version"),
    }
    if as_json:
        state = {"reason": reason} if reason else ready
        print_json({"ready": not reason, **state, **counted, "stats": totals, "config": config})
    else:
        try:
            has_metrics = any(sample.name.startswith("dovetail_validator_") for sample in samples)
            _show(url, ready, totals, config, has_metrics=has_metrics, **counted)
        except (LookupError, TypeError, AttributeError):
            raise Refused(misread(shown_url(url))) from None
    if reason:
        raise Refused(f"not ready: {reason}")


def _counts(samples: Iterable[Sample], name: str, *labels: str) -> dict[str, int]:
    """The samples of one metric that are not 0, by their labels' values joined with colons."""
    return {
        ":".join(sample.labels.get(label, "") for label in labels): int(sample.value)
        for sample in samples
        if sample.name == name and sample.value
    }


def _show(
    url: str,
    ready: dict[str, Any],
    totals: dict[str, Any],
    config: dict[str, Any],
    *,
    has_metrics: bool,
    pending_by_reason: dict[str, int],
    processors: dict[str, int],
) -> None:
    limits = config["limits"]
    lines = [("REST API", f"{shown_url(url)}, {ready['status'] if ready else 'not ready'}")]
    if ready:
        reasons = ", ".join(f"{count} {reason}" for reason, count in pending_by_reason.items())
        pending = f"{ready['pending_batches']} of at most {limits['pending_batches_max']} batches"
        lines += [
            ("head", f"block {ready['head_num']}, {short(ready['head_id'])}"),
            ("pending", pending + (f": {reasons}" if reasons else "")),
        ]
        lines += [(held["condition"], held["message"]) for held in ready.get("conditions", ())]
        lines += [("warning", warning) for warning in ready.get("warnings", ())]
    if has_metrics:
        there = ", ".join(f"{count} of {family}" for family, count in processors.items())
        lines.append(("processors", there or "none"))
    validator = config["validator"]
    lines += [
        ("validator", f"{validator['bind']}, version {validator['version']}"),
        ("a block", f"at most {limits['block_transactions_max']} transactions"),
        ("a request", f"at most {config['rest_api']['body_bytes_max']} bytes"),
    ]
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        typer.echo(f"{name:{width}}  {printable(text)}")
    typer.echo()
    families = {"all": totals} | {name: entry for name, entry in totals.items() if ":" in name}
    print_table(
        ("SINCE ITS START", *(f"{outcome} {what}".upper() for what, outcome in _TOTALS)),
        [(name, *(entry[what][outcome] for what, outcome in _TOTALS)) for name, entry in families.items()],
    )
