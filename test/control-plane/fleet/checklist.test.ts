// The checklist of a machine, check by check: what passes with which evidence, what fails, and for what somebody else is awaited.
import { describe, expect, test } from 'vitest';
import { gpusToApprove } from '../../../control-plane/fleet/supply/approval.ts';
import {
  checklistOf,
  type ChecklistFacts,
  obstacleOf,
  tierObstacle,
} from '../../../control-plane/fleet/supply/checks.ts';
import type { MachineRow } from '../../../control-plane/fleet/supply/store.ts';
import type { MachineCheck } from '../../../shared/api/community.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import { inventoryOf } from '../../kit/machines.ts';

const GIB = 1024 ** 3;
const INVENTORY = inventoryOf(2, () => 'a');
const ROW: MachineRow = {
  id: 'm',
  supplier_id: 's',
  name: null,
  status: 'listed',
  approved: true,
  trusted: false,
  approved_gpus: gpusToApprove(INVENTORY),
  inventory_fault: null,
  verification_status: 'unverified',
  verification_detail: null,
  declared_gpu_count: null,
  declared_gpu_type: null,
  declared_vram_per_gpu_gb: null,
  region: 'eu',
  price_ucents_per_hour: 1n,
  tier: 'on_demand',
  public_key: 'key',
  inventory: INVENTORY,
  online: true,
  last_heartbeat_ms: Date.UTC(2026, 0, 2),
  unknown_workloads: [],
  copied_ms: null,
  rentable_until_ms: null,
  offer_ended: false,
  created_ms: 0,
  updated_ms: 0,
  supplier_status: 'active',
};
const NO_FACTS: ChecklistFacts = { gpus: [], failingProbes: [] };
const reports = (patch: Partial<Inventory>): Partial<MachineRow> => ({ inventory: { ...INVENTORY, ...patch } });

type Name = MachineCheck['name'];
const checkOf = (name: Name, patch: Partial<MachineRow> = {}, facts = NO_FACTS): MachineCheck | undefined =>
  checklistOf({ ...ROW, ...patch }, facts).find((check) => check.name === name);

describe('a machine that is on offer', () => {
  test('has passed every check that is required, in the order in which they decide', () => {
    const checks = checklistOf(ROW, NO_FACTS);
    expect(checks.map(({ name }) => name)).toEqual([
      'supplier',
      'listing',
      'rentable_until',
      'enrolment',
      'verification',
      'approval',
      'connection',
      'identity',
      'containers',
      'engine',
      'driver',
      'fence',
      'container_toolkit',
      'gpus',
      'tier',
      'disk',
      'rentals',
    ]);
    expect(checks.filter(({ required }) => !required).map(({ name }) => name)).toEqual(['disk', 'rentals']);
    const required = checks.filter((check) => check.required);
    expect(required.every(({ state, remedy }) => state === 'passed' && remedy === null)).toBe(true);
    expect([obstacleOf(ROW), tierObstacle(ROW)]).toEqual([undefined, undefined]);
  });

  test.each<[Name, Partial<MachineRow>, string]>([
    ['supplier', {}, 'The supplier is active.'],
    ['listing', {}, 'Nobody has taken it off the market.'],
    ['rentable_until', {}, 'It is offered without an end.'],
    ['rentable_until', { rentable_until_ms: 0 }, 'It is offered until 1970-01-01T00:00:00.000Z.'],
    ['enrolment', {}, 'host has enrolled with the agent 0.1.0.'],
    ['enrolment', { inventory: null }, 'The host has enrolled.'],
    ['verification', {}, 'The host contradicts neither what was declared nor what was approved.'],
    ['approval', {}, 'GPUs that the operator has approved: 2.'],
    ['connection', {}, 'The agent is connected; its last sign was noted at 2026-01-02T00:00:00.000Z.'],
    ['connection', { last_heartbeat_ms: null }, 'The agent is connected.'],
    ['identity', {}, 'One host has its identity.'],
    ['containers', {}, 'The host runs no container of this service that is not known.'],
    ['engine', {}, 'Docker Engine 20.10.24 answers.'],
    ['driver', {}, 'The driver is the approved one: 550.54.15.'],
    ['fence', {}, 'The agent keeps containers from the host and private networks.'],
    [
      'fence',
      reports({ network_fence: 'none' }),
      'The agent keeps no fence: you keep containers from your networks yourself.',
    ],
    ['container_toolkit', {}, 'The version of the NVIDIA Container Toolkit is not known.'],
    [
      'container_toolkit',
      reports({ container_toolkit_version: '1.18.0' }),
      'No escape is known from the NVIDIA Container Toolkit 1.18.0.',
    ],
    ['tier', {}, 'On-demand capacity is sold.'],
  ])('passes %s with its evidence', (name, patch, evidence) => {
    expect(checkOf(name, patch)).toEqual({ name, state: 'passed', required: true, evidence, remedy: null });
  });

  test('shows its GPUs by type with those in use, and those that are not fit', () => {
    const use = { machine_id: 'm', vram_gb: 80 };
    const gpus = [
      { ...use, gpu_type: 'H100_SXM', count: 3, rented: 2, reserved: 1 },
      { ...use, gpu_type: 'L4', count: 1, rented: 0, reserved: 0 },
    ];
    expect(checkOf('gpus', {}, { ...NO_FACTS, gpus })?.evidence).toBe(
      '3 H100_SXM (2 rented, 1 reserved); 1 L4 (0 rented, 0 reserved).',
    );
    const faulty = reports({ gpu_faults: [{ uuid: 'GPU-x', severity: 'broken', detail: 'Xid 79' }] });
    expect(checkOf('gpus', faulty)?.evidence).toBe('GPU-x is broken.');
  });
});

describe('a check that has not passed', () => {
  const failed = (patch: Partial<MachineRow>, evidence: string) => ({ patch, state: 'failed', evidence });
  const waits = (patch: Partial<MachineRow>, evidence: string) => ({ patch, state: 'waiting', evidence });
  test.each<[Name, string, { patch: Partial<MachineRow>; state: string; evidence: string }]>([
    ['supplier', 'suspended', failed({ supplier_status: 'suspended' }, 'The operator has suspended the supplier.')],
    ['listing', 'draining', failed({ status: 'draining' }, 'It was delisted; a rental on it goes on until it ends.')],
    ['listing', 'delisted', failed({ status: 'delisted' }, 'It was delisted.')],
    ['listing', 'suspended', failed({ status: 'suspended' }, 'The operator has suspended it.')],
    ['enrolment', 'without a host', waits({ public_key: null }, 'The host has not enrolled yet.')],
    [
      'verification',
      'that contradicts',
      failed({ verification_status: 'failed', verification_detail: 'so.' }, 'Its verification failed: so.'),
    ],
    [
      'approval',
      'that was never approved',
      waits({ status: 'pending_verification' }, "The operator's approval is awaited."),
    ],
    [
      'approval',
      'whose GPUs are not approved',
      waits({ approved_gpus: null }, 'The operator must approve the GPUs that the host shows.'),
    ],
    [
      'rentable_until',
      'whose time has come',
      failed(
        { rentable_until_ms: 0, offer_ended: true },
        'Its supplier offers it until 1970-01-01T00:00:00.000Z; a rental on it goes on until it ends.',
      ),
    ],
    ['connection', 'offline', failed({ online: false }, 'The agent of the host is not connected.')],
    [
      'containers',
      'without a report of them',
      waits({ unknown_workloads: null }, 'The host has not said yet which containers it runs.'),
    ],
    [
      'containers',
      'with one that nobody knows',
      failed(
        { unknown_workloads: ['w'] },
        'The host runs containers that this service does not know; the operator must end them.',
      ),
    ],
    [
      'engine',
      'without one',
      failed(reports({ engine_version: '' }), 'The Docker Engine of the host does not answer.'),
    ],
    [
      'fence',
      'without one',
      failed(reports({ fence_error: 'no nft' }), 'The network fence of the host does not stand: no nft'),
    ],
    ['gpus', 'without any', failed(reports({ gpus: [] }), 'The host shows no GPU.')],
    ['tier', 'spot', failed({ tier: 'spot' }, 'Spot capacity is not sold at present.')],
  ])('of the %s of a machine %s', (name, _what, { patch, state, evidence }) => {
    const check = checkOf(name, patch);
    expect(check).toMatchObject({ state, evidence, required: true });
    expect(check?.remedy).not.toBeNull();
    const row = { ...ROW, ...patch };
    expect(obstacleOf(row) ?? tierObstacle(row)).toBe(evidence);
  });

  test('names another driver, an escape, and two hosts with one identity', () => {
    const gpus = INVENTORY.gpus.map((gpu) => ({ ...gpu, driver_version: '570.1' }));
    expect(checkOf('driver', reports({ gpus }))).toMatchObject({
      state: 'waiting',
      evidence:
        'The operator must approve it again: the host runs the GPU driver 570.1, and the operator approved 550.54.15.',
    });
    expect(checkOf('container_toolkit', reports({ container_toolkit_version: '1.17.7' }))).toMatchObject({
      state: 'failed',
      evidence: expect.stringContaining('install 1.17.8') as string,
    });
    expect(checkOf('identity', { copied_ms: 1 })).toMatchObject({
      state: 'failed',
      evidence: expect.stringContaining('Two hosts run with the identity') as string,
    });
  });
});

describe('a machine of which nothing is reported', () => {
  const stateOf = (patch: Partial<MachineRow>): Record<string, string> =>
    Object.fromEntries(checklistOf({ ...ROW, ...patch }, NO_FACTS).map(({ name, state }) => [name, state]));
  const UNKNOWN = 'The host has not reported it yet.';

  test('waits for its host with everything that only the host can tell', () => {
    const fresh = { public_key: null, inventory: null, online: false, unknown_workloads: null, approved_gpus: null };
    expect(stateOf(fresh)).toEqual({
      supplier: 'passed',
      listing: 'passed',
      rentable_until: 'passed',
      enrolment: 'waiting',
      verification: 'waiting',
      approval: 'waiting',
      connection: 'waiting',
      identity: 'waiting',
      containers: 'waiting',
      engine: 'waiting',
      driver: 'waiting',
      fence: 'waiting',
      container_toolkit: 'waiting',
      gpus: 'waiting',
      tier: 'passed',
      disk: 'waiting',
      rentals: 'passed',
    });
    for (const name of ['verification', 'driver', 'fence', 'container_toolkit', 'gpus'] as const)
      expect(checkOf(name, { ...fresh, public_key: 'key' })?.evidence).toBe(UNKNOWN);
  });

  test('has a remedy for its enrolment alone before a host has enrolled', () => {
    const fresh = { public_key: null, inventory: null, online: false, unknown_workloads: [], approved_gpus: null };
    const waiting = checklistOf({ ...ROW, ...fresh }, NO_FACTS).filter(({ state }) => state === 'waiting');
    const others = waiting.filter(({ name }) => name !== 'enrolment');
    expect(waiting.filter(({ remedy }) => remedy !== null).map(({ name }) => name)).toEqual(['enrolment']);
    expect(new Set(others.map(({ evidence }) => evidence))).toEqual(new Set(['Known once the host has enrolled.']));
    expect(others.map(({ name }) => name)).toContain('containers');
  });

  test('that was withdrawn before a host enrolled is off the market because of that alone', () => {
    for (const status of ['draining', 'delisted'] as const) {
      expect(obstacleOf({ ...ROW, status, public_key: null })).toMatch(/^It was delisted/);
      expect(checkOf('enrolment', { status, public_key: null })).toMatchObject({ state: 'waiting', evidence: UNKNOWN });
    }
  });
});

test('the first obstacle in this order is the reason that people read', () => {
  const worst: Partial<MachineRow> = {
    supplier_status: 'suspended',
    status: 'suspended',
    verification_status: 'failed',
    online: false,
  };
  expect(obstacleOf({ ...ROW, ...worst })).toContain('suspended the supplier');
  expect(obstacleOf({ ...ROW, ...worst, supplier_status: 'active' })).toBe('The operator has suspended it.');
  expect(obstacleOf({ ...ROW, ...worst, supplier_status: 'active', status: 'listed' })).toContain(
    'verification failed',
  );
});

describe('what is not required', () => {
  test.each<[string, Partial<MachineRow>, Partial<MachineCheck>]>([
    [
      'is waited for before the first report',
      { inventory: null },
      { state: 'waiting', evidence: 'The host has not reported it yet.', remedy: 'Install the agent.' },
    ],
    [
      'is there if the host holds disks to their size',
      reports({ disk_enforced: true, storage_bytes: 100 * GIB - 1 }),
      { state: 'passed', evidence: 'Disks of containers hold their size; 99 GB in all.', remedy: null },
    ],
    [
      'is not there if it does not',
      reports({ storage_bytes: 100 * GIB }),
      { state: 'failed', evidence: expect.stringContaining('to a size (100 GB)') as string },
    ],
  ])('%s', (_what, patch, check) => {
    expect(checkOf('disk', patch)).toMatchObject({ required: false, ...check });
  });

  test('counts the rented GPUs, or the rentals that do not answer with the evidence of the first', () => {
    const use = { machine_id: 'm', vram_gb: 80, gpu_type: 'H100_SXM', count: 4, reserved: 0 };
    const evidence = (facts: Partial<ChecklistFacts>): string | undefined =>
      checkOf('rentals', {}, { ...NO_FACTS, ...facts })?.evidence;
    expect(evidence({})).toBe('No GPU is rented.');
    expect(evidence({ gpus: [{ ...use, rented: 0 }] })).toBe('No GPU is rented.');
    const gpus = [
      { ...use, rented: 1 },
      { ...use, rented: 2 },
    ];
    expect(evidence({ gpus })).toBe('All rentals answer our SSH probes. Rented GPUs: 3.');
    const failing = { gpus, failingProbes: ['3 failed', '4 failed'] };
    expect(evidence(failing)).toBe(
      'Rentals that do not answer our SSH probes, and are not paid for if that lasts: 2. 3 failed',
    );
    expect(checkOf('rentals', {}, failing)).toMatchObject({ state: 'failed', required: false });
  });
});
