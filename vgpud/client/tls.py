"""Why a daemon of another machine is not reached: one handshake, since gRPC does not say."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time

from vgpud.client.contexts import Context

_WAIT_S = 5.0
#: OpenSSL's codes of what is wrong with the server's certificate
_EARLY, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64


def why_unreachable(context: Context, host: str) -> str:
    """One sentence with the remedy; "" when the connection works, or the reason cannot be found out."""
    name, _, port = host.rpartition(":")
    name = name.strip("[]")
    try:
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(socket.create_connection((name, int(port)), _WAIT_S))
            tls = stack.enter_context(make_settings(context).wrap_socket(raw, server_hostname=name))
            tls.settimeout(_WAIT_S)
            if not tls.recv(1):  # with TLS 1.3 our side is done before the server has looked at our certificate
                return _why_ended(host)
    except ssl.SSLCertVerificationError as error:
        return _why_not_trusted(error, host)
    except ssl.SSLError as error:
        return _why_refused(error, host)
    except ConnectionResetError:
        return _why_ended(host)
    except OSError as error:
        return _why_not_connected(error, host)
    return ""


def make_settings(context: Context) -> ssl.SSLContext:
    """TLS 1.3 with both certificates, for HTTP/2."""
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    settings.minimum_version = ssl.TLSVersion.TLSv1_3
    settings.set_alpn_protocols(["h2"])
    settings.load_verify_locations(cadata=context.authority)
    fd = os.memfd_create("vgpu-key", os.MFD_CLOEXEC)  # OpenSSL reads files only, and the key goes to no disk
    try:
        os.write(fd, (context.key + "\n" + context.certificate).encode())
        settings.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    return settings


def _why_not_connected(error: OSError, host: str) -> str:
    if isinstance(error, socket.gaierror):
        return f"{host.rpartition(':')[0]} is no host that is known here: correct --host or the context"
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens on {host}: start the daemon with `vgpud serve --listen HOST:PORT`, or correct the port"
    if isinstance(error, TimeoutError):
        return f"{host} does not answer: is the machine up, and does its firewall let the port through?"
    return f"cannot reach {host}: {error.strerror or error}; see the daemon's log"


def _why_not_trusted(error: ssl.SSLCertVerificationError, host: str) -> str:
    clock = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    if error.verify_code in (_EARLY, _EXPIRED):
        what = "is not valid yet" if error.verify_code == _EARLY else "has expired"
        fix = "set the clock of this machine, or have the certificate renewed (`vgpu cert init --renew`)"
        return f"the daemon's certificate at {host} {what}, and this machine's clock shows {clock}: {fix}"
    if error.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
        fix = "use a name that it has, or have this one added (`vgpu cert init --renew --name NAME ...`)"
        return f"the daemon's certificate is not for {host.rpartition(':')[0]}: {fix}"
    text = f"the daemon at {host} has a certificate of another authority than this context's"
    return f"{text}: ask its admin for a certificate of yours, and do not connect if you did not expect this"


def _why_refused(error: ssl.SSLError, host: str) -> str:
    reason = error.reason or str(error)
    if "ALERT" in reason:
        return _why_ended(host)
    return f"{host} does not speak TLS 1.3 as vgpud does ({reason.lower()}): is it the daemon's port?"


def _why_ended(host: str) -> str:
    text = f"the daemon at {host} ended the connection: another authority has issued your certificate, or you have"
    return f"{text} too many connections; ask its admin to see its log, or for a new certificate"
