// The operator's routes for the process itself: its loops, its metrics, and reloading its files.
import { Overview } from '../../shared/api/overview.ts';
import { isoTime } from '../../shared/clock.ts';
import type { LoopStatus } from '../../shared/loop.ts';
import type { Metrics } from '../base/http/metrics.ts';
import { AnyFields, type Fields, listOf, operator } from '../base/http/operator.ts';
import { type Route, route } from '../base/http/route.ts';
import { type OverviewDeps, overviewOf } from './overview.ts';

export interface StatusDeps extends OverviewDeps {
  metrics: Pick<Metrics, 'text' | 'contentType'>;
  /**
   * Reloads the operator's files: models, templates, environments, and the limits of the configuration. If there is a mistake in one file,
   * nothing changes. @throws ServiceError `validation_failed` with file and line
   */
  reload(): Promise<Fields>;
}

export function statusRoutes(deps: StatusDeps): Route[] {
  const { loops, metrics, reload } = deps;
  return [
    route({
      ...operator,
      method: 'GET',
      path: '/admin/overview',
      operationId: 'adminShowOverview',
      summary: 'What the service does now, and what waits for an operator',
      responses: { 200: { description: 'The overview', schema: Overview } },
      errors: [],
      handler: async () => ({ status: 200, body: await overviewOf(deps) }),
    }),
    route({
      ...operator,
      method: 'GET',
      path: '/admin/loops',
      operationId: 'adminListLoops',
      summary: 'The background loops: name, last run, last result',
      responses: { 200: { description: 'All of them', schema: listOf(AnyFields) } },
      errors: [],
      handler: async () => ({ status: 200, body: { data: loops().map(loopFields) } }),
    }),
    route({
      ...operator,
      method: 'POST',
      path: '/admin/reload',
      operationId: 'adminReload',
      summary: 'Read models, templates, environments, limits and sign-up again, without a restart',
      responses: { 200: { description: 'What is in force now', schema: AnyFields } },
      errors: [],
      handler: async () => ({ status: 200, body: await reload() }),
    }),
    metricsRoute(metrics, 'operator'),
  ];
}

function loopFields({ last_started_ms, last_success_ms, ...loop }: LoopStatus): Fields {
  const timeOf = (ms: number | null): string | null => (ms === null ? null : isoTime(ms));
  return { ...loop, last_started_at: timeOf(last_started_ms), last_success_at: timeOf(last_success_ms) };
}

/** `GET /metrics`: for the operator's socket, or with the scope `none` for a listener that only Prometheus can reach. */
export function metricsRoute(metrics: StatusDeps['metrics'], scope: 'operator' | 'none'): Route {
  return route({
    ...operator,
    scope,
    method: 'GET',
    path: '/metrics',
    operationId: 'metrics',
    summary: 'Prometheus metrics',
    responses: { 200: { description: 'Text exposition format' } },
    errors: [],
    handler: async () => ({
      status: 200,
      headers: { 'content-type': metrics.contentType },
      body: await metrics.text(),
    }),
  });
}
