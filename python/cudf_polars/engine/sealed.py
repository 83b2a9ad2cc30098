"""Bytes that a rank may unpickle: sealed by the client, opened only if they are whole and of the rank's own versions.

Unpickling runs code, and does so in the middle of what it reads. So nothing is unpickled before all of it is known to
be what a client of the same versions has sealed. A seal proves that bytes are not damaged, not who made them: who may
send anything to a rank at all is decided where it listens.

A sealed message is a header (magic number, form, size of the versions, size of the content, BLAKE2b of what follows),
the versions as text, and the content; numbers are little endian.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import sys

import polars as pl

import cudf_polars

__all__ = ["SealError", "seal", "unseal"]

_MAGIC = b"RVRNPLAN"
_FORM = 1
_DIGEST_SIZE = 32
_HEADER = struct.Struct(f"<{len(_MAGIC)}sHHQ{_DIGEST_SIZE}s")


class SealError(ValueError):
    """Bytes that should be unpickled are damaged, or come from other versions."""


def versions() -> str:
    """Return what has to be the same on both ends."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"Python {python}, Polars {pl.__version__}, riverrun {cudf_polars.__version__}"


def seal(content: bytes) -> bytes:
    """Return the content as :func:`unseal` takes it."""
    own = versions().encode()
    header = _HEADER.pack(_MAGIC, _FORM, len(own), len(content), _digest(own, content))
    return b"".join((header, own, content))


def unseal(sealed: bytes) -> bytes:
    """Return the content of sealed bytes.

    Raises
    ------
    SealError
        If they are not what :func:`seal` gives, whole and unchanged, in the same versions of Python, Polars and
        riverrun.
    """
    if len(sealed) < _HEADER.size:
        raise _damaged(f"it has {len(sealed)} bytes")
    magic, form, versions_size, content_size, digest = _HEADER.unpack_from(sealed)
    if magic != _MAGIC:
        raise _damaged("it does not begin as one does")
    if form != _FORM:
        raise SealError(
            f"a query came in form {form}, this rank reads form {_FORM}: client and ranks need the same version of"
            " riverrun"
        )
    begin = _HEADER.size + versions_size
    if begin + content_size != len(sealed):
        raise _damaged(f"it has {len(sealed)} bytes and says that it has {begin + content_size}")
    theirs, content = sealed[_HEADER.size : begin], sealed[begin:]
    if not hmac.compare_digest(digest, _digest(theirs, content)):
        raise _damaged("its checksum is wrong")
    if theirs != versions().encode():
        raise SealError(
            f"a query came from a client with {theirs.decode(errors='replace')}, this rank has {versions()}: install"
            " the same on both"
        )
    return content


def _digest(theirs: bytes, content: bytes) -> bytes:
    state = hashlib.blake2b(theirs, digest_size=_DIGEST_SIZE)
    state.update(content)
    return state.digest()


def _damaged(why: str) -> SealError:
    return SealError(f"what came is not a query that a client has sent, or it is damaged: {why}")
