"""Local accounts: NativeAuthenticator's store behind the hub's stock sign-in page, sign-up closed."""

from __future__ import annotations

import json
import re
from typing import Any

import bcrypt
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.handlers.login import LoginHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.utils import maybe_future
from nativeauthenticator import NativeAuthenticator
from nativeauthenticator.handlers import ChangePasswordHandler
from nativeauthenticator.orm import UserInfo
from tornado import web
from traitlets import List

from allotment_hub.names import USER_NAME

__all__ = ["MINIMUM_PASSWORD_LENGTH", "AccountHandler", "LocalAuthenticator"]

MINIMUM_PASSWORD_LENGTH = 10
_MOST_BYTES = 72  # bcrypt looks no further


class LocalAuthenticator(NativeAuthenticator):
    """Passwords hashed as NativeAuthenticator does; who is in its store and in the hub may sign in.

    NativeAuthenticator's own sign-in page does not run on JupyterHub 6 and its sign-up pages are not
    wanted, so only the stock page and its page for changing one's own password are served.
    """

    hub_handlers: Any = List(
        help="(path below /hub, handler class) pairs to serve before the hub's own of the same path."
    ).tag(config=True)

    def get_handlers(self, app: Any) -> list[tuple[str, type]]:
        return [
            (r"/login", LoginHandler),
            (r"/change-password", ChangePasswordHandler),
            (r"/api/allotment/accounts/([^/]+)", AccountHandler),
            *(tuple(handler) for handler in self.hub_handlers),
        ]

    async def authenticate(self, handler: Any, data: dict[str, str]) -> str | None:
        if len(data.get("password", "").encode()) > _MOST_BYTES or "\0" in data.get("password", ""):
            return None  # bcrypt would raise, and the page would be an error instead of "wrong password"
        return await super().authenticate(handler, data)

    def is_password_strong(self, password: str) -> bool:
        return len(password) >= MINIMUM_PASSWORD_LENGTH and len(password.encode()) <= _MOST_BYTES

    def set_password(self, username: str, password: str) -> None:
        """Make the account's entry in the store, or give it this password."""
        hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt())
        entry = self.get_user(username)
        if entry is None:
            self.db.add(UserInfo(username=username, password=hashed, is_authorized=True))
        else:
            entry.password = hashed
            entry.is_authorized = True
        self.db.commit()


class AccountHandler(APIHandler):
    """`PUT /hub/api/allotment/accounts/NAME {"password": …}` makes a local account or sets its password.

    Only for callers with the scope admin:users. 201 when the person is new, else 200. An account ends
    with the hub's own `DELETE /hub/api/users/NAME`, which removes the entry in the store, too.
    """

    @needs_scope("admin:users")
    async def put(self, name: str) -> None:
        name = self.authenticator.normalize_username(name)
        if not re.fullmatch(USER_NAME, name):
            raise web.HTTPError(
                400, "A name has 2 to 32 of a-z, 0-9, '.', '_' and '-', and begins with a letter"
            )
        body = self.get_json_body()
        password = body.get("password") if isinstance(body, dict) else None
        if not isinstance(password, str) or not self.authenticator.is_password_strong(password):
            raise web.HTTPError(400, f"A password has at least {MINIMUM_PASSWORD_LENGTH} characters")
        user = self.find_user(name)
        created = user is None
        if user is None:
            user = self.user_from_username(name)
            await maybe_future(self.authenticator.add_user(user))
        self.authenticator.set_password(name, password)
        self.set_status(201 if created else 200)
        self.write(json.dumps({"name": name, "admin": user.admin}))
