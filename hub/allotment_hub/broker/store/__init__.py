"""The broker's database: schema, migrations, unit of work."""
