"""What to install for a module that only some of PocketMQ's extras bring."""


def without_extra(what: str, missing: ModuleNotFoundError, extra: str) -> ModuleNotFoundError:
    """Return the error of `what` that names the extra. Raises: `missing`, a defect, if the module is ours."""
    if missing.name is None or missing.name.partition(".")[0] == "pocketmq":
        raise missing
    return ModuleNotFoundError(
        f"{what} needs {missing.name}, which is not installed; install PocketMQ with its extra: "
        f'pip install "FOLDER_OR_WHEEL[{extra}]"',
        name=missing.name,
    )
