"""`./deploy/down`: stops services and sessions; with --purge removes everything that was made."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence

from allotment_hub.host import messages
from allotment_hub.host.control import running, stop_services
from allotment_hub.host.errors import HostError
from allotment_hub.host.layout import read_runtime, running_services
from allotment_hub.host.options import DownOptions, parse_down
from allotment_hub.host.purge import purge_docker, purge_folders
from allotment_hub.host.purge_scratch import purge_scratch
from allotment_hub.host.sessions import count_workloads, end_workloads, site_or_defaults, stop_through_hub
from allotment_hub.host.settings import HostSettings
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 after one clear sentence."""
    try:
        return down(parse_down(sys.argv[1:] if argv is None else argv), env=os.environ)
    except HostError as error:
        print(f"down: {error}", file=sys.stderr)
    except PermissionError as error:
        print(
            f"down: {error.filename} is out of reach; run it as the account that started it.", file=sys.stderr
        )
    except OSError as error:
        print(
            f"down: {error.strerror or error}{f': {error.filename}' if error.filename else ''}",
            file=sys.stderr,
        )
    except KeyboardInterrupt:
        print("down: interrupted", file=sys.stderr)
    return 2


def down(options: DownOptions, *, env: Mapping[str, str]) -> int:
    del env
    paths = Paths(data=options.data_dir)
    _check_owner(paths)
    if not paths.runtime.parent.is_dir():
        raise HostError(f"{paths.data} holds no Allotment; name its folder with --data-dir.")
    if options.purge and not options.yes and sys.stdin.isatty():
        question = f"Remove {paths.data} with all accounts, books and homes?"
        if not messages.ask(question):
            raise HostError("nothing was removed.")
    runtime = read_runtime(paths)
    site = site_or_defaults(paths)
    settings = HostSettings.load(paths.data)
    if runtime is not None and not options.keep_sessions and running(paths):
        stop_through_hub(paths, runtime, messages.say)
    if running(paths) or running_services(paths):
        messages.say("Stopping the services")
        stop_services(paths)
    else:
        messages.say("No services run")
    if runtime is not None:
        _sessions(options, site, runtime, settings.user if settings else None)
    if options.purge:
        if runtime is not None and runtime.engine == "docker":
            purge_docker(site, runtime)
            purge_scratch(site, runtime, paths)
        if runtime is not None:
            purge_folders(site, runtime, paths)
        shutil.rmtree(paths.data)
        messages.say(f"Removed {paths.data}")
    return 0


def _check_owner(paths: Paths) -> None:
    """Before anything is asked or stopped: root's services are not another account's to stop."""
    if paths.data.is_dir() and os.geteuid() not in (0, paths.data.stat().st_uid):
        raise HostError(f"{paths.data} belongs to another account; run this as that one, or with sudo.")


def _sessions(options: DownOptions, site: Site, runtime: Runtime, user: str | None) -> None:
    if not options.keep_sessions:
        end_workloads(site, runtime, messages.say, user)
        return
    count = count_workloads(site, runtime, user)
    if count:
        messages.say(f"{messages.go_on(count)}; ./deploy/up finds them again")


if __name__ == "__main__":
    sys.exit(main())
