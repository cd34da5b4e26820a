// The screens of the account: sign-in by links, approvals, security, members and keys.
import type { Screen } from '../core/screen.ts';

const links = async () => import('./links.tsx');

export const ACCOUNT_SCREENS: readonly Screen[] = [
  { path: '/welcome', title: 'Set your password', isOpen: true, load: async () => (await links()).Welcome },
  { path: '/invitation', title: 'Invitation', isOpen: true, load: async () => (await links()).Invitation },
  { path: '/oidc', title: 'Signing in', isOpen: true, load: async () => (await links()).Oidc },
  { path: '/device', title: 'Sign in a program', load: async () => (await import('./device.tsx')).Device },
  {
    path: '/console/security',
    title: 'Sign-in and security',
    load: async () => (await import('./security.tsx')).Security,
  },
  {
    path: '/console/api-keys',
    title: 'API keys',
    group: 'Account',
    scope: 'api_keys: read',
    load: async () => (await import('./api-keys.tsx')).ApiKeys,
  },
  {
    path: '/console/members',
    title: 'Members',
    group: 'Account',
    scope: 'members: read',
    load: async () => (await import('./members.tsx')).Members,
  },
  {
    path: '/console/activity',
    title: 'Activity',
    group: 'Account',
    scope: 'events: read',
    load: async () => (await import('./activity.tsx')).Activity,
  },
];
