"""The quail-frames command: questions about the installation, and SQL over files, answered in the terminal.

It may import every part of the package; each subcommand imports what it needs when it runs, so `--help` stays quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from quail_frames.cli.doctor import doctor, installed
from quail_frames.cli.queries import estimate, sql

__all__ = ["app", "installed", "main"]

app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False)


def main() -> None:
    """Entry point of the console script."""
    app()


def print_version(wanted: bool) -> None:
    """Answer `--version` and leave."""
    if wanted:
        typer.echo(f"quail-frames {installed('quail-frames') or 'not installed (run from a source folder)'}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """AI operators for Polars data frames."""


app.command()(doctor)
app.command()(sql)
app.command()(estimate)
