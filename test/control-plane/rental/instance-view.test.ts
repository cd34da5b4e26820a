// What the API shows of an instance, field by field: what is there depends on the status, the image and the ports.
import { describe, expect, test } from 'vitest';
import type { Endpoint } from '../../../control-plane/rental/endpoints/endpoints.ts';
import type { InstanceRow, ShownInstance } from '../../../control-plane/rental/instances/store.ts';
import {
  instanceView,
  reservedView,
  runningReason,
  type Surroundings,
} from '../../../control-plane/rental/instances/view.ts';
import type { Connection, Instance } from '../../../shared/api/instance.ts';
import type { ObservedWorkload } from '../../../shared/protocol/workload.ts';

const at = (day: number): number => Date.UTC(2026, 0, day);
const iso = (day: number): string => `2026-01-0${day}T00:00:00.000Z`;
const ROW: ShownInstance = {
  id: 'i-1',
  org_id: 'o',
  name: null,
  status: 'running',
  status_reason: null,
  gpu_type: 'H100_SXM',
  gpu_count: 2,
  tier: 'on_demand',
  region: 'eu',
  reservation_id: null,
  price_ucents_per_hour: 450_000_000n,
  placed: null,
  disk_gb: null,
  created_ms: at(1),
  ready_ms: null,
  auto_terminate_ms: null,
  terminated_ms: null,
  last_reachable_ms: null,
  unreachable_since_ms: null,
  balance_below_hours: null,
  main_exit: null,
  shown: { image: null, ports: [], auto_terminate_hours: null },
};
const ENDPOINT = {
  instance_id: 'i-1',
  hostname: 'ssh.example.com',
  ssh_port: 2_201,
  host_key: null,
  tcp_ports: [],
  app_user: 'user',
} as unknown as Endpoint;
const SITE = { domain: 'apps.example.com', publicPort: 443 };
const NOWHERE: Surroundings = { endpoint: undefined, site: undefined };
const view = (patch: Partial<ShownInstance> = {}, around: Partial<Surroundings> = {}): Instance =>
  instanceView({ ...ROW, ...patch }, { ...NOWHERE, ...around });

describe('an instance', () => {
  test('has the fields that every instance has, and no others before they are known', () => {
    expect(view()).toEqual({
      id: 'i-1',
      status: 'running',
      gpu_type: 'H100_SXM',
      gpu_count: 2,
      region: 'eu',
      tier: 'on_demand',
      price_per_hour: 4.5,
      created_at: iso(1),
      name: null,
      ready_at: null,
      terminated_at: null,
      reservation_id: null,
      host_rentable_until: null,
      connection: null,
    });
  });

  test('has its times, its disk, its contract and the image that its customer named', () => {
    const known = {
      name: 'mine',
      ready_ms: at(2),
      terminated_ms: at(3),
      last_reachable_ms: at(4),
      disk_gb: 50,
      reservation_id: 'r-1',
      shown: { ...ROW.shown, image: 'my/app' },
    };
    expect(view(known)).toMatchObject({
      name: 'mine',
      ready_at: iso(2),
      terminated_at: iso(3),
      last_reachable_at: iso(4),
      disk_gb: 50,
      reservation_id: 'r-1',
      image: 'my/app',
    });
  });

  test('shows what it got of its host, as far as the host has reported it', () => {
    const placed = { offering_id: 'off_1', vram_gb: 80, cpu_cores: 12, ram_gb: null };
    expect(view({ placed })).toMatchObject({ offering_id: 'off_1', vram_gb: 80, cpu_cores: 12 });
    expect(view({ placed })).not.toHaveProperty('ram_gb');
    expect(view({ placed: { ...placed, cpu_cores: null, ram_gb: 64 } })).toMatchObject({ ram_gb: 64 });
    expect(view({ placed: { ...placed, cpu_cores: null } })).not.toHaveProperty('cpu_cores');
  });

  test('shows since when it cannot be reached only while that lasts', () => {
    const since = { unreachable_since_ms: at(5) };
    expect(view({ ...since, status: 'unreachable' })).toMatchObject({ unreachable_since: iso(5) });
    expect(view({ status: 'unreachable' })).not.toHaveProperty('unreachable_since');
    expect(view(since)).not.toHaveProperty('unreachable_since');
  });

  test('shows its runtime limit from the request on, and the time of its end once it runs', () => {
    const shown = { ...ROW.shown, auto_terminate_hours: 3 };
    expect(view({ shown })).toMatchObject({ auto_terminate_hours: 3 });
    expect(view({ shown })).not.toHaveProperty('auto_terminate_at');
    expect(view({ shown, auto_terminate_ms: at(6) })).toMatchObject({ auto_terminate_at: iso(6) });
    expect(view({ auto_terminate_ms: at(6) })).not.toHaveProperty('auto_terminate_at');
  });

  test('shows the reason of its status before the warning about the balance, which only a running one has', () => {
    const warned = { balance_below_hours: 4 };
    const warning =
      'The balance ends in less than 4 h at the present rate. Add funds, or the instance is stopped when it ends.';
    expect(view({ status_reason: 'because' }).status_reason).toBe('because');
    expect(view(warned).status_reason).toBe(warning);
    expect(view({ ...warned, status_reason: 'because' }).status_reason).toBe(`because ${warning}`);
    expect(view({ ...warned, status: 'stopping' })).not.toHaveProperty('status_reason');
  });
});

describe('a connection', () => {
  const connect = (patch: Partial<ShownInstance> = {}, around: Partial<Surroundings> = {}): Connection | null =>
    view(patch, { endpoint: ENDPOINT, site: SITE, ...around }).connection;

  test.each([
    ['allocating', false],
    ['starting', false],
    ['running', true],
    ['unreachable', true],
    ['stopping', false],
    ['stopped', false],
    ['terminated', false],
    ['error', false],
  ] as const)('of an instance that is %s is there: %s', (status, isThere) => {
    expect(connect({ status }) !== null).toBe(isThere);
    expect(view({ status }).connection).toBeNull();
  });

  test('without a domain of the operator is SSH and the public ports alone', () => {
    const endpoint = { ...ENDPOINT, host_key: 'ssh-ed25519 A', tcp_ports: [{ port: 80, public_port: 9_000 }] };
    const ports = [{ port: 3000, protocol: 'http' as const, primary: true }];
    const shown = { ...ROW.shown, ports };
    expect(connect({ shown }, { endpoint, site: undefined, appPassword: 'secret' })).toEqual({
      hostname: 'ssh.example.com',
      port: 2_201,
      ssh_command: 'ssh -p 2201 root@ssh.example.com',
      host_key: 'ssh-ed25519 A',
      ports: [{ port: 80, public_port: 9_000, protocol: 'tcp', hostname: 'ssh.example.com' }],
    });
  });

  test('with a domain has a console, a login, and a page for each port of the web', () => {
    const ports = [
      { port: 3000, protocol: 'http' as const, primary: true },
      { port: 3001, protocol: 'http' as const },
      { port: 22, protocol: 'tcp' as const },
    ];
    const shown = { ...ROW.shown, ports };
    expect(connect({ shown })).toEqual({
      hostname: 'ssh.example.com',
      port: 2_201,
      ssh_command: 'ssh -p 2201 root@ssh.example.com',
      app_url: 'https://i-1.apps.example.com',
      terminal_url: 'https://term-i-1.apps.example.com',
      app_user: 'user',
      ports: [{ port: 3001, protocol: 'http', url: 'https://p3001-i-1.apps.example.com' }],
    });
    expect(connect({ shown }, { appPassword: 'secret' })).toMatchObject({ app_password: 'secret' });
    expect(connect({ shown, status: 'unreachable' })).not.toHaveProperty('terminal_url');
  });

  test('without ports of the web has neither an application nor a list of ports', () => {
    const shown = connect();
    expect(shown).not.toHaveProperty('app_url');
    expect(shown).not.toHaveProperty('ports');
    expect(shown).not.toHaveProperty('app_password');
    expect(shown).not.toHaveProperty('host_key');
  });
});

// Specification 2.7: the instances of a contract with their status, and those that have ended are left out.
test.each([
  ['allocating', 'allocating'],
  ['starting', 'booting'],
  ['running', 'running'],
  ['unreachable', 'unreachable'],
  ['stopping', 'stopping'],
  ['error', 'error'],
  ['stopped', undefined],
  ['terminated', undefined],
] as const)('an instance under a contract that is %s is listed as %s', (status, shown) => {
  const row = { ...ROW, status } as unknown as InstanceRow;
  const entry = { instance_id: 'i-1', gpu_count: 2, status: shown };
  expect(reservedView(row, ENDPOINT)).toEqual(shown === undefined ? [] : [{ ...entry, hostname: 'ssh.example.com' }]);
  expect(reservedView(row, undefined)).toEqual(shown === undefined ? [] : [{ ...entry, hostname: null }]);
});

describe('the reason of a running instance', () => {
  const observed = (main_exit: { code: number; signal: string | null } | null): ObservedWorkload =>
    ({ main_exit: main_exit && { ...main_exit, at_ms: 1 } }) as unknown as ObservedWorkload;

  test.each([
    [null, null],
    [observed(null), null],
    [observed({ code: 3, signal: null }), 'main process exited with code 3'],
    [observed({ code: 0, signal: 'SIGKILL' }), 'main process was ended by signal SIGKILL'],
  ])('%# says how its main process has ended', (report, reason) => {
    expect(runningReason({ gpuFault: null, observed: report })).toBe(reason);
  });

  test('is a broken GPU before all else, with the half hour in which it may be mended', () => {
    expect(runningReason({ gpuFault: 'Xid 79', observed: observed({ code: 3, signal: null }) })).toBe(
      'The host has found a GPU of this instance broken (Xid 79). This time is not charged; the instance ends if that is not mended within 30 minutes.',
    );
  });
});
