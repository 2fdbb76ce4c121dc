"""The encoding that an XML file declares; checked for files of every format, without the XML reader."""

from __future__ import annotations

import re

from ...errors import FormatError

_DECLARATION = re.compile(rb"\s*<\?xml[^>]{0,200}?\bencoding\s*=\s*[\"']([A-Za-z0-9._-]{1,40})[\"']")
# The encodings that network programs use; some of Python's codecs are slow or not encodings of text.
_ENCODING = re.compile(
    r"(?:utf[-_]?(?:8|16)(?:[-_]?[lb]e)?|(?:us-)?ascii|iso[-_]?8859[-_]?\d{1,2}|latin[-_]?\d|windows[-_]?125\d|cp125\d"
    r"|macintosh|koi8-[ru]|gb2312|gbk|gb18030|big5|shift[-_]jis|euc[-_](?:jp|kr))\Z",
    re.IGNORECASE,
)


def declared_text(raw: bytes) -> str | None:
    """Decode an XML file that specifies its encoding by a declaration or byte order mark; None for other files."""
    # raises FormatError: If the encoding is unknown, or the bytes are not valid in it.
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        name = "utf-16"
    else:
        found = _DECLARATION.match(raw[:512].removeprefix(b"\xef\xbb\xbf"))
        if found is None:
            return None
        name = found[1].decode("ascii")
    if _ENCODING.match(name) is None:
        raise FormatError(f"the XML declaration names the unknown encoding {name!r}")
    if name.lower().replace("_", "-") in ("utf-8", "utf8", "ascii", "us-ascii"):
        return None  # decoded like other files: UTF-8, or Latin-1 if a program wrote what it did not declare
    try:
        return raw.decode(name).removeprefix("\ufeff")
    except (LookupError, UnicodeDecodeError) as error:
        raise FormatError(f"the text is not valid in its declared encoding {name!r} ({error})") from None
