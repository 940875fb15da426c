"""Topics as Apache Iceberg tables: the work of `pocketmq lake`; needs pyiceberg and pyarrow.

    source (stores, archives, brokers) -> rows behind each table's position -> Parquet files -> one commit

Each topic is one table. What a table holds is said by its position, which is committed together with the
rows, so a process that is killed anywhere repeats no row and loses none. See position.py for the position,
table.py for the table, files.py and brokers.py for the sources, copy.py for the order of the work.
"""
