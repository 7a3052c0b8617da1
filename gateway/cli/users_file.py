"""The users file in the hands of one command: read, and written while nobody else writes it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.cli.errors import EX_CANTCREAT, EX_FAILED, EX_USAGE, CliError
from gateway.config.lockout import lockout_problem
from gateway.config.tree import Config
from gateway.security.users import NoUserError, TakenError, Users, UsersError, parse_users
from storage.files import RealFiles, durable_replace

#: Makes the text of a users file out of the one before.
Edit = Callable[[str], str]


class UsersFile:
    """The users file of a configuration.

    Attributes:
        known: the users in it, as they were when it was last read or written.
    """

    def __init__(self, config: Config) -> None:
        """Read it. Raises UsersError, OSError."""
        self._config = config
        # What a link points to is written, and not the link.
        self._path = os.path.realpath(config.users_file)
        self.known: Users = parse_users(self._text())

    def change(self, edit: Edit) -> None:
        """Write what `edit` makes of it, whole, and readable by its owner only.

        Raises UsersError, OSError, and CliError when nobody could administer the gateway any more.
        """
        files = RealFiles()
        folder = os.path.dirname(self._path)  # noqa: PTH120 - the file port takes texts
        files.mkdir(folder)
        with _alone(folder):
            before = self._text()
            text = edit(before)
            users = parse_users(text)
            old, new = ([one.roles for one in u.values()] for u in (parse_users(before), users))
            config = self._config
            problem = lockout_problem(config, new, before=(config, old))
            if problem is not None:
                raise CliError("locks-out", problem.text, status=EX_USAGE)
            owner = self._owner()
            durable_replace(files, self._path, text.encode())
            if owner is not None:
                os.chown(self._path, *owner)
        self.known = users

    def _owner(self) -> tuple[int, int] | None:
        """Return whose the file has to be where root writes it, so that a gateway can read it."""
        if os.geteuid() != 0:
            return None
        path = Path(self._path)
        facts = (path if path.exists() else path.parent).stat()
        return facts.st_uid, facts.st_gid

    def _text(self) -> str:
        try:
            return Path(self._path).read_text("utf-8")
        except FileNotFoundError:
            return ""


@contextmanager
def opened(config: Config) -> Iterator[UsersFile]:
    """Read the users file; what goes wrong with it, or with a user, ends the command."""
    path = config.users_file
    try:
        yield UsersFile(config)
    except TakenError as error:
        text = f"{path}: {error}"
        raise CliError("bad-user", text, attempt="add --replace", status=EX_USAGE) from None
    except NoUserError as error:
        raise CliError("not-found", f"{path}: {error}", status=EX_FAILED) from None
    except (UsersError, UnicodeDecodeError) as error:
        raise CliError("bad-user", f"{path}: {error}", status=EX_USAGE) from None
    except OSError as error:
        reason = error.strerror or str(error)
        text = f"{path} cannot be read or written: {reason}"
        raise CliError("bad-users-file", text, status=EX_CANTCREAT) from None


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Keep other commands from writing in a folder; leaves nothing there."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
