import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from baton_handoff import _safe

_EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="session", autouse=True)
def _provider():
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(_EXPORTER))
    trace.set_tracer_provider(provider)


class Spans:
    """What was exported, by name or by attribute."""

    def __init__(self, exporter):
        self._exporter = exporter

    def all(self):
        return list(self._exporter.get_finished_spans())

    def handoffs(self):
        found = [s for s in self.all() if "baton.handoff.id" in s.attributes]
        return sorted(found, key=lambda s: s.start_time)

    def handoff(self):
        (only,) = self.handoffs()
        return only

    def having(self, key):
        return [s for s in self.all() if key in s.attributes]


@pytest.fixture
def spans():
    _EXPORTER.clear()
    _safe._told.clear()
    yield Spans(_EXPORTER)
    # Nothing of ours failed in silence.
    assert _safe._told == set()
