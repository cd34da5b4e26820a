// The plan of the house as data: which room stands above which, which tables it owns, and where an outside package may enter.
import { globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { ROOMS } from '../../control-plane/foundation.ts';
import { createdTables, droppedTables, withoutComments } from './sources.ts';

export interface Room {
  /** Folder below the daemon, e.g. `base/db`. */
  path: string;
  /** Tables that only this room may name in SQL. */
  tables: readonly string[];
  /** Rooms that stand before this one, which it may not import all the same. */
  apart?: readonly string[];
}

export interface Daemon {
  folder: string;
  /** Files beside the rooms that put the daemon together; no room may import them. */
  composition: readonly string[];
  /** The rooms in import order: a room may import only rooms that stand before it. */
  rooms: readonly Room[];
}

/** The daemons in import order. A new room is one line in `ROOMS` of the control plane, or one here for the agent. */
export const DAEMONS: readonly Daemon[] = [
  {
    folder: 'control-plane',
    composition: [
      'main.ts',
      'house.ts',
      'rooms.ts',
      'wings.ts',
      'settings.ts',
      'brings.ts',
      'listeners.ts',
      'loops.ts',
      'foundation.ts',
      'agreement.ts',
      'backup.ts',
      'check-config.ts',
      'config-files.ts',
      'config-warnings.ts',
      'operator-files.ts',
      'standby.ts',
      'secondary.ts',
      'secret-file.ts',
      'services.ts',
      'primary-streams.ts',
      'config.ts',
      'config-rules.ts',
    ],
    rooms: [
      // It runs in a browser and knows only the public API.
      { path: 'console/web', tables: [] },
      ...ROOMS.map((path) => ({ path, tables: tablesOf(`control-plane/${path}`) })),
      // The command line of customers knows only the public API.
      { path: 'cli', tables: [], apart: ROOMS },
    ],
  },
  {
    folder: 'agent',
    composition: ['main.ts', 'house.ts', 'host-commands.ts', 'inventory.ts', 'config.ts'],
    rooms: [
      { path: 'host', tables: [] },
      { path: 'gpus', tables: [] },
      { path: 'metrics', tables: [] },
      { path: 'wire', tables: [] },
      { path: 'guest', tables: [] },
      { path: 'holder', tables: [], apart: ['guest'] },
      { path: 'runtime', tables: [], apart: ['guest', 'holder'] },
      { path: 'holders', tables: [] },
      { path: 'jobs', tables: [], apart: ['guest', 'holder'] },
      { path: 'link', tables: [] },
    ],
  },
];

/** The tables that the sources of a room create: in its migrations, or in `base/db` before any migration runs. */
function tablesOf(folder: string): string[] {
  const root = resolve(import.meta.dirname, '../..', folder);
  const texts = globSync('**/*.{sql,ts}', { cwd: root })
    .toSorted()
    .map((name) => readFileSync(join(root, name), 'utf8'));
  const sources = texts.map(withoutComments);
  const dropped = new Set(sources.flatMap(droppedTables));
  return [...new Set(sources.flatMap(createdTables))].filter((table) => !dropped.has(table));
}

export interface Door {
  packages: readonly string[];
  /** Folders (ending in `/`) or files. */
  doors: readonly string[];
  why: string;
}

export const DOORS: readonly Door[] = [
  {
    packages: ['better-sqlite3', 'pg'],
    doors: ['control-plane/base/db/'],
    why: 'everyone else speaks to SQL through Db { read, tx }',
  },
  {
    packages: ['fastify'],
    doors: ['control-plane/base/http/'],
    why: 'logic that knows its web framework cannot be called by another room',
  },
  {
    packages: ['@fastify/busboy'],
    doors: ['control-plane/base/http/'],
    why: 'the bounds of a form are set in one place',
  },
  {
    packages: ['aws4fetch', 'fast-xml-parser'],
    doors: ['control-plane/base/blobs/'],
    why: 'everyone else stores files through Blobs, wherever they are',
  },
  {
    packages: ['undici', 'ipaddr.js'],
    doors: ['control-plane/base/outbound/'],
    why: 'whoever calls an address that a stranger has named goes through the guard of that room',
  },
  {
    packages: ['@scure/base', '@scure/bip32', '@noble/hashes', '@noble/curves'],
    doors: ['control-plane/money/payouts/', 'control-plane/money/deposits/'],
    why: 'addresses of chains are made and checked where money goes to them, without a private key',
  },
  {
    packages: ['@simplewebauthn/server', 'openid-client', 'otplib'],
    doors: ['control-plane/base/users/'],
    why: 'everyone else asks who calls, and never how somebody has proved it',
  },
  {
    packages: ['nodemailer'],
    doors: ['control-plane/base/mail/'],
    why: 'the time limits and the rule about TLS are set in one place',
  },
  {
    packages: ['preact', '@preact/signals', 'wouter-preact', 'uplot', '@simplewebauthn/browser', 'uqr'],
    doors: ['control-plane/console/web/'],
    why: 'they run in a browser',
  },
  {
    packages: ['marked'],
    doors: ['control-plane/docs/'],
    why: 'the pages of the manual are rendered in one place, with raw HTML off',
  },
  {
    packages: ['luxon'],
    doors: ['shared/iso-time.ts'],
    why: 'time is handed in as milliseconds; only what callers write is parsed',
  },
  {
    packages: ['ws'],
    doors: ['control-plane/fleet/link/', 'agent/link/', 'agent/holder/'],
    why: 'the guards of a socket (limits, backpressure, no deflate) live with the rooms that own sockets',
  },
  {
    packages: ['dockerode'],
    doors: [
      'agent/runtime/docker.ts',
      'agent/runtime/docker-bare.ts',
      'agent/runtime/docker-jobs.ts',
      'agent/runtime/docker-networks.ts',
    ],
    why: 'the plan stays pure and the engine replaceable',
  },
  {
    packages: ['ssh2'],
    doors: ['agent/holder/', 'control-plane/rental/outages/'],
    why: 'its seven guards are set up in one place for each end',
  },
  {
    packages: ['@lydell/node-pty'],
    doors: [],
    why: 'the guest loads its native half alone, inside the container',
  },
  {
    packages: ['node:child_process'],
    doors: ['agent/host/run.ts', 'agent/guest/', 'control-plane/base/systemd/', 'control-plane/cli/main.ts'],
    why: 'programs are started with argument arrays and limits, never through a shell string',
  },
];
