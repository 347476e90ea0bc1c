"""``upgrade``: a family's next version, planned, watched and called off. Each command has a module of its own."""

from dovetail.cli.lazy import lazy_group

app = lazy_group(
    "dovetail.cli.commands.upgrade",
    {
        "plan": "Plan that NEW may enter blocks from a block on, and when OLD may no more.",
        "rehearse": "Judge a family's past transactions by its next handler, and show what would end otherwise.",
        "status": "Show which versions may enter which blocks, who is ready for them, and what would happen if their"
        " block came now.",
        "retire": "End a version, once its clients have moved.",
        "cancel": "Call off the plan for NEW, before its block or, where NEW migrates state, before its migration is"
        " made.",
    },
    help="A family's next version: plan, rehearse, status, retire, cancel.",
)
