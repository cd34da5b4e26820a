// Enrolment and the link, with a fake control plane.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { DISK } from '../../../agent/host/state.ts';
import { dialLink, openLink, type Link, type LinkPeer } from '../../../agent/link/link.ts';
import { enroll } from '../../../agent/link/enroll.ts';
import { loadIdentity, proveIdentity, readIdentity, openCloneToken } from '../../../agent/link/identity.ts';
import { systemClock } from '../../../shared/clock.ts';
import { GPUS_PER_MACHINE_MAX, LAUNCH_BYTES_MAX } from '../../../shared/limits.ts';
import { createLog } from '../../../shared/log.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import type { DesiredMessage, LinkSocket, OpenMessage } from '../../../shared/protocol/link.ts';
import { seededRng } from '../../../shared/rng.ts';
import { eventually } from '../../kit/processes.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { metricsSample } from '../../kit/samples.ts';
import { MACHINE_ID, startFakeControlPlane, type FakeControlPlane } from '../fake-control-plane.ts';

const inventory: Inventory = {
  gpus: [],
  gpu_error: '',
  gpu_faults: [],
  network_fence: 'nftables',
  fence_error: '',
  cpu_cores: 2,
  ram_bytes: 1,
  storage_bytes: 1,
  disk_enforced: false,
  hostname: 'h',
  kernel: 'k',
  engine_version: '',
  container_toolkit_version: '',
  agent_version: '0',
};
const dir = mkdtempSync(join(tmpdir(), 'link-'));
afterAll(() => rmSync(dir, { recursive: true }));
let plane: FakeControlPlane;
let stateDir: string;
let count = 0;

beforeEach(async () => {
  count += 1;
  stateDir = join(dir, String(count));
  plane = await startFakeControlPlane();
});
afterEach(() => plane.stop());

const dial = (url: string): LinkSocket => dialLink(url, undefined);
const enrolAt = (url: string, token = 't'): Promise<string> =>
  enroll({ stateDir, url, token, allowHttp: false, ca: undefined, inventory });
const enrolHost = (token = plane.token): Promise<string> => enrolAt(plane.url, token);

describe('enrolment', () => {
  test('stores the identity, and a repeat gives the same machine', async () => {
    expect(await enrolHost()).toBe(MACHINE_ID);
    expect(await enrolHost()).toBe(MACHINE_ID);
    expect(new Set(plane.enrolments.map((one) => one.public_key)).size).toBe(1);
    expect((await readIdentity(stateDir))?.enrolled).toEqual({
      url: plane.url,
      machine_id: MACHINE_ID,
      link_path: '/agent/v1/link',
    });
  });

  test.each([
    [
      '127.0.0.1:1',
      "--url must be the control plane's address, like https://api.example.com, which 127.0.0.1:1 is not",
    ],
    ['ftp://h', "--url must be the control plane's address, like https://api.example.com, which ftp://h is not"],
    ['http://127.0.0.1:1', 'no answer from http://127.0.0.1:1: connect ECONNREFUSED 127.0.0.1:1'],
    ['http://10.0.0.1', 'in clear text to 10.0.0.1: use https://, or --allow-http on a network that nobody else reads'],
    ['http://127.0.0.1.example.com', 'in clear text to 127.0.0.1.example.com'],
  ])('refuses %s with the reason', async (url, message) => {
    await expect(enrolAt(url)).rejects.toThrow(message);
  });

  test('reports that an http control plane does not speak TLS', async () => {
    const url = plane.url.replace('http:', 'https:');
    await expect(enrolAt(url)).rejects.toThrow(`${url} does not speak TLS`);
  });

  test('stores the key before the first call, so that a lost call is repeated with the same key', async () => {
    await expect(enrolAt('http://127.0.0.1:1')).rejects.toThrow('ECONNREFUSED');
    const key = (await loadIdentity(stateDir)).public_key;
    await enrolHost();
    expect(plane.enrolments[0]?.public_key).toBe(key);
  });

  test.each([
    [404, '{"code":"not_found","detail":"There is nothing at /agent/v1/enroll."}'],
    [405, 'nothing'],
    [200, '<html>a web server</html>'],
    [200, '{"ok":true}'],
  ])('says that an address is no control plane if it answers %d with %j', async (status, text) => {
    const other = createServer((_request, response) => void response.writeHead(status).end(text));
    await once(other.listen(0, '127.0.0.1'), 'listening');
    onTestFinished(() => void other.close());
    const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
    await expect(enrolAt(url)).rejects.toThrow(
      `what answers at ${url} is no control plane (${status}): check the address and the port of --url`,
    );
  });

  test("shows a refusal in the control plane's words", async () => {
    await expect(enrolHost('wrong')).rejects.toThrow('enrolment refused (401 enrollment_token_invalid): no such token');
    await enrolHost();
    stateDir = join(dir, 'another-host');
    await expect(enrolHost()).rejects.toThrow('enrollment_token_used');
  });
});

describe('link', () => {
  let link: Link | undefined;
  let lines: string[];
  let desired: DesiredMessage[];
  let opened: OpenMessage[];
  let repaired: string[];

  const open = async (patch: Partial<LinkPeer> = {}): Promise<void> => {
    await enrolHost();
    const identity = await loadIdentity(stateDir);
    desired = [];
    lines = [];
    opened = [];
    repaired = [];
    const peer: LinkPeer = {
      hello: () => ({ held: null, boot_id: 'boot', inventory }),
      prove: (nonce) => proveIdentity(identity, MACHINE_ID, nonce),
      observed: () => ({ type: 'observed', held: null, workloads: [], unknown_workload_ids: [] }),
      onDesired: async (message) => void desired.push(message),
      onOpen: async (message) => void opened.push(message),

      onWatch: () => undefined,

      onRepair: (id) => void repaired.push(id),
      cloneToken: await openCloneToken(stateDir, { files: DISK, log: createLog('test', 'silent') }),
      ...patch,
    };
    link = openLink({ url: `${plane.url.replace('http', 'ws')}/agent/v1/link`, machineId: MACHINE_ID }, peer, {
      clock: systemClock(),
      rng: seededRng(1),
      log: createLog('test', 'info', { write: (line: string) => void lines.push(line) }),
      dial,
    });
    await eventually('hello', 5000, () => Promise.resolve(plane.hellos.length > 0 || undefined));
  };
  afterEach(() => link?.stop());

  const hello = (number: number): Promise<boolean> =>
    eventually(`hello ${number}`, 10_000, () => Promise.resolve(plane.hellos.length >= number || undefined));

  test('the log of a link that has ended says when the next try comes, except after a stop', async () => {
    await open();
    await eventually('link', 5000, () => Promise.resolve(link?.status().connected || undefined));
    plane.dropLink();
    await hello(2);
    await link?.stop();
    const ends = lines.map((line) => JSON.parse(line) as object).filter((line) => 'again_in_ms' in line);
    expect(ends).toEqual([
      expect.objectContaining({ msg: 'the link ended', again_in_ms: expect.any(Number) }),
      expect.objectContaining({ reason: 'the agent stops', again_in_ms: null }),
    ]);
  });

  test('takes a desired state with the largest launch on each GPU', async () => {
    await open();
    const env = { A: 'x'.repeat(LAUNCH_BYTES_MAX) };
    const gpus = Array.from({ length: GPUS_PER_MACHINE_MAX }, (_, index) =>
      desiredWorkload(`wl_${index}`, 'i', { env }),
    );
    plane.desire(gpus);
    await eventually('desired', 5000, () => Promise.resolve(desired.length === 1 || undefined));
    expect(desired[0]?.workloads).toEqual(gpus);
    expect(plane.ended).toEqual([]);
  });

  test('sends a hello with a proof, reports at once, and passes desired states on in order', async () => {
    await open();
    await eventually('report', 5000, () => Promise.resolve(plane.observed()));
    plane.desire([]);
    plane.desire([]);
    await eventually('desired', 5000, () => Promise.resolve(desired.length === 2 || undefined));
    expect(desired.map((one) => one.revision)).toEqual([1, 2]);
    expect(link?.status().connected).toBe(true);
  });

  test('sends the inventory after the welcome if it has changed since the hello, and else does not', async () => {
    let newest = inventory;
    const shown = async (): Promise<null> => {
      // The hello contains the inventory already, and is sent only after this.
      if (plane.hellos.length === 0) newest = { ...inventory, fence_error: 'a container reached this host' };
      link?.sendInventory(newest);
      return null;
    };
    const hello = (): ReturnType<LinkPeer['hello']> => ({ held: null, boot_id: 'boot', inventory: newest });
    await open({ hello, cloneToken: { shown, keep: async () => true } });
    await eventually('report', 5000, () => Promise.resolve(plane.observed()));
    expect([plane.hellos[0]?.inventory, plane.inventory()]).toEqual([inventory, newest]);
    plane.dropLink();
    await eventually('hello 2', 10_000, () => Promise.resolve(plane.hellos[1]));
    await eventually('link', 5000, () => Promise.resolve(link?.status().connected || undefined));
    const reports = plane.observed();
    link?.observedChanged();
    await eventually('report', 5000, () => Promise.resolve(plane.observed() !== reports || undefined));
    // An inventory message would have replaced the one of the hello.
    expect(plane.inventory()).toBe(plane.hellos[1]?.inventory);
    expect(plane.inventory()).toEqual(newest);
  });

  test('stores each clone token, confirms it, and shows the newest in the next hello', async () => {
    await open();
    await eventually('link', 5_000, () => Promise.resolve(link?.status().connected || undefined));
    for (const value of ['r1', 'r2']) plane.send({ type: 'clone_token', value });
    await eventually('answers', 5_000, () => Promise.resolve(plane.cloneTokensKept.length === 2 || undefined));
    plane.send({ type: 'drain', reconnect_after_ms: 0 });
    await hello(2);
    expect(plane.hellos.map(({ clone_token }) => clone_token)).toEqual([null, 'r2']);
    expect(plane.cloneTokensKept).toEqual(['r1', 'r2']);
  });

  test('requests the login of a private image and passes the answer to its caller', async () => {
    await open();
    await eventually('link', 5_000, () => Promise.resolve(link?.status().connected || undefined));
    const answers = ['wl_a', 'wl_b'].map(async (id) => link?.pullLogin(id));
    await eventually('questions', 5_000, () => Promise.resolve(plane.pullLoginsAsked.length === 2 || undefined));
    expect(plane.pullLoginsAsked).toEqual(['wl_a', 'wl_b']);
    plane.send({ type: 'pull_login', workload_id: 'wl_x', login: null });
    plane.send({ type: 'pull_login', workload_id: 'wl_b', login: null });
    plane.send({ type: 'pull_login', workload_id: 'wl_a', login: { kind: 'bearer', token: 't' } });
    expect(await Promise.all(answers)).toEqual([{ kind: 'bearer', token: 't' }, null]);
  });

  test('sends figures and takes the word that somebody looks, but sends an old control plane nothing that it does not know', async () => {
    const watched: number[] = [];
    await open({ onWatch: (forMs) => void watched.push(forMs) });
    await eventually('link', 5000, () => Promise.resolve(link?.status().connected === true || undefined));
    link?.sendMetrics(metricsSample(7));
    await eventually('figures', 5000, () => Promise.resolve(plane.samples.length > 0 || undefined));
    expect(plane.samples[0]).toMatchObject({ taken_ms: 7 });
    plane.send({ type: 'watch', for_ms: 30_000 });
    await eventually('watch', 5000, () => Promise.resolve(watched.length > 0 || undefined));
    expect(watched).toEqual([30_000]);
    await link?.stop();

    plane.speak(2);
    await open();
    await eventually('old link', 5000, () => Promise.resolve(link?.status().connected === true || undefined));
    link?.sendMetrics(metricsSample(8));
    link?.sendInventory({ ...inventory, hostname: 'sent after it' });
    await eventually('inventory', 5000, () =>
      Promise.resolve(plane.inventory()?.hostname === 'sent after it' || undefined),
    );
    expect(plane.samples).toHaveLength(1);
  });

  test('shows the refusal of a wrong proof and tries again', async () => {
    await enrolHost();
    const other = await loadIdentity(join(dir, 'foreign'));
    link = openLink(
      { url: `${plane.url.replace('http', 'ws')}/agent/v1/link`, machineId: MACHINE_ID },
      {
        hello: () => ({ held: null, boot_id: 'boot', inventory }),
        prove: (nonce) => proveIdentity(other, MACHINE_ID, nonce),
        observed: () => ({ type: 'observed', held: null, workloads: [], unknown_workload_ids: [] }),
        onDesired: () => Promise.resolve(),
        onOpen: () => Promise.resolve(),

        onWatch: () => undefined,

        onRepair: (id) => void repaired.push(id),
        cloneToken: await openCloneToken(stateDir, { files: DISK, log: createLog('test', 'silent') }),
      },
      { clock: systemClock(), rng: seededRng(1), log: createLog('test', 'silent'), dial },
    );
    await eventually('two tries', 10_000, () => Promise.resolve(plane.ended.length >= 2 || undefined));
    expect(plane.ended[0]).toEqual({ code: 4401, reason: 'bad proof' });
    expect(link.status().last_end).toContain('4401 bad proof');
  });

  test.each([
    ['not JSON', 'nonsense'],
    ['an unknown type', '{"type":"reboot"}'],
    ['an incomplete list', '{"type":"desired","epoch":1,"revision":1,"workloads":[]}'],
    [
      'a path as a workload',
      '{"type":"desired","epoch":1,"revision":1,"complete":true,"workloads":[{"workload_id":"../x"}]}',
    ],
  ])('%s closes the link with a reason, reaches nobody, and the link comes back', async (_name, text) => {
    await open();
    plane.sendText(text);
    await hello(2);
    expect(plane.ended[0]?.code).toBe(4400);
    expect(plane.ended[0]?.reason).toContain('malformed message: ');
    expect(desired).toEqual([]);
  });

  test('refuses a stream that cannot be opened, with a reason', async () => {
    await open({ onOpen: () => Promise.reject(new Error('no holder')) });
    await expect(plane.stream('wl_a', { authorized_keys: [] })).rejects.toThrow('no holder');
  });

  test('reconnects after a lost link, and later after a drain', async () => {
    await open();
    plane.dropLink();
    await hello(2);
    const before = performance.now();
    plane.send({ type: 'drain', reconnect_after_ms: 700 });
    await hello(3);
    expect(performance.now() - before).toBeGreaterThan(1_150);
  });

  test('sends one report for a thousand changes at once', async () => {
    let reports = 0;
    await open({
      observed: () => {
        reports += 1;
        return { type: 'observed', held: null, workloads: [], unknown_workload_ids: [] };
      },
    });
    await eventually('first report', 5000, () => Promise.resolve(plane.observed()));
    const before = reports;
    for (let i = 0; i < 1000; i += 1) link?.observedChanged();
    await eventually('second report', 5000, () => Promise.resolve(reports > before || undefined));
    expect(reports).toBe(before + 1);
  });
});
