// The things that operators make, as data: an organisation, a person, an API key of an organisation, a payment outside of deposits, a reservation.
import { serviceNow } from '../core/clock.ts';
import { quoted } from '../core/format.ts';
import { ROLES } from '../core/session.ts';
import type { Making, Texts } from './making.tsx';

const ADMIN = 'svc-control-plane admin';
const DAY_MS = 86_400_000;
const DOLLARS = /^(\d{1,12})(?:\.(\d{1,2}))?$/;
const NAMES_PAYMENT = 'The name of the payment elsewhere. A second one under it has no effect.';
const GPUS = /^([^:@\s,]+):(\d{1,5})@([^:@\s,]+)$/;

const textIn = (texts: Texts, field: string): string => texts[field] ?? '';
/** Entries of a text, separated by commas. */
const entriesOf = (text: string): string[] =>
  text.split(',').flatMap((each) => (each.trim() === '' ? [] : [each.trim()]));
/** The time of the request. A text with only a day means the begin of that day in UTC, as in the command. */
const timeOf = (text: string): string => (/^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00:00Z` : text);

export const ORG: Making = {
  words: 'Create an organisation',
  says: 'A customer or a supplier. You add its people and keys on its page.',
  fields: [{ field: 'name', label: 'Name', example: 'Example Ltd' }],
  requestOf: (texts) => ({ path: '/admin/v1/orgs', body: { name: textIn(texts, 'name') } }),
  lineOf: (texts) => `${ADMIN} org create --name ${quoted(textIn(texts, 'name'))}`,
};

const NAME_AND_EMAIL = [
  { field: 'name', label: 'Name', example: 'Ada Lovelace' },
  { field: 'email', label: 'E-mail', hint: 'With it, the person signs in.', example: 'ada@example.com' },
] as const;
const GETS_LINK = 'The answer is a link, shown once, with which the person sets a password.';

/** A person. With an organisation, the person becomes a member of it. Without one, the person may become an operator. */
export function personOf(orgId?: string): Making {
  const common = (texts: Texts) => ({ name: textIn(texts, 'name'), email: textIn(texts, 'email') });
  const line = (texts: Texts): string =>
    `${ADMIN} user add --email ${quoted(textIn(texts, 'email'))} --name ${quoted(textIn(texts, 'name'))}`;
  const path = '/admin/v1/users';
  if (orgId === undefined)
    return {
      words: 'Add a person',
      says: GETS_LINK,
      fields: [
        ...NAME_AND_EMAIL,
        {
          field: 'operator',
          label: 'Operator',
          hint: 'An operator needs a second factor.',
          example: 'no',
          choices: [
            ['no', 'No'],
            ['yes', 'Operates this installation'],
          ],
        },
      ],
      requestOf: (texts) => ({ path, body: { ...common(texts), is_operator: textIn(texts, 'operator') === 'yes' } }),
      lineOf: (texts) => line(texts) + (textIn(texts, 'operator') === 'yes' ? ' --operator' : ''),
    };
  return {
    words: 'Add a new person',
    says: GETS_LINK,
    fields: [
      ...NAME_AND_EMAIL,
      {
        field: 'role',
        label: 'Role',
        example: 'owner',
        choices: ROLES,
      },
    ],
    requestOf: (texts) => ({ path, body: { ...common(texts), org_id: orgId, role: textIn(texts, 'role') } }),
    lineOf: (texts) => `${line(texts)} --org ${orgId} --role ${quoted(textIn(texts, 'role'))}`,
  };
}

/** Makes somebody who has an account a member of the organisation. */
export function memberOf(orgId: string): Making {
  return {
    words: 'Add a member',
    says: 'Somebody who has an account becomes a member at once.',
    fields: [
      { field: 'user', label: 'Person', hint: 'The e-mail address or the id.', example: 'ada@example.com' },
      { field: 'role', label: 'Role', example: 'member', choices: ROLES },
    ],
    requestOf: (texts) => ({
      path: `/admin/v1/orgs/${encodeURIComponent(orgId)}/members`,
      body: { user: textIn(texts, 'user'), role: textIn(texts, 'role') },
    }),
    lineOf: (texts) =>
      `${ADMIN} org add-member ${orgId} --user ${quoted(textIn(texts, 'user'))} --role ${quoted(textIn(texts, 'role'))}`,
  };
}

/** An API key. The dialog need not show the organisation, because its name is above the button. */
export function keyOf(orgId: string): Making {
  return {
    words: 'Make a key',
    says: 'The key is shown once. Whoever has it can do what its scopes say.',
    fields: [
      { field: 'name', label: 'Name', example: 'worker' },
      {
        field: 'scopes',
        label: 'Scopes',
        hint: 'Separated by commas, like instances: read, billing: read. Or full_access.',
        example: 'full_access',
      },
      {
        field: 'days',
        label: 'Days until it ends',
        hint: 'Empty: it does not end.',
        isOptional: true,
        example: '',
        broken: (text) => (/^[1-9]\d{0,4}$/.test(text) ? undefined : 'must be a whole number of days'),
      },
    ],
    requestOf: (texts) => {
      const days = textIn(texts, 'days');
      const expiry = days === '' ? {} : { expires_at: new Date(serviceNow() + Number(days) * DAY_MS).toISOString() };
      const body = {
        org_id: orgId,
        name: textIn(texts, 'name'),
        scopes: entriesOf(textIn(texts, 'scopes')),
        ...expiry,
      };
      return { path: '/admin/v1/keys', body };
    },
    lineOf: (texts) => {
      const days = textIn(texts, 'days');
      const expiry = days === '' ? '' : ` --expires-in-days ${quoted(days)}`;
      const scopes = quoted(entriesOf(textIn(texts, 'scopes')).join(','));
      return `${ADMIN} key create --org ${orgId} --name ${quoted(textIn(texts, 'name'))} --scopes ${scopes}${expiry}`;
    },
  };
}

/** Whole cents of a text that fits DOLLARS; undefined for other texts. */
function centsOf(text: string): number | undefined {
  const [, dollars, cents = ''] = DOLLARS.exec(text) ?? [];
  return dollars === undefined ? undefined : Number(dollars) * 100 + Number(cents.padEnd(2, '0'));
}

const notDollars = (text: string): string | undefined =>
  DOLLARS.test(text) ? undefined : 'must be dollars with at most two decimals, like 25 or 25.50';

/** A payment of a customer, which adds to the balance of the organisation whose page has the button. */
export function fundsOf(orgId: string): Making {
  return {
    words: 'Add funds',
    says: 'The customer has paid in another way than with a deposit. The balance grows by the same amount.',
    fields: [
      { field: 'cents', label: 'Dollars', example: '25', broken: notDollars },
      { field: 'reference', label: 'Reference', hint: NAMES_PAYMENT, example: '…' },
    ],
    requestOf: (texts) => ({
      path: `/admin/v1/balances/${encodeURIComponent(orgId)}/credits`,
      body: { cents: centsOf(textIn(texts, 'cents')), reference: textIn(texts, 'reference') },
    }),
    lineOf: (texts) => {
      const named = `--usd ${quoted(textIn(texts, 'cents'))} --reference ${quoted(textIn(texts, 'reference'))}`;
      return `${ADMIN} balance add --org ${orgId} ${named}`;
    },
  };
}

export const PAYMENT: Making = {
  words: 'Record a payment',
  says: 'A supplier was paid in another way, like a bank transfer. This moves no money.',
  fields: [
    { field: 'supplier_id', label: 'Supplier', hint: 'Its id, as in the list of suppliers.', example: 'SUPPLIER' },
    {
      field: 'reference',
      label: 'Reference',
      hint: NAMES_PAYMENT,
      example: '…',
    },
    {
      field: 'cents',
      label: 'Dollars',
      hint: 'Empty: all that is owed.',
      isOptional: true,
      example: '',
      broken: notDollars,
    },
  ],
  requestOf: (texts) => {
    const cents = centsOf(textIn(texts, 'cents'));
    const amount = cents === undefined ? {} : { cents };
    const path = `/admin/v1/suppliers/${encodeURIComponent(textIn(texts, 'supplier_id'))}/payouts`;
    return { path, body: { reference: textIn(texts, 'reference'), ...amount } };
  },
  lineOf: (texts) => {
    const dollars = textIn(texts, 'cents');
    const amount = dollars === '' ? '' : ` --usd ${quoted(dollars)}`;
    const named = `--supplier ${quoted(textIn(texts, 'supplier_id'))} --reference ${quoted(textIn(texts, 'reference'))}`;
    return `${ADMIN} payout create ${named}${amount}`;
  },
};

const notTime = (text: string): string | undefined =>
  Number.isNaN(Date.parse(timeOf(text)))
    ? 'must be a day like 2026-12-01 (UTC), or a time like 2026-12-01T09:00:00Z'
    : undefined;

export const RESERVATION: Making = {
  words: 'Make a reservation',
  says: 'A contract sets GPUs aside for one organisation. The answer shows when, and which are free.',
  fields: [
    { field: 'org_id', label: 'Organisation', hint: 'Its id, as in the list of organisations.', example: 'ORG' },
    { field: 'title', label: 'Title', hint: 'The customer sees it.', example: '…' },
    { field: 'starts_at', label: 'Begin', hint: 'A day in UTC, or a time.', example: '2036-12-01', broken: notTime },
    { field: 'ends_at', label: 'End', hint: 'Exclusive.', example: '2037-12-01', broken: notTime },
    {
      field: 'commitment',
      label: 'GPUs',
      hint: 'type:count@region, like H100_SXM:8@eu-west. Several: separated by commas.',
      example: 'H100_SXM:8@eu-west',
      broken: (text) =>
        entriesOf(text).every((entry) => GPUS.test(entry))
          ? undefined
          : 'must be type:count@region, like H100_SXM:8@eu-west',
    },
    {
      field: 'renewal',
      label: 'Renewal',
      example: 'none',
      choices: [
        ['none', 'None'],
        ['manual', 'You extend it'],
        ['auto_renew', 'A term of the same length follows'],
      ],
    },
  ],
  requestOf: (texts) => {
    const commitment = entriesOf(textIn(texts, 'commitment')).map((entry) => {
      const [, type = '', count = '', region = ''] = GPUS.exec(entry) ?? [];
      return { gpu_type: type, gpu_count: Number(count), region };
    });
    const body = {
      org_id: textIn(texts, 'org_id'),
      title: textIn(texts, 'title'),
      starts_at: timeOf(textIn(texts, 'starts_at')),
      ends_at: timeOf(textIn(texts, 'ends_at')),
      renewal: textIn(texts, 'renewal'),
      commitment,
    };
    return { path: '/admin/v1/reservations', body };
  },
  lineOf: (texts) => {
    const option = (name: string, field: string): string => `--${name} ${quoted(textIn(texts, field))}`;
    const gpus = entriesOf(textIn(texts, 'commitment')).map((entry) => ` --gpus ${quoted(entry)}`);
    const term = `${option('starts', 'starts_at')} ${option('ends', 'ends_at')}`;
    const named = `${option('org', 'org_id')} ${option('title', 'title')}`;
    return `${ADMIN} reservation create ${named} ${term}${gpus.join('')} ${option('renewal', 'renewal')}`;
  },
};
