"""Leases, their devices and slots, and the attempts that asked for them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TIME = sa.DateTime(timezone=True)
SEQ = sa.BigInteger().with_variant(sa.Integer, "sqlite")
LIVE = sa.text("state IN ('queued', 'granted', 'active')")


def upgrade() -> None:
    _leases()
    op.create_table(
        "devices",
        sa.Column("lease", sa.Text, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("gpu_uuid", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("profile", sa.Text),
        sa.Column("start", sa.Integer),
        sa.Column("size", sa.Integer),
        sa.Column("uuid", sa.Text),
        sa.PrimaryKeyConstraint("lease", "ordinal", name="pk_devices"),
        sa.ForeignKeyConstraint(["lease"], ["leases.id"], name="fk_devices_lease_leases"),
    )
    op.create_table(
        "slots",
        sa.Column("gpu_uuid", sa.Text, nullable=False),
        sa.Column("slot", sa.Text, nullable=False),
        sa.Column("lease", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("gpu_uuid", "slot", name="pk_slots"),
        sa.ForeignKeyConstraint(["lease"], ["leases.id"], name="fk_slots_lease_leases"),
    )
    op.create_index("ix_slots_lease", "slots", ["lease"])
    op.create_table(
        "attempts",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("lease", sa.Text, nullable=False),
        sa.Column("body_hash", sa.Text, nullable=False),
        sa.Column("made_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_attempts"),
        sa.ForeignKeyConstraint(["lease"], ["leases.id"], name="fk_attempts_lease_leases"),
    )
    op.create_index("ix_attempts_lease", "attempts", ["lease"])


def _leases() -> None:
    words = ("id", "kind", "queue_class", "user", "server", "environment", "flavor", "state", "attempt")
    times = ("granted_at", "deadline_at", "confirmed_at", "active_at", "ending_at", "stopped_at", "ended_at")
    op.create_table(
        "leases",
        sa.Column("seq", SEQ, nullable=False, autoincrement=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in words),
        sa.Column("engine_ref", sa.Text),
        sa.Column("price_per_hour", sa.Text, nullable=False),
        sa.Column("rates", sa.JSON),
        sa.Column("launch", sa.JSON),
        sa.Column("boot_id", sa.Text),
        sa.Column("created_at", TIME, nullable=False),
        *(sa.Column(name, TIME) for name in times),
        sa.Column("end_reason", sa.Text),
        sa.Column("refusal", sa.JSON),
        sa.Column("note", sa.Text),
        sa.PrimaryKeyConstraint("seq", name="pk_leases"),
        sa.UniqueConstraint("id", name="uq_leases_id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_leases_live", "leases", ["user", "server"], unique=True, sqlite_where=LIVE, postgresql_where=LIVE
    )
    op.create_index("ix_leases_state", "leases", ["state"])
    op.create_index("ix_leases_user_seq", "leases", ["user", "seq"])
