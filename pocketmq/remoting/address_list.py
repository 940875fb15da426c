"""Lists of addresses, as settings, environment and command line give them."""


def split_addresses(text: str) -> list[str]:
    """Split `ip:port;ip:port` into its parts in order, without duplicates; commas count as semicolons.

    >>> split_addresses("10.0.0.1:9876; 10.0.0.2:9876;")
    ['10.0.0.1:9876', '10.0.0.2:9876']
    """
    parts = (part.strip() for part in text.replace(",", ";").split(";"))
    return list(dict.fromkeys(part for part in parts if part))
