// Bars over time in lanes. Grafana's own state timeline is not in its packages, so this is a plain drawing; texts and
// colours of the states are those of Grafana's display processors.
import type { ReactElement } from 'react';
import { dateTimeFormat, FieldType, type DataFrame, type DisplayValue } from '@grafana/data';
import { VizLegend } from '@grafana/ui';
import type { Given } from './panels';

interface Bar {
  from: number;
  to: number;
  shown: DisplayValue;
}

interface Lane {
  name: string;
  bars: Bar[];
}

/** A state lasts until the next one of its lane, or to the end; none is a gap. */
function lanes(frames: DataFrame[], end: number): Lane[] {
  return frames.flatMap((frame) => {
    const time = frame.fields.find((f) => f.type === FieldType.time);
    const states = frame.fields.filter((f) => f.type !== FieldType.time);
    return states.map((state) => {
      const bars: Bar[] = [];
      state.values.forEach((value, i) => {
        if (value !== null && value !== undefined && time) {
          bars.push({ from: time.values[i], to: i + 1 < frame.length ? time.values[i + 1] : end, shown: state.display!(value) });
        }
      });
      const labels = Object.values(state.labels ?? {});
      return { name: state.config.displayName ?? (labels.join(' ') || state.name), bars };
    });
  });
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 3e5, 6e5, 18e5, 36e5, 108e5, 216e5, 864e5];

export function Timeline({ panel, frames, theme, from, to, width, height }: Given): ReactElement {
  const all = lanes(frames, to);
  const legend = new Map(all.flatMap((l) => l.bars.map((b) => [b.shown.text, b.shown.color])));
  const left = Math.min(260, 16 + 7 * Math.max(...all.map((l) => l.name.length)));
  const wide = width - left - 8;
  const high = height - 60;
  const each = high / all.length;
  const thick = each * (panel.options.rowHeight ?? 0.9);
  const at = (t: number) => left + (wide * (Math.min(Math.max(t, from), to) - from)) / (to - from);
  const step = STEPS.find((s) => (to - from) / s <= wide / 110) ?? 6048e5;
  const ticks: number[] = [];
  for (let t = Math.ceil(from / step) * step; at(t) < width - 36; t += step) {
    ticks.push(t);
  }
  const format = step < 1000 ? 'HH:mm:ss.SSS' : step < 864e5 ? 'HH:mm:ss' : 'MM/DD';
  const text = { fill: theme.colors.text.primary, fontSize: 12, fontFamily: theme.typography.fontFamily };
  return (
    <div style={{ height, width }}>
      <svg width={width} height={height - 34} role="img">
        {ticks.map((t) => (
          <g key={t}>
            <line x1={at(t)} x2={at(t)} y1={0} y2={high} stroke={theme.colors.border.weak} />
            <text x={at(t)} y={high + 18} textAnchor="middle" {...text}>
              {dateTimeFormat(t, { format, timeZone: 'utc' })}
            </text>
          </g>
        ))}
        {all.map((lane, row) => (
          <g key={row}>
            <text x={left - 8} y={row * each + each / 2 + 4} textAnchor="end" {...text}>
              {lane.name}
            </text>
            {lane.bars.map((b, i) => {
              const w = Math.max(at(b.to) - at(b.from), 1);
              return (
                <g key={i}>
                  <rect
                    data-bar
                    x={at(b.from)}
                    width={w}
                    y={row * each + (each - thick) / 2}
                    height={thick}
                    fill={b.shown.color}
                    fillOpacity={(panel.fieldConfig?.defaults.custom?.fillOpacity ?? 70) / 100}
                  />
                  {w > 8 * b.shown.text.length && (
                    <text
                      x={at(b.from) + 4}
                      y={row * each + each / 2 + 4}
                      {...text}
                      fill={theme.colors.getContrastText(b.shown.color ?? '#000')}
                    >
                      {b.shown.text}
                    </text>
                  )}
                </g>
              );
            })}
          </g>
        ))}
      </svg>
      <VizLegend
        placement="bottom"
        displayMode={panel.options.legend.displayMode}
        items={[...legend].map(([label, color]) => ({ label, color, yAxis: 1 }))}
      />
    </div>
  );
}
