// What each of our panels, variables and annotations has to be, in terms of Grafana's published types.

import type {
  AnnotationQuery,
  Dashboard,
  DataQuery,
  FieldConfig,
  FieldConfigSource,
  Panel,
  RowPanel,
  VariableModel,
} from '@grafana/schema';
import type { FieldConfig as HeatmapField, Options as HeatmapOptions } from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type { Options as StatOptions } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { FieldConfig as TableField, Options as TableOptions } from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type { FieldConfig as GraphField, Options as GraphOptions } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// The same in JSON, where a member of an enumeration is the text that it stands for.
type Json<T> = T extends string
  ? `${T}`
  : T extends number | boolean | null | undefined
    ? T
    : T extends Array<infer One>
      ? Array<Json<One>>
      : T extends object
        ? { [Name in keyof T]: Json<T[Name]> }
        : T;

type DataLink = { title: string; url: string; targetBlank?: boolean };

// Prometheus' own part of a query is not among the published types of this version: the fields of its data source.
type PrometheusQuery = Json<DataQuery> & {
  expr: string;
  format: 'time_series' | 'table' | 'heatmap';
  instant: boolean;
  interval?: string;
  legendFormat: string;
};

type PanelOf<Type extends string, Options, Custom> = Json<
  Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'>
> & {
  type: Type;
  options: Json<Options>;
  fieldConfig: {
    defaults: Json<Omit<FieldConfig, 'custom' | 'links'>> & { custom?: Json<Custom>; links?: DataLink[] };
    overrides: Json<FieldConfigSource['overrides']>;
  };
  targets: PrometheusQuery[];
};

// A table's options and a heatmap's have fields with defaults that the types call required.
export type Timeseries = PanelOf<'timeseries', GraphOptions, GraphField>;
export type Stat = PanelOf<'stat', Partial<StatOptions>, never>;
export type Table = PanelOf<'table', Partial<TableOptions>, Partial<TableField>>;
export type Heatmap = PanelOf<'heatmap', HeatmapOptions, HeatmapField>;
export type Row = Json<RowPanel>;
export type Variable = Json<VariableModel> & { definition?: string };
export type Annotation = Json<AnnotationQuery> & {
  expr: string;
  step: string;
  tagKeys: string;
  textFormat: string;
  titleFormat: string;
};
export type Board = Json<Omit<Dashboard, 'panels' | 'templating' | 'annotations'>>;
