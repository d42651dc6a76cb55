"""Unpacks chosen parts of a wheel: unpack_wheel.py WHEEL DEST FROM=TO ...

FROM is a file, or a folder when it ends in '/'; TO is a folder below DEST. A FROM that the wheel lacks is an error,
so that a changed wheel layout is noticed when it is unpacked and not when something fails to link.
"""

import pathlib
import shutil
import sys
import zipfile


def main(wheel: str, dest: str, *rules: str) -> None:
    archive = zipfile.ZipFile(wheel)
    names = [name for name in archive.namelist() if not name.endswith("/")]
    for rule in rules:
        source, target = rule.split("=", 1)
        chosen = [name for name in names if name.startswith(source)] if source.endswith("/") else [n for n in names if n == source]
        if not chosen:
            sys.exit(f"{wheel}: holds no {source}")
        for name in chosen:
            relative = name[len(source):] if source.endswith("/") else pathlib.PurePosixPath(name).name
            path = pathlib.Path(dest, target, relative)
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as packed, open(path, "wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)


if __name__ == "__main__":
    main(*sys.argv[1:])
