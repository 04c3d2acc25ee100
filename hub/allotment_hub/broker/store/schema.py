"""Tables of the broker's database, and the column types both engines share."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeDecorator

__all__ = [
    "REVISION",
    "Money",
    "UtcTime",
    "attempts",
    "budget_changes",
    "budgets",
    "cuts",
    "datasets",
    "devices",
    "entries",
    "homes",
    "images",
    "leases",
    "metadata",
    "notices",
    "outages",
    "saved_environments",
    "slots",
]


class UtcTime(TypeDecorator[datetime]):
    """Aware UTC times; SQLite has no time zones, so they are stored there as naive UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Money(TypeDecorator[Decimal]):
    """Exact decimals as text: SQLite's numbers are floats."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        return None if value is None else format(value, "f")

    def process_result_value(self, value: str | None, dialect: Dialect) -> Decimal | None:
        return None if value is None else Decimal(value)


REVISION = "0005"
"""The newest revision in migrations/: this schema. A database that has it needs no Alembic."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Seq = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only in a column of exactly this type."""

leases = Table(
    "leases",
    metadata,
    Column("seq", Seq, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("queue_class", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("server", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("flavor", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Text, nullable=False),
    Column("engine_ref", Text),
    Column("price_per_hour", Money, nullable=False),
    Column("rates", JSON),
    Column("launch", JSON),
    Column("boot_id", Text),
    Column("created_at", UtcTime, nullable=False),
    Column("granted_at", UtcTime),
    Column("deadline_at", UtcTime),
    Column("confirmed_at", UtcTime),
    Column("active_at", UtcTime),
    Column("ending_at", UtcTime),
    Column("stopped_at", UtcTime),
    Column("ended_at", UtcTime),
    Column("end_reason", Text),
    Column("refusal", JSON),
    Column("note", Text),
    Column("pools", JSON),
    Column("wants", JSON),
    sqlite_autoincrement=True,
)
Index(
    "uq_leases_live",
    leases.c.user,
    leases.c.server,
    unique=True,
    sqlite_where=text("state IN ('queued', 'granted', 'active')"),
    postgresql_where=text("state IN ('queued', 'granted', 'active')"),
)
Index("ix_leases_state", leases.c.state)
Index("ix_leases_user_seq", leases.c.user, leases.c.seq)

devices = Table(
    "devices",
    metadata,
    Column("lease", Text, ForeignKey("leases.id"), primary_key=True),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("gpu_uuid", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("profile", Text),
    Column("start", Integer),
    Column("size", Integer),
    Column("uuid", Text),
    Column("media", Integer, nullable=False, server_default="0"),
)

slots = Table(
    "slots",
    metadata,
    Column("gpu_uuid", Text, primary_key=True),
    Column("slot", Text, primary_key=True),
    Column("lease", Text, ForeignKey("leases.id"), nullable=False, index=True),
)

attempts = Table(
    "attempts",
    metadata,
    Column("key", Text, primary_key=True),
    Column("lease", Text, ForeignKey("leases.id"), nullable=False, index=True),
    Column("body_hash", Text, nullable=False),
    Column("made_at", UtcTime, nullable=False),
)

cuts = Table(
    "cuts",
    metadata,
    Column("gpu_uuid", Text, primary_key=True),
    Column("start", Integer, primary_key=True, autoincrement=False),
    Column("profile", Text, primary_key=True),
    Column("boot_id", Text, nullable=False),
    Column("made_at", UtcTime, nullable=False),
)

outages = Table(
    "outages",
    metadata,
    Column("what", Text, primary_key=True),
    Column("began_at", UtcTime, primary_key=True),
    Column("ended_at", UtcTime),
)

images = Table(
    "images",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("environment", Text, nullable=False, index=True),
    Column("reference", Text, nullable=False),
    Column("source", Text),
    Column("label", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("packages", JSON, nullable=False),
    Column("requires", JSON, nullable=False),
    Column("size_bytes", BigInteger),
    Column("made_at", UtcTime),
    Column("added_at", UtcTime, nullable=False),
    Column("state", Text, nullable=False),
    Column("pinned", Integer, nullable=False, server_default="0"),
    Column("replaced_by", Text),
    Column("base", Text),
    Column("removing_at", UtcTime),
)

datasets = Table(
    "datasets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("title", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("licence", Text, nullable=False),
    Column("checksum", Text),
    Column("unpack", Integer, nullable=False, server_default="0"),
    Column("size_bytes", BigInteger),
    Column("groups", JSON),
    Column("pinned", Integer, nullable=False, server_default="0"),
    Column("state", Text, nullable=False),
    Column("problem", JSON),
    Column("content", Text),
    Column("cached_bytes", BigInteger),
    Column("files", BigInteger),
    Column("cached_at", UtcTime),
    Column("used_at", UtcTime),
    Column("added_by", Text, nullable=False),
    Column("added_at", UtcTime, nullable=False),
)

notices = Table(
    "notices",
    metadata,
    Column("seq", Seq, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("lease", Text, ForeignKey("leases.id"), nullable=False, index=True),
    Column("level", Text, nullable=False),
    Column("sentence", Text, nullable=False),
    Column("next_step", Text, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("made_at", UtcTime, nullable=False),
    Column("stop_at", UtcTime),
    Column("withdrawn_at", UtcTime),
    sqlite_autoincrement=True,
)

homes = Table(
    "homes",
    metadata,
    Column("user", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("used_bytes", BigInteger),
    Column("files", BigInteger),
    Column("limit_bytes", BigInteger),
    Column("enforced", Integer, nullable=False, server_default="0"),
    Column("measured_at", UtcTime),
    Column("note", Text),
)

saved_environments = Table(
    "saved_environments",
    metadata,
    Column("name", Text, primary_key=True),
    Column("title", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("base", Text, nullable=False),
    Column("base_digest", Text, nullable=False),
    Column("requirements", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("note", Text),
    Column("asked_at", UtcTime, nullable=False),
    Column("decided_at", UtcTime),
    Column("decided_by", Text),
)

entries = Table(
    "entries",
    metadata,
    Column("seq", Seq, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("key", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("charged_to", Text),
    Column("lease", Text, ForeignKey("leases.id"), index=True),
    Column("volume", Text),
    Column("from_at", UtcTime, nullable=False, index=True),
    Column("to_at", UtcTime, nullable=False),
    Column("seconds", Money, nullable=False),
    Column("gpu_seconds", Money, nullable=False),
    Column("amount", Money, nullable=False),
    Column("currency", Text, nullable=False),
    Column("flavor", Text),
    Column("environment", Text),
    Column("queue_class", Text),
    Column("reason", Text, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("made_at", UtcTime, nullable=False),
    Column("refers_to", Text),
    sqlite_autoincrement=True,
)
"""Written once and never changed: triggers refuse UPDATE and DELETE."""
Index("ix_entries_owner_from_at", entries.c.owner, entries.c.from_at)
Index("ix_entries_charged_to_from_at", entries.c.charged_to, entries.c.from_at)

budgets = Table(
    "budgets",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("amount", Money, nullable=False),
    Column("period", Text, nullable=False),
    Column("starts_on", Text),
    Column("ends_on", Text),
    Column("hard", Integer, nullable=False),
    Column("owner", Text),
    Column("note", Text, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("made_at", UtcTime, nullable=False),
    Column("closed_at", UtcTime),
)
Index(
    "uq_budgets_open",
    budgets.c.scope,
    budgets.c.name,
    budgets.c.unit,
    budgets.c.period,
    unique=True,
    sqlite_where=text("closed_at IS NULL"),
    postgresql_where=text("closed_at IS NULL"),
)

budget_changes = Table(
    "budget_changes",
    metadata,
    Column("seq", Seq, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("budget", Text, ForeignKey("budgets.id"), nullable=False, index=True),
    Column("period_from", UtcTime),
    Column("kind", Text, nullable=False),
    Column("amount", Money, nullable=False),
    Column("other", Text),
    Column("reason", Text, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("made_at", UtcTime, nullable=False),
    sqlite_autoincrement=True,
)
"""Every change of a budget, the first included; never changed or removed, as entries."""
