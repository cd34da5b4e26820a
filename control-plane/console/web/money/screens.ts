// The screens of money and of webhooks.
import type { Screen } from '../core/screen.ts';

export const MONEY_SCREENS: readonly Screen[] = [
  {
    path: '/console/usage',
    title: 'Usage and balance',
    group: 'Account',
    scope: 'billing: read',
    load: async () => (await import('./usage.tsx')).Usage,
  },
  {
    path: '/console/deposits',
    title: 'Deposits',
    group: 'Account',
    scope: 'deposits: read',
    load: async () => (await import('./deposits.tsx')).Deposits,
  },
  {
    path: '/console/deposits/:id',
    title: 'Deposit',
    scope: 'deposits: read',
    load: async () => (await import('./deposit.tsx')).Deposit,
  },
  {
    path: '/console/webhooks',
    title: 'Webhooks',
    group: 'Account',
    scope: 'webhooks: read',
    load: async () => (await import('./webhooks.tsx')).Webhooks,
  },
  {
    path: '/console/webhooks/:id',
    title: 'Webhook endpoint',
    scope: 'webhooks: read',
    load: async () => (await import('./webhook.tsx')).Webhook,
  },
];
