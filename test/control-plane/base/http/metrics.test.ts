// Metrics: request durations by route pattern and status.
import perfHooks from 'node:perf_hooks';
import { expect, test, vi } from 'vitest';
import { openMetrics } from '../../../../control-plane/base/http/metrics.ts';

test('durations are counted by pattern and status, beside the metrics of the process', async () => {
  const metrics = openMetrics();
  metrics.observeRequest({ method: 'GET', route: '/v1/things/:id', status: 200 }, 0.003);
  const text = await metrics.text();
  expect(text).toContain('http_request_duration_seconds_count{method="GET",route="/v1/things/:id",status="200"} 1');
  expect(text).toContain('process_cpu_seconds_total');
  expect(metrics.contentType).toContain('text/plain');
});

test('a second set of metrics in a process does not watch the event loop once more', async () => {
  openMetrics();
  const watch = vi.spyOn(perfHooks, 'monitorEventLoopDelay');
  try {
    expect(await openMetrics().text()).toContain('nodejs_eventloop_lag_p99_seconds');
    expect(watch).not.toHaveBeenCalled();
  } finally {
    watch.mockRestore();
  }
});
