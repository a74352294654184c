// The kinds of panels. All but the timeline are components of Grafana's packages, put together as its panels do it.
import { type ReactElement, useLayoutEffect } from 'react';
import {
  dateTime,
  FieldType,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  VizOrientation,
  type DataFrame,
  type DisplayValueAlignmentFactors,
  type FieldDisplay,
  type GrafanaTheme2,
  type TimeRange,
} from '@grafana/data';
import { BigValue, TimeSeries, VizRepeater, type UPlotConfigBuilder } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { interpolate } from './fields';
import { Timeline } from './timeline';
import type { Mark, Panel } from './model';

export interface Given {
  panel: Panel;
  frames: DataFrame[];
  theme: GrafanaTheme2;
  from: number;
  to: number;
  marks: Mark[];
  width: number;
  height: number;
}

/** What stands in a panel without data. */
export function Nothing({ text, height }: { text: string; height: number }): ReactElement {
  return (
    <div data-nothing style={{ height, display: 'flex', alignItems: 'center', justifyContent: 'center', textAlign: 'center' }}>
      {text}
    </div>
  );
}

export const isEmpty = (frames: DataFrame[]) => frames.every((f) => f.length === 0);

function Stat({ panel, frames, theme, width, height }: Given): ReactElement {
  const o = panel.options;
  const values = (): FieldDisplay[] =>
    getFieldDisplayValues({
      data: frames,
      fieldConfig: panel.fieldConfig!,
      reduceOptions: o.reduceOptions,
      replaceVariables: interpolate,
      theme,
      timeZone: 'utc',
    });
  return (
    <VizRepeater<FieldDisplay, DisplayValueAlignmentFactors>
      getValues={values}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={(p) => (
        <BigValue
          value={p.value.display}
          width={p.width}
          height={p.height}
          count={p.count}
          alignmentFactors={p.alignmentFactors}
          colorMode={o.colorMode}
          graphMode={o.graphMode}
          justifyMode={o.justifyMode}
          textMode={o.textMode}
          text={o.text}
          disableWideLayout={!o.wideLayout}
          theme={theme}
        />
      )}
      source={frames}
      renderCounter={0}
      width={width}
      height={height}
      orientation={o.orientation ?? VizOrientation.Auto}
      autoGrid
    />
  );
}

/** Annotations as dashed lines with a mark at the foot. Grafana's own are not in its packages. */
function Marks({ builder, marks }: { builder: UPlotConfigBuilder; marks: Mark[] }): null {
  useLayoutEffect(() => {
    builder.addHook('draw', (u) => {
      const { left, top, width, height } = u.bbox;
      u.ctx.save();
      for (const m of marks) {
        const x = Math.round(u.valToPos(m.time, 'x', true));
        if (x < left || x > left + width) {
          continue;
        }
        u.ctx.strokeStyle = m.color;
        u.ctx.fillStyle = m.color;
        u.ctx.setLineDash([5, 5]);
        u.ctx.lineWidth = 2;
        u.ctx.beginPath();
        u.ctx.moveTo(x, top);
        u.ctx.lineTo(x, top + height);
        u.ctx.stroke();
        u.ctx.beginPath();
        u.ctx.moveTo(x - 5, top + height + 6);
        u.ctx.lineTo(x + 5, top + height + 6);
        u.ctx.lineTo(x, top + height);
        u.ctx.fill();
      }
      u.ctx.restore();
    });
  }, [builder, marks]);
  return null;
}

function Chart({ panel, frames, from, to, marks, width, height }: Given): ReactElement {
  const range: TimeRange = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
  return (
    <TimeSeries
      frames={frames}
      timeRange={range}
      timeZone="utc"
      width={width}
      height={height}
      legend={panel.options.legend}
      options={panel.options}
    >
      {(builder) => <Marks builder={builder} marks={marks} />}
    </TimeSeries>
  );
}

function Rows({ panel, frames, width, height }: Given): ReactElement {
  const frame = frames[panel.options.frameIndex ?? 0] ?? frames[0]!;
  return (
    <TableNG
      data={frame}
      width={width}
      height={height}
      noHeader={!panel.options.showHeader}
      showTypeIcons={panel.options.showTypeIcons}
      cellHeight={panel.options.cellHeight}
      noValue={panel.fieldConfig?.defaults.noValue}
      fieldConfig={panel.fieldConfig}
      structureRev={1}
    />
  );
}

const KINDS: Record<string, (given: Given) => ReactElement> = {
  stat: Stat,
  timeseries: Chart,
  table: Rows,
  'state-timeline': Timeline,
};

/** A panel's inside. */
export function Inside(given: Given): ReactElement {
  const Kind = KINDS[given.panel.type];
  if (!Kind) {
    throw new Error(`panels of the kind ${given.panel.type} cannot be drawn here`);
  }
  const noNumbers = given.panel.type === 'timeseries' && !given.frames.some((f) => f.fields.some((x) => x.type === FieldType.number));
  if (isEmpty(given.frames) || noNumbers) {
    return <Nothing text={given.panel.fieldConfig?.defaults.noValue ?? 'No data'} height={given.height} />;
  }
  return <Kind {...given} />;
}
