// Every command in the README and the manual exists: routes with valid bodies, operator commands, the agent's commands.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Api, openApi } from '../../contract/api.ts';
import { commandsOf, readPages } from '../../kit/manual/documents.ts';
import { type Judge, openJudge } from '../../kit/manual/judge.ts';
import { NOT_RUN } from '../../kit/manual/not-run.ts';
import { openRecorder, type Recorder } from '../../kit/manual/recorder.ts';

const ROOT = resolve(import.meta.dirname, '../../..');
const commands = readPages().flatMap(commandsOf);
const SAMPLES: Record<string, string> = {
  'ssh port': '20000',
  'org id': '0198c0de-0000-7000-8000-000000000000',
  'block number': '1',
};

let api: Api;
let dir: string;
let recorder: Recorder;
let judge: Judge;
beforeAll(async () => {
  api = await openApi();
  dir = mkdtempSync(join(tmpdir(), 'manual-'));
  recorder = openRecorder(dir, (placeholder) => SAMPLES[placeholder] ?? 'sample');
  judge = openJudge(api.routes);
});
afterAll(async () => {
  await api.close();
  rmSync(dir, { recursive: true });
});

test('the pages have commands', () => {
  expect(commands.length).toBeGreaterThan(100);
});

test.each(commands)('$path:$line $text', async (command) => {
  const calls = await recorder.record(command);
  expect(calls.length > 0 || /^(export|cat|install) /.test(command.text)).toBe(true);
  for (const call of calls) await judge(call);
});

describe('the list of commands that are not run', () => {
  test('names only existing commands, each once', () => {
    const listed = NOT_RUN.map(({ command }) => command);
    expect(listed.filter((text) => commands.every((command) => command.text !== text))).toEqual([]);
    expect(new Set(listed).size).toBe(listed.length);
  });
  test.each(NOT_RUN)('$command is proven by a test', ({ provenBy: [file, title], reason }) => {
    expect(reason).not.toBe('');
    expect(readFileSync(join(ROOT, file), 'utf8')).toContain(title);
  });
});

describe('a fault is found:', () => {
  const FAULTS = [
    ['a route that is not there', 'curl $API/instance -H "$AUTH"', 'no route'],
    ['another method', 'curl -X PUT $API/instances -H "$AUTH"', 'no route'],
    ['no key', 'curl $API/instances', 'Authorization'],
    ['no Idempotency-Key', `curl -X POST $API/instances -H "$AUTH" -H "$JSON" -d '{}'`, 'Idempotency-Key'],
    ['an unknown member', `curl -X POST $API/community/machines -H "$AUTH" -H "$JSON" -d '{"prize":1}'`, 'prize'],
    ['an unknown query', 'curl "$API/usage?bukket=day" -H "$AUTH"', 'bukket'],
    ['an unknown operator command', 'svc-control-plane admin org make', 'make'],
    ['a missing option', 'svc-control-plane admin credit trust sample', '--note'],
    ['an unknown option of the daemon', 'svc-control-plane restore backup --hard', '--hard'],
    ['an unknown option of the agent', 'svc-agent enroll --uri x', '--uri'],
    ['an unknown script', 'npm run demonstration', 'demonstration'],
    ['an unknown project of the tests', 'npx vitest run --project units', 'units'],
    ['an unknown option of install.sh', './install.sh agent --yes', '--yes'],
    ['a Debian package that we do not make', 'apt-get install ./gpu-rental_*_amd64.deb', 'no such package'],
    ['a service that the try-out does not have', 'docker compose exec database psql', 'no service database'],
    ['a program that nobody has', 'kubectl get pods', 'kubectl'],
    ['a fault of the shell', 'curl $API/pricing; do', 'Syntax error'],
  ] as const;
  test.each(FAULTS)('%s', async (_what, text, message) => {
    const judged = async (): Promise<void> => {
      for (const call of await recorder.record({ path: 'planted', line: 1, text })) await judge(call);
    };
    await expect(judged()).rejects.toThrow(message);
  });
});
