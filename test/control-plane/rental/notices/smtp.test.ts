// A notice on its whole way: from the event to a mail server, which is away at first.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { brought } from '../../../../control-plane/brings.ts';
import { openMail } from '../../../../control-plane/base/mail/mail.ts';
import { GATHER_MS } from '../../../../control-plane/rental/notices/limits.ts';
import { createLog } from '../../../../shared/log.ts';
import { addPerson } from '../../../kit/people.ts';
import { startSmtpServer, type SmtpServer } from '../../../kit/smtp-server.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';
import { openWorld, type World } from '../../../kit/world.ts';

let server: SmtpServer;
let world: World;
let logged: string;
beforeEach(async () => {
  server = await startSmtpServer();
  logged = '';
  const log = createLog('test', 'info', { write: (line) => void (logged += line) });
  const settings = { host: '127.0.0.1', port: server.port, security: 'none', login: undefined } as const;
  const mail = openMail(
    { ...settings, from: { name: '', address: 'svc@example.com' } },
    { clock: virtualClock(), log },
  );
  world = await openWorld(1, { mail, log });
});
afterEach(async () => {
  await world.close();
  await server.close();
});

async function run(): Promise<void> {
  const loop = brought(world.brings(), 'loops').find(({ name }) => name === 'notices');
  await loop?.run(new AbortController().signal);
}

test('a name forges no header and no line, and the log names no address', async () => {
  const { id: orgId } = await world.rooms.accounts.createOrg('Acme\r\nBcc: eve@example.com');
  const ada = await addPerson(world, { orgId, role: 'owner' });
  const event = {
    type: 'instance.unreachable',
    subjectId: 'i-1',
    orgId,
    data: {},
  } as const;
  await world.db.tx('test.event', (tx) => world.rooms.events.append(tx, event));
  server.refuse(true);
  await world.clock.advance(GATHER_MS);
  await run();
  expect(server.mails).toEqual([]);
  expect(logged).toContain('a mail was not sent');
  expect(logged).toContain('550 no such person');
  expect(logged).not.toContain('@');
  server.refuse(false);
  await world.clock.advance(60_000);
  await run();
  await run();
  expect(server.mails).toHaveLength(1);
  const text = server.mails[0]?.text ?? '';
  expect(server.mails[0]?.to).toBe(`RCPT TO:<${ada.email}>`);
  const head = text.slice(0, text.indexOf('\n\n'));
  expect(head).toContain('Subject: An outage of your instances (api.example.com)');
  expect(head).not.toMatch(/eve|Acme/);
  expect(text.replaceAll('=\n', '')).toContain('the organisation "Acme Bcc: eve@example.com":');
});
