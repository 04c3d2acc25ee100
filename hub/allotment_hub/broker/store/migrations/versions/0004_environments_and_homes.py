"""Images by digest, datasets, notices to sessions, homes, saved environments; what a lease wants of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_SEQ = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("leases", sa.Column("wants", sa.JSON))
    _images()
    _datasets()
    _notices()
    _people()


def _images() -> None:
    op.create_table(
        "images",
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("reference", sa.Text, nullable=False),
        sa.Column("source", sa.Text),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("packages", sa.JSON, nullable=False),
        sa.Column("requires", sa.JSON, nullable=False),
        sa.Column("size_bytes", sa.BigInteger),
        sa.Column("made_at", _TIME),
        sa.Column("added_at", _TIME, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("pinned", sa.Integer, nullable=False, server_default="0"),
        sa.Column("replaced_by", sa.Text),
        sa.Column("base", sa.Text),
        sa.Column("removing_at", _TIME),
        sa.PrimaryKeyConstraint("digest", name="pk_images"),
    )
    op.create_index("ix_images_environment", "images", ["environment"])


def _datasets() -> None:
    op.create_table(
        "datasets",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("licence", sa.Text, nullable=False),
        sa.Column("checksum", sa.Text),
        sa.Column("unpack", sa.Integer, nullable=False, server_default="0"),
        sa.Column("size_bytes", sa.BigInteger),
        sa.Column("groups", sa.JSON),
        sa.Column("pinned", sa.Integer, nullable=False, server_default="0"),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("problem", sa.JSON),
        sa.Column("content", sa.Text),
        sa.Column("cached_bytes", sa.BigInteger),
        sa.Column("files", sa.BigInteger),
        sa.Column("cached_at", _TIME),
        sa.Column("used_at", _TIME),
        sa.Column("added_by", sa.Text, nullable=False),
        sa.Column("added_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_datasets"),
    )


def _notices() -> None:
    op.create_table(
        "notices",
        sa.Column("seq", _SEQ, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("lease", sa.Text, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("sentence", sa.Text, nullable=False),
        sa.Column("next_step", sa.Text, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("made_at", _TIME, nullable=False),
        sa.Column("stop_at", _TIME),
        sa.Column("withdrawn_at", _TIME),
        sa.PrimaryKeyConstraint("seq", name="pk_notices"),
        sa.UniqueConstraint("id", name="uq_notices_id"),
        sa.ForeignKeyConstraint(["lease"], ["leases.id"], name="fk_notices_lease_leases"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_notices_lease", "notices", ["lease"])


def _people() -> None:
    op.create_table(
        "homes",
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("used_bytes", sa.BigInteger),
        sa.Column("files", sa.BigInteger),
        sa.Column("limit_bytes", sa.BigInteger),
        sa.Column("enforced", sa.Integer, nullable=False, server_default="0"),
        sa.Column("measured_at", _TIME),
        sa.Column("note", sa.Text),
        sa.PrimaryKeyConstraint("user", name="pk_homes"),
    )
    op.create_table(
        "saved_environments",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("base", sa.Text, nullable=False),
        sa.Column("base_digest", sa.Text, nullable=False),
        sa.Column("requirements", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("note", sa.Text),
        sa.Column("asked_at", _TIME, nullable=False),
        sa.Column("decided_at", _TIME),
        sa.Column("decided_by", sa.Text),
        sa.PrimaryKeyConstraint("name", name="pk_saved_environments"),
    )
