"""Sends one message by mail, through the server of the configuration (``smtp_host`` and the rest).

The Message-ID is the delivery's, so that a message that had to be sent twice is one to mail programs.
"""

from __future__ import annotations

import json
import smtplib
from collections.abc import Sequence
from email.utils import parseaddr
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend

from dashboard.alerting import message
from dashboard.alerting.outcome import Outcome


def send(recipients: Sequence[str], body: dict[str, Any]) -> Outcome:
    """One attempt. Never raises for what the network or the server does."""
    if not settings.EMAIL_HOST:
        return Outcome.refused("No mail server is configured: set smtp_host")
    mail = _mail(recipients, body)
    backend = EmailBackend(fail_silently=False)
    try:
        backend.open()
        assert backend.connection is not None
        refused = backend.connection.sendmail(
            parseaddr(settings.DEFAULT_FROM_EMAIL)[1],
            list(recipients),
            mail.message().as_bytes(linesep="\r\n"),
        )
    except smtplib.SMTPRecipientsRefused as error:
        return Outcome.refused(f"Every recipient was refused: {_said(error.recipients)}")
    except smtplib.SMTPResponseException as error:
        words = f"The server said {error.smtp_code} {_text(error.smtp_error)}"
        return Outcome.refused(words) if error.smtp_code >= 500 else Outcome.failed(words)
    except TimeoutError:
        return Outcome.failed("The server did not answer in time")
    except smtplib.SMTPException as error:
        return Outcome.failed(f"The server did not take it: {str(error) or type(error).__name__}")
    except OSError as error:
        reason = error.strerror or str(error) or repr(error)
        return Outcome.failed(f"The server could not be reached: {reason}")
    finally:
        backend.close()
    if refused:
        return Outcome.sent(f"Accepted, but not for {_said(refused)}")
    return Outcome.sent(f"The server accepted it for {', '.join(recipients)}")


def _mail(recipients: Sequence[str], body: dict[str, Any]) -> EmailMessage:
    text = f"{body['text']}\n\n{json.dumps(body, indent=2, ensure_ascii=False)}\n"
    return EmailMessage(
        message.subject_of(body),
        text,
        settings.DEFAULT_FROM_EMAIL,
        list(recipients),
        headers={
            "Message-ID": f"<{body['id']}@odradek>",
            "Auto-Submitted": "auto-generated",
            "X-Odradek-Event": str(body["event"]),
        },
    )


def _said(refused: dict[str, tuple[int, bytes]]) -> str:
    return "; ".join(f"{name} ({code} {_text(text)})" for name, (code, text) in refused.items())


def _text(said: bytes | str) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said
