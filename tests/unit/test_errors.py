"""One exit code and one gRPC status for each error; messages are one line."""

from __future__ import annotations

import grpc

from fedsecure import errors


def classes() -> list[type[errors.FedSecureError]]:
    return [getattr(errors, n) for n in errors.__all__ if n not in {"EXIT_CODES", "FedSecureError"}]


def test_exit_codes_are_distinct_and_leave_the_audits_codes_free() -> None:
    codes = [cls.exit_code for cls in classes()]
    assert len(set(codes)) == len(codes)
    assert not set(codes) & {0, 1, 2, 10, 11, 12, 13}
    assert set(codes) < set(errors.EXIT_CODES)


def test_grpc_statuses_exist() -> None:
    assert all(cls.grpc_status in grpc.StatusCode.__members__ for cls in classes())


def test_messages_are_one_line() -> None:
    error = errors.DataError("a\nb", hint="c\n d")
    assert str(error) == "a b"
    assert error.hint == "c d"
