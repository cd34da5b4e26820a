// The only table of scopes: what an API key may do, how each scope is written, and its description for people. A scope exists only if a
// route needs it: a scope for a future feature would be granted unnoticed.

/** Scope -> meaning. The keys have no space after the colon; `scopeText` gives the public spelling. */
export const SCOPES = {
  'api_keys:read': 'List the API keys of the organisation',
  'api_keys:write': 'Make and revoke API keys; a key can give only what it has itself',
  'members:read': 'List the members of the organisation and its invitations',
  'members:write': 'Invite, change and remove members',
  'ssh_keys:read': 'List SSH public keys',
  'ssh_keys:write': 'Register and delete SSH public keys',
  'instances:read': 'Read instances, reservations and operations',
  'instances:write': 'Create, rename and terminate instances',
  'billing:read': 'Read usage, cost and balance',
  'events:read': 'Read and follow what happens to the resources that the other scopes let the key read',
  'metrics:read':
    'Read the figures of the instances and machines that the other scopes let the key read, for Prometheus',
  'webhooks:read': 'List webhook endpoints and their deliveries',
  'webhooks:write': 'Create, delete and retry webhook endpoints',
  'supply:read': 'Read your machines, earnings and payouts',
  'supply:write': 'Register and delist your machines, and name the payout destination',
  'registry_credentials:read': 'List stored registry credentials',
  'registry_credentials:write': 'Store and delete registry credentials',
  'files:read': 'Read uploaded files',
  'files:write': 'Upload and delete files',
  'finetuning:read': 'Read fine-tuning jobs, their events and results',
  'finetuning:write': 'Start and cancel fine-tuning jobs',
  'deposits:read': 'List stablecoin deposits',
  'deposits:write': 'Start stablecoin deposits',
  'serverless:read': 'List models',
  'serverless:write': 'Call models',
} as const satisfies Record<string, string>;

export type Scope = keyof typeof SCOPES;

/** The three inference scopes of specification 5, without any platform scope. */
const FULL_ACCESS: readonly Scope[] = ['serverless:read', 'serverless:write', 'billing:read'];

/** The spelling of the specification: platform scopes with a space after the colon, inference scopes without. */
export function scopeText(scope: Scope): string {
  return scope.startsWith('serverless:') ? scope : scope.replace(':', ': ');
}

/** All spellings that can be used to create a key. */
export function scopeTexts(): string[] {
  return [...Object.keys(SCOPES).filter(isScope).map(scopeText), 'full_access'];
}

/** The scopes of a spelling (`instances: read`, `instances:read`, `full_access`); undefined for an unknown one. */
export function readScope(text: string): readonly Scope[] | undefined {
  const spelling = text.trim().replace(/:\s+/, ':');
  if (spelling === 'full_access') return FULL_ACCESS;
  return isScope(spelling) ? [spelling] : undefined;
}

function isScope(text: string): text is Scope {
  return Object.hasOwn(SCOPES, text);
}
