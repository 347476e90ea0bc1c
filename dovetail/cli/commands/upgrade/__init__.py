"""``upgrade``: a family's next version, planned, watched and called off. Each command in a module of its own."""

import typer

from dovetail.cli.commands.upgrade import cancel, plan, rehearse, retire, status

app = typer.Typer(
    help="A family's next version: plan, rehearse, status, retire, cancel.",
    no_args_is_help=True,
)
plan.add_to(app)
rehearse.add_to(app)
status.add_to(app)
retire.add_to(app)
cancel.add_to(app)
