"""Queries on their way to ranks: nothing is unpickled that is not whole and of the rank's own versions."""

from __future__ import annotations

import dataclasses
import random
import struct

import polars as pl
import pytest

from cudf_polars.engine import sealed, shipping
from cudf_polars.engine.sealed import SealError, seal, unseal

_HEADER_SIZE = sealed._HEADER.size


def doubled(column: pl.Series) -> pl.Series:
    """A function of the user's."""
    return column * 2


def shipped() -> list[shipping.PackedQuery]:
    """Two queries as they travel: one as Polars serialises it, one as a plan with its frame."""
    optimizations = pl.QueryOptFlags()
    lazy = pl.scan_csv("/no/such/file.csv").filter(pl.col("a") > 1)
    eager = pl.LazyFrame({"a": [1, 2, 3]}).filter(pl.col("a") > 1).select(pl.col("a").map_batches(doubled))
    return [shipping.pack_query(lf, optimizations, 2)[0] for lf in (lazy, eager)]


def with_message(query: shipping.PackedQuery, message: bytes) -> shipping.PackedQuery:
    """Return the query with other bytes in place of its sealed ones."""
    if query.lazy_frame is None:
        return dataclasses.replace(query, plan=message)
    return dataclasses.replace(query, lazy_frame=message)


def message_of(query: shipping.PackedQuery) -> bytes:
    """Return the sealed bytes of a query."""
    return query.plan if query.lazy_frame is None else query.lazy_frame


def resealed(message: bytes) -> bytes:
    """Return a message with sizes and a checksum that are right, so that what comes behind these checks is reached."""
    if len(message) < _HEADER_SIZE:
        return message
    magic, form, versions_size, _, _ = sealed._HEADER.unpack_from(message)
    versions_size = min(versions_size, len(message) - _HEADER_SIZE)
    begin = _HEADER_SIZE + versions_size
    theirs, content = message[_HEADER_SIZE:begin], message[begin:]
    digest = sealed._digest(theirs, content)
    return sealed._HEADER.pack(magic, form, versions_size, len(content), digest) + theirs + content


def mutated(message: bytes, rng: random.Random) -> bytes:
    """Return a message with a few changes, as a fuzzer makes them."""
    changed = bytearray(message)
    for _ in range(rng.choice((1, 1, 2, 4))):
        # Most of what can be read wrongly is in front.
        limit = len(changed) if rng.random() < 0.3 else min(len(changed), _HEADER_SIZE + 48)
        at = rng.randrange(limit) if limit else 0
        match rng.randrange(5):
            case 0 if changed:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                del changed[at:]
            case 2:
                changed[at:at] = rng.randbytes(rng.randrange(9))
            case 3:
                number = rng.choice((0, 1, 2**31, 2**63, 2**64 - 1))
                changed[at : at + 8] = struct.pack("<Q", number)
            case _:
                del changed[at : at + rng.randrange(1, 9)]
    return bytes(changed)


def test_what_is_sealed_comes_out() -> None:
    for content in (b"", b"x", bytes(100_000)):
        assert unseal(seal(content)) == content


def test_nothing_but_what_a_client_has_sealed_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = shipped()
    contents = {unseal(message_of(query)) for query in queries}
    unpickled: list[bytes] = []
    monkeypatch.setattr(shipping, "_load", lambda plan, frames: unpickled.append(plan))
    monkeypatch.setattr(pl.LazyFrame, "deserialize", lambda stream: unpickled.append(stream.getvalue()))
    rng = random.Random(20_26)
    accepted = refused = 0
    for number in range(4_000):
        query = queries[number % 2]
        message = mutated(message_of(query), rng)
        repaired = number % 4 >= 2
        try:
            shipping.unpack_query(with_message(query, resealed(message) if repaired else message), 0, 1)
        except SealError:
            refused += 1
            continue
        accepted += 1
        # Whoever makes a checksum that is right may change the content; nothing else gets through.
        assert repaired or unpickled[-1] in contents
    assert len(unpickled) == accepted
    assert accepted > 50  # else nothing behind the checksum was tried
    assert refused > 2_000


def test_each_byte_and_each_length_is_checked() -> None:
    message = seal(b"a plan")
    for size in range(len(message)):
        with pytest.raises(SealError):
            unseal(message[:size])
    with pytest.raises(SealError, match="bytes and says that it has"):
        unseal(message + b"\0")
    for at in range(len(message)):
        changed = bytearray(message)
        changed[at] ^= 0x40
        with pytest.raises(SealError):
            unseal(bytes(changed))


def test_other_versions_are_named_before_anything_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(pl, "__version__", "9.8.7")
        message = seal(b"this is no pickle")
    query = dataclasses.replace(shipped()[1], plan=message)
    with pytest.raises(SealError, match=r"Polars 9\.8\.7.*this rank has.*install the same on both"):
        shipping.unpack_query(query, 0, 1)


def test_another_form_is_one_of_another_version() -> None:
    message = bytearray(seal(b""))
    message[8] += 1
    with pytest.raises(SealError, match="same version of riverrun"):
        unseal(bytes(message))
