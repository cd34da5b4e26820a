// The screens of suppliers.
import type { Screen } from '../core/screen.ts';

const earnings = async () => import('./earnings.tsx');

export const SUPPLIER_SCREENS: readonly Screen[] = [
  {
    path: '/console/machines',
    title: 'Machines',
    group: 'Supply',
    scope: 'supply: read',
    load: async () => (await import('./machines.tsx')).Machines,
  },
  {
    path: '/console/machines/:id',
    title: 'Machine',
    load: async () => (await import('./machine.tsx')).Machine,
  },
  {
    path: '/console/earnings',
    title: 'Earnings',
    group: 'Supply',
    scope: 'supply: read',
    load: async () => (await earnings()).Earnings,
  },
];
