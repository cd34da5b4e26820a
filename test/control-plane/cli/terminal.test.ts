// What `svc` writes to a terminal: text of a container, of a model, or of a server that is not ours must not give the terminal orders.
import { afterEach, expect, test } from 'vitest';
import { openLogins } from '../../../control-plane/cli/config.ts';
import { runSvc } from '../../../control-plane/cli/svc.ts';
import { createIds } from '../../../shared/ids.ts';
import { seededRng } from '../../../shared/rng.ts';
import { openSvc, type Svc } from '../../kit/svc.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const BASE_URL = 'https://api.example.com/v1';
const ID = `i-${'a'.repeat(20)}`;
/** Clears the screen, sets the clipboard and the title, and turns the order of what follows around. */
const ORDERS = '\u001b[2J\u001b]52;c;bHM=\u0007\u009b31m\u001b]0;owned\u0007\u202e';
const OBEYED = /[^\P{Cc}\n\t]|\p{Bidi_Control}/u;

const opened: Svc[] = [];
afterEach(() => {
  for (const svc of opened.splice(0)) svc.close();
});

/** Runs `svc`, whose standard output is a terminal, against a server that answers each request with `answer`. */
async function onTerminal(answer: () => Response, ...argv: string[]): Promise<{ out: string; err: string }> {
  const clock = { ...virtualClock(), sleep: async () => undefined };
  const [out, err]: string[][] = [[], []];
  await runSvc(argv, {
    logins: openLogins({ HOME: '/nowhere', SVC_API_KEY: 'svc_live_x', SVC_BASE_URL: BASE_URL }),
    clock,
    ids: createIds(clock, seededRng(1)),
    fetch: async () => answer(),
    print: (text) => void out?.push(text),
    tell: (text) => void err?.push(text),
    variable: () => undefined,
    readInput: async () => '',
    isTerminal: true,
    interrupted: new AbortController().signal,
    goOnUnread: () => undefined,
    runProgram: async () => 0,
  });
  return { out: out?.join('') ?? '', err: err?.join('') ?? '' };
}

/** Runs `svc` with its output in a pipe. */
async function inPipe(answer: () => Response, ...argv: string[]): Promise<{ stdout: string; stderr: string }> {
  const svc = openSvc({ baseUrl: BASE_URL, key: 'svc_live_x', fetch: async () => answer() });
  opened.push(svc);
  return svc.run(...argv);
}

const log = (): Response =>
  Response.json({
    data: [
      { stream: 'stdout', line: `step 1\t${ORDERS}done`, at: '2026-01-01T00:00:00.000Z' },
      { stream: 'stderr', line: `slow ${ORDERS}`, at: '2026-01-01T00:00:01.000Z' },
    ],
  });
const chat = (): Response => {
  const chunk = { choices: [{ delta: { content: `yes${ORDERS}` } }] };
  const body = `data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`;
  return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
};
const list = (): Response => Response.json({ data: [{ id: `i-1${ORDERS}` }], next_cursor: `x${ORDERS}` });

test('the log of a container keeps its tabs on a terminal, and loses what a terminal would obey', async () => {
  const { out, err } = await onTerminal(log, 'logs', ID);
  expect(out).toMatch(/^step 1\t.*done\n$/);
  expect(err).toMatch(/^slow /);
  expect(out + err).not.toMatch(OBEYED);
});

test.each([
  ['the answer of a model', chat, ['chat', 'm', 'hello']],
  ['ids, and the cursor of the next page', list, ['instance', 'list', '-q']],
  ['the document of the API', list, ['instance', 'list', '--json']],
  ['any answer', list, ['api', 'GET', '/instances']],
] as const)('%s cannot write to the terminal', async (_what, answer, argv) => {
  const { out, err } = await onTerminal(answer, ...argv);
  expect(out).not.toBe('');
  expect(out + err).not.toMatch(OBEYED);
});

test('a pipe gets the log of a container byte for byte', async () => {
  expect((await inPipe(log, 'logs', ID)).stdout).toBe(`step 1\t${ORDERS}done\n`);
});

test('a server that is not ours cannot write to the terminal of a person who signs in', async () => {
  const codes = {
    device_code: 'd',
    user_code: `BCDF${ORDERS}\nSigned in.`,
    verification_uri: `https://api.example.com/device${ORDERS}\nSigned in.`,
    expires_in: 0,
    interval: 5,
  };
  const { stderr } = await inPipe(() => Response.json(codes), 'auth', 'login');
  expect(stderr).not.toMatch(OBEYED);
  expect(stderr).toMatch(/^Open .* and enter the code .*\nsvc: nobody approved this machine in time\n/);
});

test('--watch begins each round of figures on an empty screen', async () => {
  const metrics = (): Response => Response.json({ latest: { at: '2026-01-01T00:00:00.000Z', gpus: [] } });
  let asked = 0;
  const { out } = await onTerminal(
    () => {
      asked += 1;
      return asked === 1 ? metrics() : Response.json({ code: 'gone', detail: 'gone' }, { status: 404 });
    },
    'instance',
    'metrics',
    ID,
    '--watch',
  );
  expect(out.startsWith('\u001b[H\u001b[2Jnone\n')).toBe(true);
});
