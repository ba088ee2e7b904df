"""Delta tables, through the `deltalake` package: no Spark, no jar. Read next: table.py."""
