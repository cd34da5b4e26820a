// Enrolment with the real agent's command line: every token that must not work, and enrolments that were cut off.
import { DatabaseSync } from 'node:sqlite';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { CommunityMachineRegistration } from '../../shared/api/community.ts';
import { openAgentHost, type AgentHost } from '../kit/agent-host.ts';
import { capture } from '../kit/capture.ts';
import { eventually, startProgram, type Program } from '../kit/processes.ts';
import {
  addHost,
  openStack,
  openSupplier,
  registerMachine,
  verifyLedger,
  type Account,
  type Stack,
} from '../kit/stack.ts';

const LAUNCHER = join(import.meta.dirname, '../../agent/svc-agent.js');

let stack: Stack;
let supplier: Account;
let seed = 0;
const tokens: string[] = [];
const servers: Server[] = [];

beforeAll(async () => {
  stack = await openStack();
  supplier = await openSupplier(stack.controlPlane, 'supplier');
});

afterEach(async () => {
  await verifyLedger(stack.controlPlane);
});

afterAll(async () => {
  for (const server of servers) server.close();
  expect(await stack.stop()).toEqual([]);
});

/** Each host has cards of its own. */
function newHost(): AgentHost {
  seed += 1;
  return addHost(stack, { env: { FAKE_GPU_SEED: String(seed), FAKE_GPU_COUNT: '2' } });
}

async function newToken(): Promise<{ machineId: string; token: string }> {
  const made = await registerMachine(supplier, 2);
  tokens.push(made.token);
  return made;
}

const enroll = (host: AgentHost, token: string) => host.enroll(stack.controlPlane.agentUrl, token);

test('a wrong token is refused', async () => {
  const { code, stderr } = await enroll(newHost(), `enr_${'x'.repeat(43)}`);
  expect(stderr).toContain('enrollment_token_invalid');
  expect(code).toBe(1);
});

test('a used token is refused on another host, and works again on the first', async () => {
  const { machineId, token } = await newToken();
  const first = newHost();
  expect(await enroll(first, token)).toMatchObject({ code: 0 });
  const { code, stderr } = await enroll(newHost(), token);
  expect(stderr).toContain('enrollment_token_used');
  expect(code).toBe(1);
  const again = await enroll(first, token);
  expect(again.stdout.toString()).toContain(machineId);
});

test('a host that is another machine already is refused, and stays what it is', async () => {
  const [one, two] = [await newToken(), await newToken()];
  const host = newHost();
  expect(await enroll(host, one.token)).toMatchObject({ code: 0 });
  const { code, stderr } = await enroll(host, two.token);
  expect(stderr).toContain(`This host is machine ${one.machineId} already`);
  expect(code).toBe(1);
  expect(readFileSync(join(host.stateDir, 'identity.json'), 'utf8')).toContain(one.machineId);
});

test('a host without GPUs, an engine or a fence is refused with what it lacks, and its token stays valid', async () => {
  const { token } = await newToken();
  const bin = join(stack.dir, 'bin');
  mkdirSync(bin);
  writeFileSync(join(bin, 'nft'), '#!/bin/sh\necho no netlink >&2; exit 1\n', { mode: 0o755 });
  const bare = openAgentHost({
    dir: join(stack.dir, 'bare'),
    dockerSocket: '/no/docker.sock',
    gpus: { env: { PATH: `${bin}:${process.env['PATH']}` }, nvidiaSmi: '/no/nvidia-smi' },
    inside: stack.engine.inside,
  });
  const { code, stderr } = await enroll(bare, token);
  expect(stderr).toContain('/no/nvidia-smi names no GPU: install the NVIDIA driver, or set nvidia_smi');
  expect(stderr).toContain('no Docker Engine answers at /no/docker.sock: start it, or set docker_socket');
  expect(stderr).toContain('nft list tables failed: no netlink, or set network_fence: none');
  expect(code).toBe(1);
  expect(await enroll(newHost(), token)).toMatchObject({ code: 0 });
});

test('a second agent on one host leaves before it touches anything', async () => {
  const { token } = await newToken();
  const host = newHost();
  expect(await enroll(host, token)).toMatchObject({ code: 0 });
  await host.daemon.start();
  const { code, stdout, stderr } = await capture([process.execPath, LAUNCHER, 'run', '--config', host.configPath]);
  expect(stderr).toContain('another agent runs already');
  expect(stdout.toString()).toBe('');
  expect(code).toBe(1);
  await host.daemon.stop();
});

test('a token that was issued anew ends the one before it', async () => {
  const { machineId, token: old } = await newToken();
  const path = `/community/machines/${machineId}/token`;
  const { enrollment_token: fresh } = await supplier.api.post(path, undefined, CommunityMachineRegistration);
  tokens.push(fresh);
  expect((await enroll(newHost(), old)).stderr).toContain('enrollment_token_');
  expect(await enroll(newHost(), fresh)).toMatchObject({ code: 0 });
});

test('an expired token is refused', async () => {
  const { token } = await newToken();
  const { daemon, databaseFile } = stack.controlPlane;
  // Only the database knows when a token ends, and only while the daemon is down may anybody else open it.
  await daemon.stop();
  const db = new DatabaseSync(databaseFile);
  db.exec('update enrollment_tokens set expires_ms = 1 where used_by_key is null');
  db.close();
  await daemon.start();
  const { code, stderr } = await enroll(newHost(), token);
  expect(stderr).toContain('enrollment_token_expired');
  expect(code).toBe(1);
});

/** Stands in front of the control plane; `forward` false swallows the request, true only the answer. */
async function swallow(forward: boolean): Promise<{ url: string; swallowed: () => number }> {
  let count = 0;
  const server = createServer((request) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      if (forward) {
        const headers = { 'content-type': 'application/json' };
        const body = Buffer.concat(chunks);
        const answer = await fetch(`${stack.controlPlane.agentUrl}${request.url}`, { method: 'POST', headers, body });
        if (!answer.ok) throw new Error(`the control plane answered ${answer.status}`);
      }
      count += 1;
    })();
  }).listen(0, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return { url: `http://127.0.0.1:${port}`, swallowed: () => count };
}

test.each([
  ['before the control plane heard of it', false],
  ['after the control plane had bound the key', true],
])('an enrolment that was killed %s is repeated', async (_when, forward) => {
  const { machineId, token } = await newToken();
  const host = newHost();
  const hole = await swallow(forward);
  const args = [LAUNCHER, 'enroll', '--url', hole.url];
  const cut: Program = startProgram({
    command: process.execPath,
    args: [...args, '--token', token, '--config', host.configPath],
    env: { FAKE_GPU_SEED: String(seed), FAKE_GPU_COUNT: '2' },
  });
  await eventually('request', 15_000, async () => (hole.swallowed() > 0 ? true : undefined));
  await cut.stop('SIGKILL');
  const key = keyOf(host);
  const repeated = await enroll(host, token);
  expect(repeated.stdout.toString()).toBe(
    `enrolled as machine ${machineId} with 2 GPUs (NVIDIA H100 80GB HBM3)\nNext: systemctl start svc-agent. Without systemd: svc-agent run, with the same --config.\n`,
  );
  expect(keyOf(host)).toBe(key);
  await host.daemon.start();
  await host.daemon.stop();
});

function keyOf(host: AgentHost): string {
  const identity = JSON.parse(readFileSync(join(host.stateDir, 'identity.json'), 'utf8')) as { public_key: string };
  return identity.public_key;
}

test('a host that is not enrolled says so', async () => {
  const host = newHost();
  const { code, stderr } = await capture([process.execPath, LAUNCHER, 'run', '--config', host.configPath]);
  expect(stderr).toContain('svc-agent enroll --url');
  expect(code).toBe(1);
});

test('neither tokens nor API keys are in the database or in a log', () => {
  const folder = join(stack.dir, 'cp');
  const files = readdirSync(folder).filter((name) => /control-plane\.(db|log)/.test(name));
  expect(files).toContain('control-plane.db');
  const bytes = files.map((name) => readFileSync(join(folder, name)));
  const logs = stack.agents.map(({ daemon }) => daemon.logPath).filter((path) => existsSync(path));
  bytes.push(...logs.map((path) => readFileSync(path)));
  for (const secret of [...tokens, supplier.key]) {
    // The first characters of a key are stored, to tell keys apart.
    const random = secret.slice(-32);
    expect(bytes.filter((content) => content.includes(random))).toEqual([]);
  }
});
