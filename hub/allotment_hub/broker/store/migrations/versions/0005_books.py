"""The ledger's entries, budgets and their changes; the database itself refuses to alter either record."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_SEQ = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TIME = sa.DateTime(timezone=True)
_FOR_GOOD = ("entries", "budget_changes")


def upgrade() -> None:
    _entries()
    _budgets()
    _budget_changes()
    for table in _FOR_GOOD:
        _refuse_changes(table)


def _entries() -> None:
    op.create_table(
        "entries",
        sa.Column("seq", _SEQ, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("charged_to", sa.Text),
        sa.Column("lease", sa.Text),
        sa.Column("volume", sa.Text),
        sa.Column("from_at", _TIME, nullable=False),
        sa.Column("to_at", _TIME, nullable=False),
        sa.Column("seconds", sa.Text, nullable=False),
        sa.Column("gpu_seconds", sa.Text, nullable=False),
        sa.Column("amount", sa.Text, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("flavor", sa.Text),
        sa.Column("environment", sa.Text),
        sa.Column("queue_class", sa.Text),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("made_at", _TIME, nullable=False),
        sa.Column("refers_to", sa.Text),
        sa.PrimaryKeyConstraint("seq", name="pk_entries"),
        sa.UniqueConstraint("id", name="uq_entries_id"),
        sa.UniqueConstraint("key", name="uq_entries_key"),
        sa.ForeignKeyConstraint(["lease"], ["leases.id"], name="fk_entries_lease_leases"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_entries_lease", "entries", ["lease"])
    op.create_index("ix_entries_from_at", "entries", ["from_at"])
    op.create_index("ix_entries_owner_from_at", "entries", ["owner", "from_at"])
    op.create_index("ix_entries_charged_to_from_at", "entries", ["charged_to", "from_at"])


def _budgets() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("amount", sa.Text, nullable=False),
        sa.Column("period", sa.Text, nullable=False),
        sa.Column("starts_on", sa.Text),
        sa.Column("ends_on", sa.Text),
        sa.Column("hard", sa.Integer, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("made_at", _TIME, nullable=False),
        sa.Column("closed_at", _TIME),
        sa.PrimaryKeyConstraint("id", name="pk_budgets"),
    )
    op.create_index(
        "uq_budgets_open",
        "budgets",
        ["scope", "name", "unit", "period"],
        unique=True,
        sqlite_where=sa.text("closed_at IS NULL"),
        postgresql_where=sa.text("closed_at IS NULL"),
    )


def _budget_changes() -> None:
    op.create_table(
        "budget_changes",
        sa.Column("seq", _SEQ, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("budget", sa.Text, nullable=False),
        sa.Column("period_from", _TIME),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("amount", sa.Text, nullable=False),
        sa.Column("other", sa.Text),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("made_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_budget_changes"),
        sa.UniqueConstraint("id", name="uq_budget_changes_id"),
        sa.ForeignKeyConstraint(["budget"], ["budgets.id"], name="fk_budget_changes_budget_budgets"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_budget_changes_budget", "budget_changes", ["budget"])


def _refuse_changes(table: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} are never changed'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{table} are never changed'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuse()"
    )
