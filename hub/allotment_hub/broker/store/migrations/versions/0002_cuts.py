"""Slices that we made (others are foreign), the +me mark of devices, the pools a lease was asked with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "cuts",
        sa.Column("gpu_uuid", sa.Text, nullable=False),
        sa.Column("start", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("profile", sa.Text, nullable=False),
        sa.Column("boot_id", sa.Text, nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("gpu_uuid", "start", "profile", name="pk_cuts"),
    )
    op.add_column("devices", sa.Column("media", sa.Integer, nullable=False, server_default="0"))
    op.add_column("leases", sa.Column("pools", sa.JSON))
