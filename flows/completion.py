"""What makes a shell complete the command line: click's scripts, which here put no blank after a name that goes on.

A parameter's name ends in `=`, and its value follows; a group's ends in a dot, and a name in it follows. fish leaves the blank
out by itself.
"""

from __future__ import annotations

from typing import ClassVar

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from offline_core.errors import ConfigError

_BASH_END = "    return 0\n"
_BASH = "    [[ ${COMPREPLY[0]} == *[=.] ]] && compopt -o nospace\n\n"
_ZSH_END = '    if [ -n "$completions_with_descriptions" ]; then\n'
_ZSH = "    local -a suffix\n    [[ $completions$completions_with_descriptions == *[=.](|:*) ]] && suffix=(-S '')\n\n"


class _Bash(BashComplete):
    source_template: ClassVar[str] = BashComplete.source_template.replace(_BASH_END, _BASH + _BASH_END)


class _Zsh(ZshComplete):
    source_template: ClassVar[str] = (
        ZshComplete.source_template.replace(_ZSH_END, _ZSH + _ZSH_END)
        .replace("descriptions -U", 'descriptions -U "${suffix[@]}"')
        .replace("compadd -U", 'compadd "${suffix[@]}" -U')
    )


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": FishComplete}


def script_of(shell: str, app: click.Command) -> str:
    """The script that a shell runs at its start.

    Raises:
        ConfigError: there is none for this shell.
    """
    if shell not in SHELLS:
        raise ConfigError(f"There is no completion for {shell!r}; there is one for bash, zsh and fish.")
    return SHELLS[shell](app, {}, "offline", "_OFFLINE_COMPLETE").source()
