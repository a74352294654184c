"""The refund case: what the three examples share.

A customer wants money back. Triage verifies the identity and reads the order and the payment log, then hands over to the refunds
specialist. In the weak version it hands over a sentence and the specialist does everything again; in the good one it hands over a
contract. In both, the application's state holds three rules.
"""

from __future__ import annotations

import os
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from baton_handoff import Constraint
from scripted_model import Turn

TRIAGE = "You are triage. Verify the customer, gather what is known, and hand over."
SPECIALIST = "You are refunds_specialist. Carry out what you are given and keep its rules."
REQUEST = "I want my money back for order 4711. I am Ada, customer 88."

RULES = [
    Constraint("refund-window-30d", "Refund only within 30 days of capture."),
    Constraint("mask-iban", "Never repeat an IBAN in full."),
    Constraint("approval-over-500", "Refunds over 500 EUR need a person's approval."),
]

LOOKUPS = [
    Turn(calls=[("verify_identity", {"customer": "88"})]),
    Turn(calls=[("get_order", {"order": "4711"})]),
    Turn(calls=[("get_payment_log", {"order": "4711"})]),
]

CONTRACT = {
    "intent": "Refund order 4711 in full",
    "constraints": [{"id": c.id, "text": c.text} for c in RULES],
    "status": "Identity verified, order and payment log read",
    "evidence": ["Order 4711: 120 EUR, captured 12 days ago", "Payment pay_7F3M is settled"],
    "next_action": "Issue the refund of 120 EUR to pay_7F3M",
    "stop_condition": "The refund is issued or a rule forbids it",
    "attempted_tools": ["verify_identity", "get_order", "get_payment_log"],
    "artifact_refs": ["payment://pay_7F3M"],
}
NOTE = "Customer 88 wants a refund. Please keep refund-window-30d and approval-over-500 in mind."

REFUND = Turn(calls=[("issue_refund", {"payment": "pay_7F3M", "amount": 120})])
DONE = Turn(text="Your 120 EUR are on their way.")


def verify_identity(customer: str) -> dict[str, Any]:
    """Verifies who the customer is."""
    return {"customer": customer, "verified": True}


def get_order(order: str) -> dict[str, Any]:
    """Reads an order."""
    return {"order": order, "amount": 120, "captured_days_ago": 12}


def get_payment_log(order: str) -> dict[str, Any]:
    """Reads the payments of an order."""
    return {"order": order, "payment": "pay_7F3M", "state": "settled"}


def issue_refund(payment: str, amount: int) -> dict[str, Any]:
    """Sends money back."""
    return {"payment": payment, "amount": amount, "refunded": True}


def script(transfer: Turn, good: bool) -> dict[str, list[Turn]]:
    """What both agents say. A specialist that was told nothing asks again for what is known."""
    return {"triage": [*LOOKUPS, transfer], "refunds_specialist": [*([] if good else LOOKUPS), REFUND, DONE]}


def set_up_tracing(service: str) -> TracerProvider:
    """Sends spans to where OTEL_EXPORTER_OTLP_ENDPOINT says: a collector on this machine, if nothing is said."""
    provider = TracerProvider(resource=Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", service)}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider
