"""``upgrade``: plans, rehearses, watches and cancels a family's next version. Each command has its own module."""

from dovetail.cli.lazy import lazy_group

app = lazy_group(
    "dovetail.cli.commands.upgrade",
    {
        "plan": "Plan that NEW may enter blocks from a block on, and when OLD may no more.",
        "rehearse": "Execute a family's past transactions with its next handler, and show different outcomes.",
        "status": "Show which versions may enter which blocks, who is ready for them, and what would happen if their"
        " block came now.",
        "retire": "End a version, once its clients have moved.",
        "cancel": "Call off the plan for NEW, before its block or, where NEW migrates state, before its migration is"
        " made.",
    },
    help="A family's next version: plan, rehearse, status, retire, cancel.",
)
