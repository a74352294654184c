// From the answers to fields that know how to show themselves: units, mappings, colours and names are Grafana's own work.
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  createDataFrame,
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  FieldConfigOptionsRegistry,
  identityOverrideProcessor,
  locationUtil,
  numberOverrideProcessor,
  standardTransformers,
  standardTransformersRegistry,
  stringOverrideProcessor,
  thresholdsOverrideProcessor,
  transformDataFrame,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
  FieldType,
  type DataFrame,
  type DataTransformerConfig,
  type Field,
  type FieldConfigPropertyItem,
  type FieldConfigSource,
  type GrafanaTheme2,
  type ScopedVars,
} from '@grafana/data';
import type { Drawn, GivenFrame } from './model';

locationUtil.initialize({
  config: { appSubUrl: '' } as never,
  getVariablesUrlParams: () => ({}),
  getTimeRangeForUrl: () => ({ from: 0, to: 0 }) as never,
});

// The package knows the transformations, the application registers them. So does this page.
// Some stand in the list twice, under an old and a new name.
const known = new Map(Object.values(standardTransformers).map((t) => [t.id, t]));
standardTransformersRegistry.setInit(() =>
  [...known.values()].map((t) => ({
    id: t.id,
    name: t.name,
    transformation: () => Promise.resolve(t),
    editor: () => null,
    imageDark: '',
    imageLight: '',
  }))
);

const numeric = (f: Field) => f.type === FieldType.number;
const STANDARD: Array<[string, FieldConfigPropertyItem['process'], (f: Field) => boolean]> = [
  ['displayName', displayNameOverrideProcessor, () => true],
  ['unit', unitOverrideProcessor, () => true],
  ['min', numberOverrideProcessor, numeric],
  ['max', numberOverrideProcessor, numeric],
  ['decimals', numberOverrideProcessor, numeric],
  ['noValue', stringOverrideProcessor, () => true],
  ['color', identityOverrideProcessor, () => true],
  ['mappings', valueMappingsOverrideProcessor, (f) => f.type !== FieldType.time],
  ['thresholds', thresholdsOverrideProcessor, numeric],
  ['links', dataLinksOverrideProcessor, () => true],
];

// What the panels of Grafana set where a dashboard says nothing. It stands in the application, not in the packages.
const CHART = {
  axisBorderShow: false,
  axisColorMode: 'text',
  axisPlacement: 'auto',
  barAlignment: 0,
  barWidthFactor: 0.6,
  drawStyle: 'line',
  fillOpacity: 0,
  gradientMode: 'none',
  hideFrom: { legend: false, tooltip: false, viz: false },
  lineInterpolation: 'linear',
  lineWidth: 1,
  pointSize: 5,
  scaleDistribution: { type: 'linear' },
  showPoints: 'auto',
  spanNulls: false,
  stacking: { mode: 'none', group: 'A' },
  thresholdsStyle: { mode: 'off' },
};
const KINDS: Record<string, Record<string, unknown>> = {
  timeseries: CHART,
  table: { align: 'auto', cellOptions: { type: 'auto' }, inspect: false },
};

function item(id: string, process: FieldConfigPropertyItem['process'], shouldApply: (f: Field) => boolean): FieldConfigPropertyItem {
  const isCustom = id.startsWith('custom.');
  const none = () => null;
  const path = isCustom ? id.slice('custom.'.length) : id;
  return { id, path, name: id, isCustom, process, shouldApply, settings: {}, editor: none, override: none };
}

/** Settings that the panel's kind knows are all that it sets itself, and what its kind sets. */
function registry(config: FieldConfigSource): FieldConfigOptionsRegistry {
  const custom = new Set(Object.keys(config.defaults.custom ?? {}).map((k) => `custom.${k}`));
  for (const o of config.overrides) {
    for (const p of o.properties) {
      if (p.id.startsWith('custom.')) {
        custom.add(p.id);
      }
    }
  }
  return new FieldConfigOptionsRegistry(() => [
    ...STANDARD.map(([id, process, applies]) => item(id, process, applies)),
    ...[...custom].map((id) => item(id, identityOverrideProcessor, () => true)),
  ]);
}

/** Puts cells of the row into links. Variables of the dashboard stay as their names: no link is followed here. */
export function interpolate(text: string | undefined, scoped?: ScopedVars): string {
  return (text ?? '').replace(/\$\{__data\.fields\.(\w+)(?::(\w+))?\}/g, (whole, name: string, format?: string) => {
    const context = scoped?.['__dataContext']?.value as { frame: DataFrame; rowIndex?: number } | undefined;
    const field = context?.frame.fields.find((f) => f.name === name);
    if (!context || !field || context.rowIndex === undefined) {
      return whole;
    }
    const value = String(field.values[context.rowIndex]);
    return format === 'percentencode' ? encodeURIComponent(value) : value;
  });
}

// JSON has no such numbers, so they come as texts.
const NO_NUMBERS: Record<string, number> = { nan: NaN, inf: Infinity, '-inf': -Infinity };

function frameOf(given: GivenFrame): DataFrame {
  return createDataFrame({
    refId: given.refId,
    name: given.name,
    fields: given.fields.map((f) => ({
      name: f.name,
      type: f.type as FieldType,
      labels: f.labels,
      values: f.type === 'number' ? f.values.map((v) => (typeof v === 'string' ? NO_NUMBERS[v] : v)) : f.values,
      config: {},
    })),
  });
}

/** This one transformation stands in the application, not in the packages: a frame for each value of a field. */
function partition(frames: DataFrame[], options: { fields: string[]; keepFields?: boolean }): DataFrame[] {
  const out: DataFrame[] = [];
  for (const frame of frames) {
    const by = frame.fields.filter((f) => options.fields.includes(f.name));
    const parts = new Map<string, number[]>();
    for (let row = 0; row < frame.length; row++) {
      const key = JSON.stringify(by.map((f) => f.values[row]));
      parts.set(key, [...(parts.get(key) ?? []), row]);
    }
    for (const rows of parts.values()) {
      const labels = Object.fromEntries(by.map((f) => [f.name, String(f.values[rows[0]!])]));
      const kept = frame.fields.filter((f) => options.keepFields || !by.includes(f));
      out.push({
        ...frame,
        length: rows.length,
        fields: kept.map((f) => ({
          ...f,
          labels: f.type === FieldType.time ? f.labels : labels,
          values: rows.map((r) => f.values[r]),
        })),
      });
    }
  }
  return out;
}

async function transformed(frames: DataFrame[], steps: DataTransformerConfig[]): Promise<DataFrame[]> {
  let now = frames;
  for (const step of steps) {
    if (step.id === 'partitionByValues') {
      now = partition(now, step.options);
    } else if (standardTransformersRegistry.getIfExists(step.id)) {
      now = await new Promise((done, failed) => transformDataFrame([step], now).subscribe({ next: done, error: failed }));
    } else {
      throw new Error(`transformation ${step.id} is not known here`);
    }
  }
  return now;
}

/** The frames as a panel gets them. */
export async function prepared({ panel, frames }: Drawn, theme: GrafanaTheme2): Promise<DataFrame[]> {
  const given: FieldConfigSource = panel.fieldConfig ?? { defaults: {}, overrides: [] };
  const fieldConfig: FieldConfigSource = {
    ...given,
    defaults: { ...given.defaults, custom: { ...KINDS[panel.type], ...given.defaults.custom } },
  };
  const shown = applyFieldOverrides({
    data: await transformed(frames.map(frameOf), panel.transformations ?? []),
    fieldConfig,
    fieldConfigRegistry: registry(fieldConfig),
    replaceVariables: interpolate,
    theme,
    timeZone: 'utc',
  });
  // Tables read names from here alone.
  cacheFieldDisplayNames(shown);
  return shown;
}
