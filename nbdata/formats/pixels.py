"""Returns the pixels of pictures that Pillow has opened, also of those with more than 8 bits, which it would clip."""

from __future__ import annotations

from typing import Any

__all__ = ["pixels_of", "with_8_bits"]

# Tags of TIFF, and the value of Photometric by which the number 0 is white.
_BITS, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339
_ZERO_IS_WHITE, _UNSIGNED = 0, (1,)


def pixels_of(image: Any) -> Any:
    """Return an array of height × width for grey pictures, or height × width × 3 for all others.

    Grey pictures of 16 bits are uint16, those with larger numbers int32, and those with fractions float32.

    Raises
    ------
    ValueError
        For a TIFF whose numbers Pillow would return wrongly, or a mode that cannot become RGB.
    """
    import numpy as np

    if image.mode in ("L", "RGB"):
        return np.array(image)
    if _has_16_bits(image) or image.mode in ("I", "F"):
        array = np.array(image)
        _refuse_misread(image, array)
        return array.astype(np.uint16, copy=False) if _has_16_bits(image) else array
    image.info.pop("transparency", None)  # left out like alpha; Pillow would warn of it
    return np.array(image.convert("RGB"))


def with_8_bits(image: Any) -> Any:
    """Return a grey picture of 16 bits with its upper 8 bits, and any other picture as it is."""
    return image.convert("I").point(lambda value: value / 256).convert("L") if _has_16_bits(image) else image


def _has_16_bits(image: Any) -> bool:
    """True for grey pictures of 16 bits; Pillow opens those of the formats PNG and PGM as larger numbers, too."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _refuse_misread(image: Any, array: Any) -> None:
    if image.format != "TIFF":
        return
    tags = image.tag_v2
    if tags.get(_PHOTOMETRIC, _ZERO_IS_WHITE) == _ZERO_IS_WHITE:
        raise ValueError(
            "a TIFF of more than 8 bits in which 0 is white: nbdata does not know its other values"
        )
    unsigned = tags.get(_BITS) == (32,) and tags.get(_SAMPLE_FORMAT, _UNSIGNED) == _UNSIGNED
    if unsigned and array.size and array.min() < 0:
        raise ValueError("a TIFF with numbers above 2,147,483,647, which Pillow returns as negative ones")
