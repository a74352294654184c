// What a picture must not show. It looks at what was drawn, also at the texts on canvases.
import { FieldType, getFieldSeriesColor, type DataFrame, type Field, type GrafanaTheme2 } from '@grafana/data';
import { isEmpty } from './panels';
import type { Board, Panel } from './model';

const written = new WeakMap<HTMLCanvasElement, string[]>();

/** From now on keeps what is written on canvases: numbers at axes are in no element. */
export function listen(): void {
  const fillText = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (...args) {
    const list = written.get(this.canvas) ?? [];
    written.set(this.canvas, [...list, args[0]]);
    fillText.apply(this, args);
  };
}

const BAD = ['NaN', 'Infinity', 'undefined', '[object'];

/** True where the picture has points of this colour. Edges of lines are mixed with what is behind them. */
function hasColor(canvas: HTMLCanvasElement, css: string): boolean {
  const probe = document.createElement('canvas').getContext('2d')!;
  probe.fillStyle = css;
  probe.fillRect(0, 0, 1, 1);
  const [r, g, b] = probe.getImageData(0, 0, 1, 1).data as unknown as [number, number, number];
  const { data } = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height);
  for (let i = 0; i < data.length; i += 4) {
    const off = Math.abs(data[i]! - r) + Math.abs(data[i + 1]! - g) + Math.abs(data[i + 2]! - b);
    if (data[i + 3]! > 128 && off < 40) {
      return true;
    }
  }
  return false;
}

const known = (v: unknown) => v !== null && v !== undefined && v !== '';
const shown = (f: Field) => !f.config.custom?.hideFrom?.viz && !f.config.custom?.hidden;

function* chart(at: Element, frames: DataFrame[], theme: GrafanaTheme2, from: number, to: number): Generator<string> {
  const canvas = at.querySelector('canvas');
  if (!canvas) {
    yield 'no canvas';
    return;
  }
  for (const frame of frames) {
    const time = frame.fields.find((f) => f.type === FieldType.time);
    for (const f of frame.fields) {
      // A bar of 0 has no height.
      const bars = f.config.custom?.drawStyle === 'bars';
      // A line under one that is drawn later, with the same values, is not seen.
      const later = frame.fields.slice(frame.fields.indexOf(f) + 1).filter((g) => g.type === FieldType.number);
      const covered = later.some((g) => f.values.every((v, i) => !known(v) || v === g.values[i]));
      const inside = (v: unknown, i: number) =>
        known(v) && !(bars && v === 0) && time && time.values[i] >= from && time.values[i] <= to;
      if (f.type === FieldType.number && f.values.some(inside) && !covered && !hasColor(canvas, getFieldSeriesColor(f, theme).color)) {
        yield `nothing is drawn in the colour of ${f.config.displayName ?? f.name}`;
      }
    }
  }
}

/** No more cells say that there is nothing than there are. */
function* cells(at: Element, frames: DataFrame[]): Generator<string> {
  const drawn = [...at.querySelectorAll('[role="gridcell"]')].map((c) => c.textContent ?? '');
  if (!drawn.length) {
    yield 'no cells';
  }
  const fields = frames.flatMap((x) => x.fields).filter(shown);
  for (const none of new Set(fields.map((f) => f.config.noValue ?? ''))) {
    // A text of the data may be the same word.
    const empty = (f: Field) => f.values.filter((v) => (known(v) ? String(v) === none : f.config.noValue === none)).length;
    const n = fields.reduce((sum, f) => sum + empty(f), 0);
    const got = drawn.filter((d) => d === none).length;
    if (got > n) {
      yield `'${none}' stands in ${got} cells, but only ${n} are empty`;
    }
  }
}

/** One panel. */
export function* wrong(at: Element, panel: Panel, frames: DataFrame[], board: Board, theme: GrafanaTheme2): Generator<string> {
  const canvasTexts = [...at.querySelectorAll('canvas')].flatMap((c) => written.get(c) ?? []);
  const texts = [(at as HTMLElement).innerText, ...[...at.querySelectorAll('svg text')].map((t) => t.textContent ?? ''), ...canvasTexts];
  const inside = at.querySelector('[data-inside]');
  if (at.querySelector('[data-thrown]')) {
    yield `throws: ${at.querySelector('[data-thrown]')!.textContent}`;
    return;
  }
  if (!inside || (!(inside as HTMLElement).innerText.trim() && !inside.querySelector('canvas, svg'))) {
    yield 'draws nothing';
    return;
  }
  const data = frames.flatMap((f) => f.fields.flatMap((x) => x.values.filter((v) => typeof v === 'string')));
  for (const bad of BAD) {
    // A text of the traces may hold such a word, and is then shown rightly.
    if (texts.some((t) => t.includes(bad)) && !data.some((v) => String(v).includes(bad))) {
      yield `shows ${bad}`;
    }
  }
  const numbers = frames.flatMap((f) => f.fields.filter((x) => x.type === FieldType.number).flatMap((x) => x.values));
  if (numbers.some((v) => typeof v === 'number' && !Number.isFinite(v))) {
    yield 'holds a value that is no number';
  }
  const words = new Set(texts.flatMap((t) => t.split(/\n|\t/)).map((t) => t.trim()));
  for (const raw of board.rawNames) {
    if (words.has(raw)) {
      yield `shows ${raw}, the name in SQL, not a title`;
    }
  }
  const nothing = at.querySelector('[data-nothing]');
  if (nothing && !isEmpty(frames)) {
    yield `has data, but shows '${nothing.textContent}'`;
  }
  if (nothing) {
    return;
  }
  if (panel.type === 'timeseries') {
    yield* chart(at, frames, theme, board.from, board.to);
  } else if (panel.type === 'table') {
    yield* cells(at, frames);
  } else if (panel.type === 'stat') {
    const numbers = frames.flatMap((f) => f.fields.filter((x) => x.type === FieldType.number));
    const none = panel.fieldConfig?.defaults.noValue ?? '';
    const missing = numbers.filter((f) => !f.values.some(known)).length;
    const got = [...at.querySelectorAll('span, div')].filter((e) => !e.children.length && e.textContent === none).length;
    if (got > missing) {
      yield `'${none}' stands at ${got} numbers, but only ${missing} are missing`;
    }
  } else if (panel.type === 'state-timeline' && !at.querySelector('[data-bar]')) {
    yield 'no bars';
  }
}

/** Texts that do not fit where they stand. A person decides whether that matters. */
export function* cut(at: Element): Generator<string> {
  for (const e of at.querySelectorAll<HTMLElement>('h2, [role="columnheader"] *, [data-stat] *, [role="gridcell"]')) {
    const leaf = [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent?.trim());
    if (leaf && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0) {
      yield (e.textContent ?? '').slice(0, 60);
    }
  }
}
