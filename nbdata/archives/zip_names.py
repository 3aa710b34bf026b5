"""Decode the names of members of a zip archive that are not marked as UTF-8.

The standard says that they are in code page 437 (APPNOTE, appendix D). Programs of Windows write them in the code page
of their computer: 932 in Japan, 936 in China. Nothing in the archive says which. So it is given by the user, or guessed
from all names together, and said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["SAMPLE", "guessed_encoding"]

#: Bytes of names that are looked at to guess their encoding.
SAMPLE = 64 << 10
# Code pages of Windows for languages whose letters are not those of code page 437, and that one.
_CODE_PAGES = ("cp932", "gb18030", "big5", "cp949", "cp866", "cp1251", "cp437")
_STANDARD = "cp437"
# What names hardly have: Chinese characters in Korea, and words of Latin and Cyrillic letters together.
_CHINESE = re.compile("[\u4e00-\u9fff]")
_MIXED = re.compile("[A-Za-z][\u0400-\u04ff]|[\u0400-\u04ff][A-Za-z]")
_IMPROBABLE = {"cp949": _CHINESE, "cp866": _MIXED, "cp1251": _MIXED}
# The largest share of improbable characters in a guess, as charset-normalizer measures it. Names are short.
_CHAOS = 0.5


def guessed_encoding(names: Sequence[bytes]) -> str:
    """Return the probable encoding of some names that are not all ASCII.

    They may be decoded by another one without an error, so this is a guess. It is the same for the same names.
    """
    joined = b"\n".join(names)
    try:
        joined.decode()
    except UnicodeDecodeError:
        pass
    else:
        return "utf-8"
    from charset_normalizer import from_bytes

    for match in from_bytes(joined, cp_isolation=[*_CODE_PAGES], threshold=_CHAOS):
        improbable = _IMPROBABLE.get(match.encoding)
        if improbable is None or not improbable.search(str(match)):
            return match.encoding
    return _STANDARD
