"""
The file of a bundle: a ZIP archive of which every byte follows from the files in it.

So a changed byte is always noticed, be it in a place that programs for archives do not look at.
The page in a bundle checks the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from io import BytesIO
from typing import Final
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from ...chain import Malformed

MANIFEST: Final = "manifest.json"
"""The file with the hashes of all others."""
FORMAT: Final = "svcbroker/bundle/1"
MAX_SIZE: Final = 256 * 1024 * 1024
"""No bundle is larger, in bytes."""
MAX_FILES: Final = 65_535
"""No bundle has more files, the manifest among them."""

_FORMAT_LINE: Final = re.compile(rb'"format": "(svcbroker/bundle/[0-9]{1,4})"\n}\n\Z')
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_MODE: Final = 0o100644 << 16


def encodeArchive(files: Mapping[str, bytes]) -> bytes:
    """
    The archive of some files, and a manifest of them.

    @param files: the contents by name; names are of ASCII.
    @raise ValueError: there are more than L{MAX_FILES}, or they are larger than L{MAX_SIZE}.
    """
    if len(files) >= MAX_FILES:
        raise ValueError(f"a bundle has at most {MAX_FILES} files, and not {len(files) + 1}")
    hashes = {name: sha256(files[name]).hexdigest() for name in sorted(files)}
    manifest = json.dumps({"files": hashes, "format": FORMAT}, indent=1) + "\n"
    output = BytesIO()
    with ZipFile(output, "w", ZIP_STORED) as archive:
        for name, data in sorted({**files, MANIFEST: manifest.encode("ascii")}.items()):
            entry = ZipInfo(name, _TIME)
            entry.create_system, entry.external_attr = _UNIX, _MODE
            archive.writestr(entry, data)
    if output.tell() > MAX_SIZE:
        raise ValueError(f"a bundle has at most {MAX_SIZE} bytes, and not {output.tell()}")
    return output.getvalue()


def decodeArchive(data: bytes) -> Mapping[str, bytes]:
    """
    The files of an archive, without the manifest.

    @raise Malformed: it is not an archive that L{encodeArchive} has written.
    """
    if len(data) > MAX_SIZE:
        raise Malformed(f"the bundle is larger than {MAX_SIZE} bytes")
    try:
        with ZipFile(BytesIO(data)) as archive:
            entries = archive.infolist()
            if any(each.compress_type != ZIP_STORED for each in entries):
                raise Malformed("the bundle is compressed")
            # Entries that share their bytes would be read again and again.
            if sum(each.file_size for each in entries) > len(data):
                raise Malformed("the files of the bundle are larger than the bundle")
            files = {each.filename: archive.read(each) for each in entries}
    except (BadZipFile, ValueError, KeyError, RuntimeError, NotImplementedError, EOFError) as error:
        raise Malformed(f"the bundle is not an archive: {error}") from None
    format = _FORMAT_LINE.search(files.pop(MANIFEST, b"")[-80:])
    if format is not None and format[1] != FORMAT.encode():
        raise Malformed(
            f"the bundle has format {format[1].decode()}, and this svcbroker reads {FORMAT}: use a "
            "newer one"
        )
    try:
        if encodeArchive(files) == data:
            return files
    except (ValueError, OSError):
        pass
    raise Malformed("the bundle is not what was written: a byte of it is another one")
