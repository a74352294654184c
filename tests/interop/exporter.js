// Sends spans of two agents and their handoffs with the JavaScript SDK, and prints the ids of the spans.
//
//     node exporter.js json|proto|grpc none|gzip URL SERVICE TRACES

"use strict";

const { context, trace } = require("@opentelemetry/api");
const { resourceFromAttributes } = require("@opentelemetry/resources");
const { BatchSpanProcessor, NodeTracerProvider } = require("@opentelemetry/sdk-trace-node");

const EXPORTERS = {
  json: "@opentelemetry/exporter-trace-otlp-http",
  proto: "@opentelemetry/exporter-trace-otlp-proto",
  grpc: "@opentelemetry/exporter-trace-otlp-grpc",
};

async function main([protocol, compression, url, service, traces]) {
  const { OTLPTraceExporter } = require(EXPORTERS[protocol]);
  const exporter = new OTLPTraceExporter({ url, compression });
  const failed = [];
  const send = exporter.export.bind(exporter);
  exporter.export = (spans, done) =>
    send(spans, (result) => {
      if (result.code !== 0) failed.push(String(result.error));
      done(result);
    });
  const provider = new NodeTracerProvider({
    resource: resourceFromAttributes({ "service.name": service }),
    spanProcessors: [new BatchSpanProcessor(exporter, { maxQueueSize: 100000, maxExportBatchSize: 64 })],
  });
  const tracer = provider.getTracer("interop");
  const ids = [];
  // The clock counts whole milliseconds here: spans of one millisecond would have no order.
  let time = Date.now();
  const span = (name, attributes, parent) => {
    time += 1;
    const s = tracer.startSpan(name, { attributes, startTime: time }, parent ? trace.setSpan(context.active(), parent) : context.active());
    ids.push(s.spanContext().spanId);
    return s;
  };
  const agent = (name, parent) =>
    span(`invoke_agent ${name}`, { "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name }, parent);
  for (let i = 0; i < Number(traces); i++) {
    const root = span(`task ${i}`, {});
    const triage = agent("triage", root);
    const handoff = span(
      "transfer_to_refunds",
      {
        "baton.handoff.id": `${service}-${i}`,
        "baton.handoff.from_agent": "triage",
        "baton.handoff.to_agent": ["refunds"],
        "baton.handoff.history.items_before": 3,
      },
      triage,
    );
    handoff.end(time);
    triage.end(time);
    const refunds = agent("refunds", root);
    refunds.end(time);
    root.end(time);
  }
  await provider.forceFlush();
  await provider.shutdown();
  if (failed.length > 0) throw new Error(failed.join("; "));
  console.log(JSON.stringify(ids));
}

main(process.argv.slice(2)).catch((e) => {
  console.error(e);
  process.exit(1);
});
