"""Bytes to records and back. Untrusted bytes are parsed once, totally, with limits."""

from typing import Final, TypeVar

import msgspec

from rankpulse.core import keys, records

MAX_BYTES: Final = 1536 * 1024  # what etcd takes by default, too
T = TypeVar("T", bound=records.Record)

_encoder = msgspec.json.Encoder()
_decoders: dict[type[records.Record], msgspec.json.Decoder[records.Record]] = {}


class Refused(ValueError):
    """These bytes are not a record we act on; the text says why."""


def encode(record: records.Record) -> bytes:
    return _encoder.encode(record)


def decode(kind: type[T], data: bytes) -> T:
    """`data` as a `kind`. Unknown fields are ignored; raises `Refused` for anything that is not such a record."""
    if len(data) > MAX_BYTES:
        raise Refused(f"{len(data)} bytes, at most {MAX_BYTES}")
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        record = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"not a {kind.__name__}: {error}") from error
    if record.v != records.SCHEMA:
        raise Refused(f"{kind.__name__} of schema {record.v}, this version reads {records.SCHEMA}")
    return record  # type: ignore[return-value]


def decode_at(key: keys.Parsed, data: bytes) -> records.Record:
    """The record that belongs under `key`, checked against the key: nobody speaks in another's name."""
    record = decode(key.kind, data)
    for field, said in key.names.items():
        told = getattr(record, field, said)
        if told != said:
            raise Refused(f"{field} {told!r} in the record, {said!r} in its key")
    return record
