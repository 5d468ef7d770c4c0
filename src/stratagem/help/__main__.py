"""The command line of `stratagem help`."""

from __future__ import annotations

import os
import shutil
import sys

import click

from stratagem.core import environment, exits
from stratagem.core.errors import InputError
from stratagem.help.pages import find_page, listing, plain


@click.command(name="stratagem help", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("topic", required=False)
@click.argument("section", nargs=-1)
def _help(topic: str | None, section: tuple[str, ...]) -> int:
    """Show a guide, or one section of it; without TOPIC, list the guides.

    \b
    The guide to data:
        stratagem help data
    One section of a guide:
        stratagem help launching#how-a-worker-ends
        stratagem help launching how a worker ends
    """  # noqa: D301 - click keeps the lines below a backspace as they are
    if topic is None:
        columns = shutil.get_terminal_size((110, 24)).columns
        print(f"Guides, each shown by `stratagem help TOPIC`:\n\n{listing(columns)}")
        return 0
    name, _, anchored = topic.partition("#")
    page = find_page(name)
    wanted = anchored or " ".join(section)
    markdown = page.section(wanted) if wanted else page.text
    is_terminal = sys.stdout.isatty()
    is_styled = is_terminal and not os.environ.get(environment.NO_COLOR)
    text = plain(markdown, lambda heading: click.style(heading, bold=True) if is_styled else heading)
    if is_terminal:
        click.echo_via_pager(text + "\n")
    else:
        print(text)
    return 0


def main() -> int:
    """Run the command line; return the exit code."""
    try:
        code = _help.main(prog_name="stratagem help", standalone_mode=False) or 0
        sys.stdout.flush()
        return code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except BrokenPipeError:  # stratagem help data | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except InputError as error:
        print(f"stratagem: {error}", file=sys.stderr)
        return exits.USAGE


if __name__ == "__main__":
    sys.exit(main())
