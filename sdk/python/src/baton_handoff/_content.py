"""Whether content may stand on spans."""

from __future__ import annotations

import os

_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def allowed(explicit: bool | None) -> bool:
    """What was said in code, else what the variable of the OpenTelemetry conventions says, else no."""
    if explicit is not None:
        return explicit
    return os.environ.get(_VARIABLE, "").strip().lower() in ("true", "span_only", "span_and_event")
