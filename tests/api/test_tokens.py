"""Tokens: whose calls they make, how they end, and what a stolen or forged one can do."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.api.remote import ADMIN_GID, Remote
from tests.api.remote import site as site
from tests.api.test_remote import other_site, run_while_serving
from vgpud.api import tokens as tokens_module
from vgpud.api.tokens import PER_USER_MAX
from vgpud.host.users import User
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

INVALID = (
    "UNAUTHENTICATED",
    "this token has expired, was revoked, or is of a daemon that was restarted: make a new one",
)


def test_a_call_with_a_token_is_its_users(site: Remote) -> None:
    """Also where the connection is an admin's: the token decides, up and down."""
    root, alice = site.certificate("root"), site.certificate("alice")

    async def work(site: Remote) -> None:
        for_alice = (await site.token(root, user="alice")).secret
        for_carol = (await site.token(root, user="carol")).secret
        found = await site.who(root, for_alice)
        assert (found["uid"], found["gids"], found["admin"], found["by_token"]) == (61001, [61500], False, True)
        found = await site.who(alice, for_carol)
        assert (found["uid"], found["gids"], found["admin"]) == (61003, [ADMIN_GID], True)
        mine = await site.token(alice, note="a console")
        assert (mine.token.user, mine.token.uid, mine.token.note) == ("alice", 61001, "a console")
        assert mine.token.expire_time.seconds - mine.token.create_time.seconds in (3599, 3600, 3601)
        assert (await site.who(root, mine.secret))["uid"] == 61001

    run_while_serving(site, work)


def test_users_make_tokens_for_themselves_only_and_none_by_a_token(site: Remote) -> None:
    alice, root = site.certificate("alice"), site.certificate("root")

    async def work(site: Remote) -> None:
        for name in ("root", "bob", "nobody-at-all", "../alice", "alice\0"):
            code, message = await site.token(alice, user=name)
            assert (code, "may make tokens for itself only" in message) == ("PERMISSION_DENIED", True), name
        assert (await site.token(root, user="nobody-at-all"))[0] == "NOT_FOUND"
        secret = (await site.token(alice)).secret
        code, message = await site.token(root, by=secret)
        assert (code, message) == (
            "PERMISSION_DENIED",
            "a token makes no further tokens: connect without one, or ask for a longer ttl",
        )

    run_while_serving(site, work)


@pytest.mark.parametrize("ttl", [Duration(seconds=-5), Duration(nanos=1), Duration(seconds=86_401)])
def test_a_life_that_is_too_long_or_none(site: Remote, ttl: Duration) -> None:
    alice = site.certificate("alice")

    async def work(site: Remote) -> None:
        code, message = await site.token(alice, ttl=ttl)
        assert (code, "write 1 to 86400 seconds" in message) == ("INVALID_ARGUMENT", True)
        code, message = await site.token(alice, note="n" * 101)
        assert (code, "100 is the limit" in message) == ("INVALID_ARGUMENT", True)

    run_while_serving(site, work)


def test_a_replayed_token_is_refused_when_it_has_expired_or_was_revoked(site: Remote) -> None:
    alice, bob = site.certificate("alice"), site.certificate("bob")

    async def work(site: Remote) -> None:
        short, long = [await site.token(alice, ttl=Duration(seconds=s)) for s in (10, 1000)]
        site.clock.ahead_s = 11
        assert await site.who(alice, short.secret) == INVALID
        assert (await site.who(alice, long.secret))["uid"] == 61001
        async with site.channel(bob) as channel:
            service = stubs.TokenServiceStub(channel)
            assert not (await service.ListTokens(pb.ListTokensRequest())).tokens  # type: ignore[misc]
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await service.RevokeToken(pb.RevokeTokenRequest(token_id=long.token.token_id))  # type: ignore[misc]
            assert error.value.code() is grpc.StatusCode.NOT_FOUND
        async with site.channel(alice) as channel:
            service = stubs.TokenServiceStub(channel)
            (listed,) = (await service.ListTokens(pb.ListTokensRequest())).tokens  # type: ignore[misc]
            assert listed == long.token
            assert long.secret not in str(listed)
            await service.RevokeToken(pb.RevokeTokenRequest(token_id=listed.token_id))  # type: ignore[misc]
        assert await site.who(alice, long.secret) == INVALID

    run_while_serving(site, work)


def test_a_forged_token_and_another_kind_of_log_in(site: Remote) -> None:
    alice = site.certificate("alice")

    async def work(site: Remote) -> None:
        made = await site.token(alice)
        for forged in ("", "x", made.token.token_id, made.secret[:-1], made.secret + " ", "~" * 100, "0" * 7000):
            assert await site.who(alice, forged) == INVALID, forged
        for header in ("Basic ", "bearer ", "", "Bearer"):
            code, message = await site.who(alice, made.secret, header)
            assert (code, message) == ("UNAUTHENTICATED", "authorization takes a token: write `Bearer TOKEN`")

    run_while_serving(site, work)


def test_a_stolen_token_is_no_use_without_a_certificate(site: Remote, tmp_path: Path) -> None:
    alice, stranger = site.certificate("alice"), other_site(tmp_path).certificate("alice")

    async def work(site: Remote) -> None:
        secret = (await site.token(alice)).secret
        assert (await site.who(stranger, secret))[0] == "UNAVAILABLE"
        site.register.revoke("alice", site.clock())
        code, message = await site.who(alice, secret)
        assert (code, "was revoked on" in message) == ("UNAUTHENTICATED", True)

    run_while_serving(site, work)


def test_tokens_end_with_their_certificate_and_their_user(site: Remote) -> None:
    alice, bob, root = site.certificate("alice"), site.certificate("bob"), site.certificate("root")

    async def work(site: Remote) -> None:
        by_alice, by_bob = (await site.token(alice)).secret, (await site.token(bob)).secret
        for_carol = (await site.token(root, user="carol")).secret
        await site.tokens.recheck(site.listener.valid)
        assert len(site.tokens.of(None)) == 3
        site.register.revoke("alice", site.clock())
        site.users["carol"] = User("carol", 61003, 61003, ())  # an admin no more
        await site.tokens.recheck(site.listener.valid)
        assert await site.who(root, by_alice) == INVALID
        assert await site.who(root, for_carol) == INVALID
        assert (await site.who(root, by_bob))["uid"] == 61002

    run_while_serving(site, work)


def test_no_user_fills_the_table(site: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = site.certificate("alice"), site.certificate("bob")
    made = [site.tokens.create(site.users["alice"], 100, "", "") for _ in range(PER_USER_MAX)]

    async def work(site: Remote) -> None:
        code, message = await site.token(alice)
        assert (code, f"has {PER_USER_MAX} tokens" in message) == ("RESOURCE_EXHAUSTED", True)
        monkeypatch.setattr(tokens_module, "ALL_MAX", PER_USER_MAX)
        assert (await site.token(bob))[0] == "RESOURCE_EXHAUSTED"
        site.clock.ahead_s = 101
        assert (await site.token(bob)).secret
        assert site.tokens.find(made[0][1]) is None

    run_while_serving(site, work)
