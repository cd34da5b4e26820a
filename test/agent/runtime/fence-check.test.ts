// The exit code of the attacking program decides. Only a program that met the fence and reached nothing proves that the fence holds.
import { networkInterfaces } from 'node:os';
import { expect, test } from 'vitest';
import type { Nftables } from '../../../agent/host/nftables.ts';
import { attackFence } from '../../../agent/runtime/fence.ts';
import type { BareRun, Engine } from '../../../agent/runtime/engine.ts';

/** Runs an attack whose program ends with `end` after the fence has refused `packets` of its packets. */
function attack(end: number | Error, packets: number): { done: Promise<void>; runs: BareRun[] } {
  const runs: BareRun[] = [];
  let refused = 7;
  const engine: Pick<Engine, 'runBare'> = {
    runBare: async (run) => {
      runs.push(run);
      refused += packets;
      if (end instanceof Error) throw end;
      return end;
    },
  };
  const nftables: Pick<Nftables, 'refused'> = { refused: async () => refused };
  const node = { argv: ['node'], mounts: [] };
  return { done: attackFence({ engine: engine as Engine, node, nftables: nftables as Nftables }), runs };
}

test('a program that met the fence and reached nothing proves it, on a network of its own', async () => {
  const { done, runs } = attack(0, 3);
  await expect(done).resolves.toBeUndefined();
  expect(runs).toMatchObject([{ name: 'fence', network: true, disk_mib: null }]);
});

test.each<[string, number | Error, number, string]>([
  ['reached something', 3, 3, 'a container reached this host, or a private network through it'],
  ['failed by itself', 1, 3, 'the program that attacks it failed with code 1'],
  ['was ended', 137, 3, 'the program that attacks it failed with code 137'],
  ['was refused by the engine', new Error('no such runtime'), 0, 'no such runtime'],
  ['met no fence and reached nothing', 0, 0, 'it saw no packet of a container'],
  ['met no fence and reached something', 3, 0, 'it saw no packet of a container'],
])('a program that %s proves nothing', async (_how, end, packets, reason) => {
  await expect(attack(end, packets).done).rejects.toThrow(reason);
});

test('the program attacks every address of this host that others can reach, and one of each kind of closed address', async () => {
  const { done, runs } = attack(0, 3);
  await done;
  const [program = ''] = runs[0]?.argv.slice(-1) ?? [];
  const [, list = '[]'] = /\.\.\.(\[\{.*?\}\]|\[\])\]/.exec(program) ?? [];
  const targets = JSON.parse(list) as { host: string; port: number }[];
  const own = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .flatMap(({ address, family, internal }) => (family === 'IPv4' && !internal ? [address] : []));
  const closed = ['10.0.0.1', '172.16.0.1', '192.168.0.1', '192.168.1.1', '100.64.0.1', '169.254.169.254'];
  expect(targets.map(({ host }) => host)).toEqual([...own, ...closed]);
  // Our own listener has a port that it was given, and the closed addresses are tried at that of HTTP.
  expect(targets.filter(({ port }) => port === 80).map(({ host }) => host)).toEqual(closed);
  expect(runs[0]?.argv.slice(0, -1)).toEqual(['node', '-e']);
});
