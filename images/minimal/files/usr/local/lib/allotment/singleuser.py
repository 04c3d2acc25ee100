"""Starts the notebook server without the imports that a server never uses (more than half of its start).

- jupyterhub.log and .metrics name the hub's pages and its database, which a server has not;
- jsonschema compiles a grammar to check internationalised addresses, which no schema here has.

Only this process sees the stand-ins, and only while it imports. Run with python -I: neither the
home's packages nor a json.py lying in it can keep the server from starting.
"""

import gc
import os
import sys
import types

STAND_INS = ("jupyterhub.handlers", "jupyterhub.handlers.pages", "jupyterhub.orm")


class HealthCheckHandler:
    """The hub's, by name: no request to this server is one."""


def load():
    """jupyterhub-singleuser's main function; ImportError when this JupyterHub is put together otherwise."""
    for name in STAND_INS:
        sys.modules[name] = types.ModuleType(name)
    sys.modules["jupyterhub.handlers.pages"].HealthCheckHandler = HealthCheckHandler
    sys.modules["rfc3987_syntax"] = None
    try:
        from jupyterhub.singleuser import main  # noqa: PLC0415 - after the stand-ins
    finally:
        for name in STAND_INS:
            sys.modules.pop(name, None)
    return main


def prepare_home():
    """A full home, one without locks, a umask: settled before anything of Jupyter looks around."""
    try:
        from allotment.home import make_room, set_umask, spare_locks  # noqa: PLC0415

        set_umask(os.environ)
        if make_room(os.environ):
            sys.stderr.write("The home is full: history, trust and layout are kept in memory.\n")
        sys.argv += spare_locks(os.environ)
    except Exception as error:  # noqa: BLE001 - the server starts whatever lies in a home
        sys.stderr.write(f"The home could not be looked at: {error}\n")


def offer_tour():
    """The image's tour, once a home; a home that takes none is no reason to keep anybody waiting."""
    try:
        from pathlib import Path  # noqa: PLC0415

        from allotment import welcome  # noqa: PLC0415

        welcome.offer_tour(Path.home())
    except Exception as error:  # noqa: BLE001 - the server starts whatever lies in a home
        sys.stderr.write(f"The tour was not laid into the home: {error}\n")


if __name__ == "__main__":
    gc.disable()
    prepare_home()
    offer_tour()
    try:
        main = load()
    except (ImportError, AttributeError):
        # slower, but as its authors meant it; anew, because half of it has been imported
        again = [sys.executable, "-I", "-m", "jupyterhub.singleuser", *sys.argv[1:]]
        os.execv(sys.executable, again)  # noqa: S606
    gc.enable()
    # what was imported stays: no need to look at it again in every collection
    gc.freeze()
    sys.exit(main())
