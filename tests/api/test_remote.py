"""Remote use in one process: who is let in over TLS, what is refused in which words, and what attackers get."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.api.remote import Remote
from tests.api.remote import site as site
from vgpud.api import remote as tls
from vgpud.api.caller import Caller
from vgpud.api.jobs import REMOTE_LIMITS, own_limits
from vgpud.api.server import MESSAGE_BYTES_MAX
from vgpud.certs import issue
from vgpud.certs.register import Register
from vgpud.client.contexts import Context
from vgpud.core.fairness.accounts import Accounts
from vgpud.errors import ConfigError, ConflictError, DeniedError
from vgpud.host.users import User
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

_DAY_S = 86_400


def run_while_serving(site: Remote, work: Callable[[Remote], Awaitable[None]]) -> None:
    async def main() -> None:
        async with site.serving():
            await work(site)

    asyncio.run(main())


def client_settings(context: Context, tmp_path: Path) -> ssl.SSLContext:
    """Of an attacker: whatever may be tried is set by the test."""
    file = tmp_path / "attacker.pem"
    file.write_text(context.key + context.certificate)
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    settings.load_verify_locations(cadata=context.authority)
    settings.load_cert_chain(file)
    settings.set_alpn_protocols(["h2"])
    return settings


# ---- who is let in ----


def test_a_certificate_stands_for_its_local_user_with_all_groups(site: Remote) -> None:
    async def work(site: Remote) -> None:
        expected = {"pid": 0, "remote": True, "by_token": False}
        assert await site.who(site.certificate("alice")) == expected | {
            "uid": 61001, "gid": 61001, "gids": [61500], "admin": False,
        }  # fmt: skip
        for name, admin in (("bob", False), ("carol", True), ("root", True)):
            found = await site.who(site.certificate(name))
            assert (found["uid"], found["admin"]) == (site.users[name].uid, admin)

    run_while_serving(site, work)


def test_what_is_wrong_with_a_certificate_is_said_in_one_sentence(site: Remote) -> None:
    alice, bob = site.certificate("alice"), site.certificate("bob")

    async def work(site: Remote) -> None:
        async def check_refusal(context: Context, *words: str) -> None:
            code, message = await site.who(context)
            assert code == "UNAUTHENTICATED"
            assert all(word in message for word in words) and "\n" not in message, message

        site.clock.ahead_s = 31 * _DAY_S
        await check_refusal(alice, "the certificate of alice", " expired on ", "`vgpu cert user alice`")
        site.clock.ahead_s = -_DAY_S
        await check_refusal(alice, "is valid from ", "the daemon's clock shows", "ask its admin to set that clock")
        site.clock.ahead_s = 0
        assert (await site.who(alice))["uid"] == 61001
        site.users["alice"] = User("alice", 62000, 62000, ())
        await check_refusal(alice, "had uid 61001 when the certificate was issued and has 62000 now")
        del site.users["alice"]
        await check_refusal(alice, "there is no user 'alice' on the daemon's machine", "create the user")
        site.register.revoke("bob", site.clock())
        await check_refusal(bob, "was revoked on ", "ask the daemon's admin for a new one")

    run_while_serving(site, work)


def test_a_forged_name_is_worth_nothing(site: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even signed by the site's own authority: a certificate that is not in the list is no user's."""
    with monkeypatch.context() as patch:
        patch.setattr(Register, "changing", lambda self: contextlib.nullcontext({}))
        forged = site.certificate("root")
    alice = site.certificate("alice")
    server = replace(alice, key=site.register.server.read_text(), certificate=site.register.server.read_text())

    async def work(site: Remote) -> None:
        code, message = await site.who(forged)
        assert (code, "is not in the daemon's list" in message) == ("UNAUTHENTICATED", True)
        assert (await site.who(replace(alice, user="root", uid=0, name="root")))["uid"] == 61001
        assert (await site.who(server))[0] in ("UNAVAILABLE", "UNAUTHENTICATED")  # the server's is no client's

    run_while_serving(site, work)


def test_a_list_that_cannot_be_read_admits_no_user(site: Remote) -> None:
    alice = site.certificate("alice")

    async def work(site: Remote) -> None:
        for damage in (lambda file: file.write_text("{"), lambda file: file.chmod(0o644), lambda file: file.unlink()):
            whole = (site.register.directory / "certificates.json").read_text()
            damage(site.register.directory / "certificates.json")
            code, message = await site.who(alice)
            assert (code, "cannot read its list of certificates" in message) == ("UNAUTHENTICATED", True)
            with contextlib.suppress(FileNotFoundError):
                (site.register.directory / "certificates.json").unlink()
            issue._write(site.register.directory / "certificates.json", whole)
            assert (await site.who(alice))["uid"] == 61001

    run_while_serving(site, work)


# ---- what ends in the handshake ----


def other_site(tmp_path: Path) -> Remote:
    (tmp_path / "other").mkdir()
    return Remote(tmp_path / "other")


def test_another_authority_is_refused_on_both_sides(site: Remote, tmp_path: Path) -> None:
    stranger, alice = other_site(tmp_path).certificate("alice"), site.certificate("alice")

    async def work(site: Remote) -> None:
        blind = replace(stranger, authority=alice.authority)  # trusts the server, and is not trusted
        assert (await site.who(blind))[0] == "UNAVAILABLE"
        reason = await site.why(blind)
        assert "ended the connection: another authority has issued your certificate" in reason, reason
        assert (await site.who(stranger))[0] == "UNAVAILABLE"
        assert "has a certificate of another authority than this context's" in await site.why(stranger)
        assert await site.why(alice) == ""

    run_while_serving(site, work)


@pytest.mark.parametrize("attack", ["no certificate", "TLS 1.2", "plain text", "no ALPN"])
def test_no_connection_without_tls_1_3_and_a_certificate(site: Remote, tmp_path: Path, attack: str) -> None:
    alice = site.certificate("alice")

    async def work(site: Remote) -> None:
        host, _, port = site.host.rpartition(":")
        settings: ssl.SSLContext | None = client_settings(alice, tmp_path)
        assert settings
        if attack == "no certificate":
            settings = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            settings.load_verify_locations(cadata=alice.authority)
            settings.set_alpn_protocols(["h2"])
        elif attack == "TLS 1.2":
            settings.maximum_version = ssl.TLSVersion.TLSv1_2
        elif attack == "plain text":
            settings = None
        else:
            settings.set_alpn_protocols(["http/1.1"])
        answer = b""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=settings)
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0")
            answer = await asyncio.wait_for(reader.read(9), 30)
            writer.close()
        served_by_grpc = answer[3:4] == b"\x04"  # HTTP/2 SETTINGS
        assert served_by_grpc == (attack == "no ALPN"), answer
        if attack == "no ALPN":  # it is connected, to a sentence
            assert {peer.refusal for peer in site.listener._open.values()} == {
                "this port speaks gRPC only: use vgpu, or vgpud.client"
            }
        else:
            assert not site.listener._open
        assert (await site.who(alice))["uid"] == 61001

    run_while_serving(site, work)


def test_a_server_that_is_not_ours_gets_a_reason(site: Remote) -> None:
    alice = site.certificate("alice")

    async def work(site: Remote) -> None:
        assert "is no host that is known here" in await site.why(alice, "host.invalid:1")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            assert "nothing listens on" in await site.why(alice, f"127.0.0.1:{free.getsockname()[1]}")
        plain = await asyncio.start_server(lambda r, w: w.write(b"SSH-2.0-OpenSSH\r\n"), "127.0.0.1", 0)
        async with plain:
            reason = await site.why(alice, f"127.0.0.1:{plain.sockets[0].getsockname()[1]}")
        assert "does not speak TLS 1.3 as vgpud does" in reason, reason

    run_while_serving(site, work)


def test_a_name_that_the_certificate_does_not_have(site: Remote) -> None:
    alice = site.certificate("alice")
    issue.init(site.register, ["gpu1.example.org"], 30, renew=True)

    async def work(site: Remote) -> None:
        reason = await site.why(alice)
        assert reason.startswith("the daemon's certificate is not for 127.0.0.1: "), reason

    run_while_serving(site, work)


def test_a_clock_of_the_client_that_is_off(site: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were: the server's certificate lies in the past."""
    alice = site.certificate("alice")
    with monkeypatch.context() as patch:
        patch.setattr(issue, "EARLY_S", 40 * _DAY_S)
        issue.init(site.register, [], -1, renew=True)

    async def work(site: Remote) -> None:
        reason = await site.why(alice)
        assert "the daemon's certificate at" in reason and "has expired, and this machine's clock shows" in reason, (
            reason
        )
        assert "set the clock of this machine, or have the certificate renewed" in reason

    monkeypatch.setattr(Register, "check", lambda self, now_s: None)
    run_while_serving(site, work)


# ---- connections that are open ----


def test_open_connections_end_when_the_certificate_is_revoked_or_expires(site: Remote) -> None:
    alice, bob = site.certificate("alice"), site.certificate("bob")

    async def work(site: Remote) -> None:
        async with site.channel(alice) as first, site.channel(bob) as second:
            streams = [
                stubs.TokenServiceStub(channel).ListTokens(pb.ListTokensRequest()) for channel in (first, second)
            ]
            await asyncio.gather(*streams)  # type: ignore[arg-type]
            assert len(site.listener._open) == 2
            site.register.revoke("alice", site.clock())
            await site.listener.recheck()
            assert [peer.uid for peer in site.listener._open.values()] == [61002]
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await stubs.TokenServiceStub(first).ListTokens(pb.ListTokensRequest())  # type: ignore[misc]
            assert error.value.code().name in ("UNAVAILABLE", "UNAUTHENTICATED")
            site.clock.ahead_s = 31 * _DAY_S
            await site.listener.recheck()
            assert all(peer.refusal for peer in site.listener._open.values())  # of a client that tried again

    run_while_serving(site, work)


def test_a_renewed_certificate_is_taken_over(site: Remote) -> None:
    alice = site.certificate("alice")

    async def work(site: Remote) -> None:
        issue.init(site.register, ["gpu1.example.org"], 30, renew=True)
        assert await site.why(alice) == ""
        await site.listener.recheck()
        assert "is not for 127.0.0.1" in await site.why(alice)
        site.register.server.write_text("torn")
        await site.listener.recheck()  # the one before stays in use
        assert "is not for 127.0.0.1" in await site.why(alice)

    run_while_serving(site, work)


# ---- greedy and slow clients ----


def test_silent_connections_take_no_places_of_others(site: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKES_PER_ADDRESS_MAX", 4)
    monkeypatch.setattr(tls, "HANDSHAKE_S", 1.0)
    monkeypatch.setattr("vgpud.host.listeners.source", lambda sock: sock.getpeername()[0])  # as of other machines
    alice = site.certificate("alice")

    async def work(site: Remote) -> None:
        host, _, port = site.host.rpartition(":")
        slow = [
            await asyncio.open_connection(host, int(port), local_addr=("127.0.0.9", 0)) for _ in range(6)
        ]  # they send nothing
        assert (await site.who(alice))["uid"] == 61001
        ends = [await asyncio.wait_for(reader.read(1), 30) for reader, _ in slow]
        assert ends == [b""] * 6, "all were closed: two at once, four after their time"
        for _, writer in slow:
            writer.close()
        assert not site.listener._handshakes.by_address

    run_while_serving(site, work)


def test_messages_have_the_limit_of_the_socket(site: Remote) -> None:
    alice = site.certificate("alice")

    async def work(site: Remote) -> None:
        async with site.channel(alice) as channel:
            call = channel.unary_unary("/test.Service/Who")
            assert await call(b"x" * (MESSAGE_BYTES_MAX - 100))
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call(b"x" * (MESSAGE_BYTES_MAX + 1))
            assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    run_while_serving(site, work)


def test_users_have_the_accounts_and_the_number_of_connections_of_the_socket(
    site: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vgpud.api.peer_proxy.PER_UID_MAX", 2)
    alice, bob = site.certificate("alice"), site.certificate("bob")

    async def work(site: Remote) -> None:
        async with site.channel(alice) as first, site.channel(alice) as second:
            for channel in (first, second):
                await channel.unary_unary("/test.Service/Who")(b"")
            assert (await site.who(alice))[0] == "UNAVAILABLE"
            assert (await site.who(bob))["uid"] == 61002
        accounts = site.proxy.turns._accounts._users
        assert {61001, 61002, tls.STRANGER} <= set(accounts)

    run_while_serving(site, work)


def test_strangers_wait_for_strangers_only(site: Remote) -> None:
    """Handshakes are charged to one account: when it is overdrawn, connections wait in the kernel."""
    alice = site.certificate("alice")

    async def work(site: Remote) -> None:
        async with site.channel(alice) as channel:
            call = channel.unary_unary("/test.Service/Who")
            await call(b"")
            turns = site.proxy.turns
            for _ in range(1000):
                turns.charge(tls.STRANGER, tls.HANDSHAKE_NS)
            now_ns = time.monotonic_ns()
            waits_ns = [turns._accounts.wait_ns(key, now_ns) for key in (tls.STRANGER, 61001)]
            assert waits_ns[0] > 10 * waits_ns[1], waits_ns
            await asyncio.wait_for(call(b""), 30)

    run_while_serving(site, work)


def test_handshakes_without_end_are_paid_by_who_makes_them(site: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were charged to one account of all strangers, which kept every new connection waiting for 10 s."""
    monkeypatch.setattr("vgpud.host.listeners.source", lambda sock: sock.getpeername()[0])
    alice = site.certificate("alice")

    async def work(site: Remote) -> None:
        host, _, port = site.host.rpartition(":")
        took_s = []
        for count in (0, 0, 1000):
            for _ in range(count):  # made and closed again by another address
                _, writer = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.9", 0))
                writer.close()
            began_s = time.monotonic()
            await asyncio.wait_for(site.who(alice), 60)
            took_s.append(time.monotonic() - began_s)
        assert took_s[2] < 50 * max(took_s[:2]), took_s  # it waits behind those that came before

    run_while_serving(site, work)


def test_a_local_user_pays_for_handshakes_and_calls_from_one_account() -> None:
    """Three accounts of one user, of a twentieth each, took all that all users have together."""
    assert tls._account(61001) == 61001 and tls._account(0) < tls.STRANGER
    assert tls._account("192.0.2.7") < tls.STRANGER
    accounts = Accounts()
    waits, now_ns, step_ns = [], 10**9, 1_000_000
    for _ in range(20_000):
        now_ns += step_ns
        for account in (6666, tls._account(6666), tls.STRANGER):  # calls, handshakes and connections without end
            accounts.record_use(account, now_ns)
            if not accounts.wait_ns(account, now_ns):
                accounts.charge(account, step_ns, now_ns)
        waits.append(accounts.wait_ns(61001, now_ns))
    assert not any(waits[15_000:]), "what was saved up is spent by then"


def test_a_connection_that_has_gone_costs_no_handshake(site: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgpud.host.listeners.source", lambda sock: sock.getpeername()[0])
    alice = site.certificate("alice")

    async def work(site: Remote) -> None:
        host, _, port = site.host.rpartition(":")
        for _ in range(300):
            _, writer = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.9", 0))
            writer.write(b"x" * 100)
            writer.close()
        await site.who(alice)
        spent_ns = -site.proxy.turns._accounts._users[tls._account("127.0.0.9")].level_ns
        assert spent_ns < 100 * tls.HANDSHAKE_NS

    run_while_serving(site, work)


# ---- starting ----


def refused_to_listen(site: Remote, host: str = "127.0.0.1", port: int = 0) -> Exception:
    async def main() -> None:
        try:
            await site.listener.open(host, port)
        finally:
            await site.listener.close()

    with pytest.raises((ConfigError, ConflictError, DeniedError)) as error:
        asyncio.run(main())
    assert "\n" not in str(error.value)
    return error.value


def test_a_second_daemon_on_the_port(site: Remote) -> None:
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        first.listen()
        reason = refused_to_listen(site, port=first.getsockname()[1])
    assert isinstance(reason, ConflictError)
    assert "another program listens on 127.0.0.1:" in str(reason) and "choose another port" in str(reason)


def test_an_address_of_another_machine(site: Remote) -> None:
    assert "write an address of this machine" in str(refused_to_listen(site, "192.0.2.1"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda r: r.server.chmod(0o640), "has mode 640, so other users may have read it: run chmod 600"),
        (lambda r: (r.directory / "certificates.json").chmod(0o644), "has mode 644"),
        (lambda r: r.directory.chmod(0o777), "is writable by others (mode 777): run chmod go-w"),
        (lambda r: r.server.unlink(), "run `vgpu cert init`"),
        (lambda r: (r.server.unlink(), r.server.symlink_to("/etc/passwd")), "is not a regular file"),
        (lambda r: r.server.write_text("nothing"), "run `vgpu cert init --renew`"),
        (lambda r: r.authority.unlink(), "restore it from a backup"),
        (lambda r: r.directory.rename(r.directory.with_name("gone")), "there are no certificates in"),
    ],
)
def test_never_without_whole_and_private_files(site: Remote, damage: Callable[[Register], Any], words: str) -> None:
    damage(site.register)
    assert words in str(refused_to_listen(site))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away: only root can")
def test_never_with_files_of_another_user(site: Remote) -> None:
    os.chown(site.register.server, 61001, 61001)
    assert "belongs to uid 61001" in str(refused_to_listen(site))


@pytest.mark.parametrize(("ahead_s", "words"), [(31 * _DAY_S, "expired on"), (-_DAY_S, "set the clock")])
def test_never_with_a_certificate_that_the_clock_does_not_admit(site: Remote, ahead_s: float, words: str) -> None:
    site.clock.ahead_s = ahead_s
    assert words in str(refused_to_listen(site))


def test_jobs_of_remote_users_have_the_limits_of_a_log_in() -> None:
    found = own_limits(Caller(1000, 1000, (), 0, admin=False, remote=True))
    soft, hard = found["nofile"]
    assert 0 < soft <= REMOTE_LIMITS["nofile"][0] and soft <= hard <= REMOTE_LIMITS["nofile"][1]
    assert found["core"][0] == 0
    with pytest.raises(Exception, match="cannot be read"):
        own_limits(Caller(1000, 1000, (), 0, admin=False))
