"""``fedsecure audit selftest``: do the attacks of this installation find what is planted, and nothing else?"""

from __future__ import annotations

from typing import Annotated

import typer

from fedsecure.commands.output import JsonOption, say
from fedsecure_attacks.cli.progress import Steps

__all__ = ["selftest"]


def selftest(
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of everything that is drawn.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Plant leaks, and none, into made-up data: do the attacks of this installation tell them apart?

    Exit code: 0 all answers are as they must be, 12 one is not. Under a minute; it says nothing of any data.
    """
    from fedsecure_attacks.selftest.run import PARTS
    from fedsecure_attacks.selftest.run import selftest as tried
    from fedsecure_attacks.strictjson import dump

    result = tried(seed, Steps(PARTS, quiet=as_json))
    if as_json:
        typer.echo(dump(result.report()), nl=False)
    else:
        width = max(len(answer.name) for answer in result.answers)
        for answer in result.answers:
            say(f"{'ok  ' if answer.passed else 'FAIL'}  {answer.name:<{width}}  {answer.found}")
            if not answer.passed:
                say(f"      {'':<{width}}  must be: {answer.must}")
        say(f"{'PASSED' if not result.word.exit_code else 'FAILED'}: {result.reason}")
    raise typer.Exit(result.word.exit_code)
