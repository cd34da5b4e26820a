// The decisions of the operator's screens as data, and how the rows of the operator's routes are written.

/** A row of a list of the operator's routes, or the answer of a route about one thing. */
export type Row = Record<string, unknown>;

/** A text field that a decision needs. */
interface Taken {
  /** The member of the request. */
  field: string;
  /** The option of the command. */
  option: string;
  label: string;
  /** Text of the field when the dialog opens; empty if left out. */
  initial?: (row: Row) => string;
}

export const REASON: Taken = { field: 'reason', option: 'reason', label: 'Reason' };
const NOTE: Taken = { field: 'note', option: 'note', label: 'Note' };

/** A decision about a row: `POST <path>/<id>/<verb>`, and `<command> <verb> <id>`. */
export interface Verb {
  verb: string;
  /** Text of the button. If left out, the verb is used. */
  words?: string;
  /** Effect of the decision, which the dialog explains. */
  says: string;
  takes?: readonly Taken[];
  /** True if the decision is possible for this row. If left out, it is possible for every row. */
  fits?: (row: Row) => boolean;
}

/** Decisions about organisations. */
export const ORG_VERBS: readonly Verb[] = [
  {
    verb: 'suspend',
    says: 'It can read and delete, and starts nothing that costs money. What runs goes on.',
    takes: [REASON],
    fits: (row) => row['suspended_at'] === null,
  },
  {
    verb: 'resume',
    says: 'It may do everything again.',
    fits: (row) => row['suspended_at'] !== null,
  },
];

/** Decisions about people. */
export const PERSON_VERBS: readonly Verb[] = [
  {
    verb: 'promote',
    says: 'The person operates this installation, and needs a second factor from now on.',
    takes: [REASON],
    fits: (row) => row['is_operator'] === false && row['blocked_at'] === null,
  },
  {
    verb: 'demote',
    says: 'The person operates this installation no more. All sessions of the person end.',
    takes: [REASON],
    fits: (row) => row['is_operator'] === true,
  },
  {
    verb: 'block',
    says: 'The person cannot sign in. All sessions, links, open invitations and API keys from logins of programs end.',
    takes: [REASON],
    fits: (row) => row['blocked_at'] === null,
  },
  {
    verb: 'unblock',
    says: 'The person can sign in again. What has ended stays so.',
    takes: [REASON],
    fits: (row) => row['blocked_at'] !== null,
  },
];

/** Decisions about machines. */
export const MACHINE_VERBS: readonly Verb[] = [
  {
    verb: 'approve',
    says: 'Its GPUs come on offer if nothing else stands in the way. It also ends a suspension.',
    fits: (row) => row['status'] !== 'listed' || row['off_market_because'] !== null,
  },
  {
    verb: 'suspend',
    says: 'Nothing new starts on it. What runs goes on.',
    fits: (row) => row['status'] !== 'suspended',
  },
];

/** Decisions that only the page of a machine has. The list of machines does not have them. */
export const RARE_MACHINE_VERBS: readonly Verb[] = [
  {
    verb: 'unify',
    says: 'You confirm that only one host has its identity again.',
    fits: (row) => row['copied_since'] !== null,
  },
  {
    verb: 'trust',
    says: 'Replicas of models and training may run on it.',
    fits: (row) => row['trusted'] === false,
  },
  {
    verb: 'distrust',
    says: 'No new replicas of models and no training run on it. What runs goes on.',
    fits: (row) => row['trusted'] === true,
  },
];

/** Decisions about held credits. */
export const CREDIT_VERBS: readonly Verb[] = [
  {
    verb: 'release',
    says: 'The customer gets the credit now, or the supplier the payment.',
    takes: [NOTE],
    fits: (row) => row['state'] === 'held',
  },
  {
    verb: 'refuse',
    says: 'The customer gets no credit, or the supplier no payment.',
    takes: [NOTE],
    fits: (row) => row['state'] === 'held',
  },
];

/** What a dialog calls the row with this id: its name, if it has one, and the id. */
export function calledOf(row: Row, id: string): string {
  const name = textOf(row['name']);
  return name === '' || name === id ? id : `${name} (${id})`;
}

/** A value of a row as text for people. */
export function textOf(value: unknown): string {
  if (value === null || value === undefined) return '';
  if (Array.isArray(value)) return value.map(textOf).join(', ');
  return typeof value === 'string' ? value : JSON.stringify(value);
}
