// What draw.py writes for the page: a dashboard with the answers to its queries.
import type { DataTransformerConfig, FieldConfigSource } from '@grafana/data';

export type Value = number | string | boolean | null;

export interface GivenField {
  name: string;
  type: 'time' | 'number' | 'string' | 'boolean';
  labels?: Record<string, string>;
  values: Value[];
}

export interface GivenFrame {
  refId: string;
  // A name of the whole frame, as metrics have one.
  name?: string;
  fields: GivenField[];
}

export interface Panel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  fieldConfig?: FieldConfigSource;
  // Each kind of panel has options of its own, which go to its component as they are.
  options?: any;
  transformations?: DataTransformerConfig[];
}

export interface Drawn {
  panel: Panel;
  frames: GivenFrame[];
  // Why the queries were not asked, where they were not.
  skipped?: string;
}

export interface Mark {
  name: string;
  color: string;
  time: number;
  text: string;
}

export interface Board {
  title: string;
  from: number;
  to: number;
  variables: Array<{ label: string; text: string }>;
  marks: Mark[];
  panels: Drawn[];
  // Names of measures as they stand in SQL. A person should read titles instead.
  rawNames: string[];
}
