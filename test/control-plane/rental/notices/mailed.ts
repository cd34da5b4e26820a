// A world with a mail server that the test sees, and the loop that makes and sends letters.
import type { Db } from '../../../../control-plane/base/db/db.ts';
import type { Mail } from '../../../../control-plane/base/mail/mail.ts';
import { brought } from '../../../../control-plane/brings.ts';
import { GATHER_MS } from '../../../../control-plane/rental/notices/limits.ts';
import { type Notices, openNotices } from '../../../../control-plane/rental/notices/notices.ts';
import type { Role } from '../../../../shared/api/auth.ts';
import { createLog } from '../../../../shared/log.ts';
import { addPerson, type Person } from '../../../kit/people.ts';
import { SETTINGS } from '../../../kit/settings.ts';
import { openWorld, type World, type WorldOutside } from '../../../kit/world.ts';

export type SentMail = Parameters<Mail['send']>[0];

export interface Mailed {
  world: World;
  /** Mails that the server has taken, oldest first. */
  sent: SentMail[];
  /** Mails that the server was asked to take. */
  asked: SentMail[];
  /** From now on, the server takes only mails for which this is true. */
  takeOnly(isTaken: (mail: SentMail) => boolean): void;
  /** The text of all that was logged. */
  logged(): string;
  /** Lets the loop of this room run until nothing is due now. */
  run(at?: World): Promise<void>;
  /** Lets the other loop look at all machines. */
  look(at?: World): Promise<void>;
  /** Lets `run` begin after the time in which events are gathered. */
  gather(): Promise<void>;
  /** This room of another process, on another view of the database or with another mail server. */
  beside(db: Db, send?: Mail['send']): Notices;
  person(orgId: string, role: Role): Promise<Person>;
  /** Something happens, in a transaction of its own. */
  append(event: Parameters<World['rooms']['events']['append']>[1]): Promise<void>;
}

export async function openMailed(outside: WorldOutside = {}): Promise<Mailed> {
  const [sent, asked]: [SentMail[], SentMail[]] = [[], []];
  let isTaken = (_mail: SentMail): boolean => true;
  const mail: Mail = {
    isConfigured: true,
    send: async (given) => {
      asked.push(given);
      if (!isTaken(given)) return false;
      sent.push(given);
      return true;
    },
  };
  let logged = '';
  const log = createLog('test', 'info', { write: (line) => void (logged += line) });
  const world = await openWorld(1, { mail, log, ...outside });
  const loopOf = (at: World, named: string) => brought(at.brings(), 'loops').find(({ name }) => name === named);
  const run = async (at: World = world): Promise<void> => {
    while ((await loopOf(at, 'notices')?.run(new AbortController().signal)) === 'again');
  };
  return {
    world,
    sent,
    asked,
    takeOnly: (next) => (isTaken = next),
    logged: () => logged,
    run,
    look: async (at = world) => {
      await loopOf(at, 'machine-notices')?.run(new AbortController().signal);
    },
    gather: async () => {
      await world.clock.advance(GATHER_MS);
      await run();
    },
    beside: (db, send = mail.send) => {
      const { origin } = SETTINGS;
      return openNotices({
        ...world.core,
        db,
        mail: { isConfigured: true, send },
        origin,
        ledger: world.rooms.ledger,
        quiet: world.rooms.quiet,
      });
    },
    person: (orgId, role) => addPerson(world, { orgId, role }),
    append: (event) => world.db.tx('test.event', (tx) => world.rooms.events.append(tx, event)),
  };
}
