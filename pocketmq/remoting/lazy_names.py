"""Names of a package that are loaded on first use, so that importing the package costs nothing; and what to
install if what they need is missing.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str,
    homes: Mapping[str, Iterable[str]],
    renamed: Mapping[str, str] | None = None,
    *,
    extra: str = "",
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose names are at home in other modules.

    homes: full name of a module -> the names that it has. renamed: former name -> name; a former name works,
    with a DeprecationWarning. extra: what brings the modules that they need, named where one is missing.

    >>> __getattr__, __dir__ = lazy_names(__name__, {"json": ("loads", "dumps")})
    >>> __getattr__("loads")("1"), "dumps" in __dir__()
    (1, True)
    """
    module_of = {name: module for module, names in homes.items() for name in names}
    former = renamed or {}

    def load(name: str) -> Any:
        if name in former:
            warnings.warn(
                f"{package}.{name} is called {former[name]}; the former name will be removed",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(sys.modules[package], former[name])
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            home = import_module(module)
        except ModuleNotFoundError as missing:
            if not extra:
                raise
            raise without_extra(f"{package}.{name}", missing, extra) from None
        value = vars(sys.modules[package])[name] = getattr(home, name)
        return value

    def known() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return load, known


def to_install(extra: str) -> str:
    """Return the command that brings an extra.

    >>> to_install("spark")
    'pip install "FOLDER_OR_WHEEL[spark]"'
    """
    return f'pip install "FOLDER_OR_WHEEL[{extra}]"'


def needs(what: str, library: str, extra: str) -> str:
    """Say that `what` needs a library, and which extra brings it."""
    return (
        f"{what} needs {library}, which is not installed; install PocketMQ with its extra: "
        f"{to_install(extra)}"
    )


def without_extra(what: str, missing: ModuleNotFoundError, extra: str) -> ModuleNotFoundError:
    """Return the error of `what` that names the extra. Raises: `missing`, a defect, if the module is ours."""
    if missing.name is None or missing.name.partition(".")[0] == "pocketmq":
        raise missing
    return ModuleNotFoundError(needs(what, missing.name, extra), name=missing.name)
