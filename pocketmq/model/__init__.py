"""The model that both ends and the files share: names, tables, subscriptions, messages, records, ids."""
