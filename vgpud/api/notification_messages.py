"""Notifications of a job as the API has them, and back."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from vgpud.api.rpc import RefusedError, refuse
from vgpud.core.jobs.facts import NoticeTo
from vgpud.core.jobs.model import END, JobSpec
from vgpud.core.model import Reason
from vgpud.core.queue.notices import wrong_events
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

#: of an address, by RFC 5321; of a URL; of a command with its arguments
MAIL_BYTES_MAX, WEBHOOK_BYTES_MAX, COMMAND_BYTES_MAX = 254, 2000, 4000
#: no address that a program could take for an option, or for several
_MAIL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._%+=/-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?")


def _invalid(message: str, field: str) -> RefusedError:
    return refuse(Reason.INVALID, message, f"notification.{field}")


def events_from(job_spec: pb.JobSpec) -> tuple[str, ...]:
    """Raises RefusedError."""
    if not job_spec.HasField("notification"):
        return ()
    events = tuple(dict.fromkeys(map(words.NOTIFICATION_EVENT.to_word, job_spec.notification.events))) or (END,)
    if wrong := wrong_events(events):
        raise _invalid(wrong, "events")
    return events


def notice_from(job_spec: pb.JobSpec) -> NoticeTo | None:
    """Raises RefusedError."""
    if not job_spec.HasField("notification"):
        return None
    given = job_spec.notification
    if not (given.mail or given.webhook or given.command):
        raise _invalid("a notification without mail, webhook or command: name one", "events")
    if given.mail and (len(given.mail) > MAIL_BYTES_MAX or not _MAIL.fullmatch(given.mail)):
        raise _invalid(f"{given.mail[:60]!r} is not a mail address: write for example ann@example.org", "mail")
    if given.webhook and (wrong := _wrong_url(given.webhook)):
        raise _invalid(wrong, "webhook")
    words = tuple(given.command)
    if words and (not words[0].startswith("/") or any("\0" in word for word in words)):
        raise _invalid(f"{words[0][:60]!r} is not a program: write its absolute path", "command")
    if sum(len(word.encode()) + 1 for word in words) > COMMAND_BYTES_MAX:
        raise _invalid(f"the command has more than {COMMAND_BYTES_MAX} bytes: put it into a script", "command")
    return NoticeTo(given.mail, given.webhook, words)


def _wrong_url(url: str) -> str:
    shown = repr(url[:60])
    if len(url.encode()) > WEBHOOK_BYTES_MAX:
        return f"the webhook {shown} has more than {WEBHOOK_BYTES_MAX} bytes: use a shorter one"
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or not url.isascii() or not url.isprintable() or " " in url:
        return f"{shown} is not a webhook: write an http or https URL, for example https://example.org/hook"
    return ""


def notification_view(spec: JobSpec, notice: NoticeTo | None, *, own: bool) -> pb.Notification | None:
    """`own`: for the job's owner. Others see where a webhook leads, not its address: whoever has it can post there."""
    if notice is None:
        return None
    webhook = notice.webhook if own or not notice.webhook else _origin(notice.webhook)
    events = [words.NOTIFICATION_EVENT.to_number(event) for event in spec.notify]
    return pb.Notification(events=events, mail=notice.mail, webhook=webhook, command=notice.command)


def _origin(url: str) -> str:
    """Scheme, host and port of a URL, without the user and the password that may be before them."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/..."
