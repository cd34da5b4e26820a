// The screens of operators that are about money.
import type { Screen } from '../core/screen.ts';

const listed = { group: 'Operate', scope: 'operator' } as const;

export const MONEY_SCREENS: readonly Screen[] = [
  {
    ...listed,
    path: '/console/operate/deposit-queue',
    title: 'Deposit queue',
    load: async () => (await import('./deposit-queue.tsx')).DepositQueue,
  },
  {
    path: '/console/operate/deposit-queue/:id',
    title: 'Deposit',
    scope: 'operator',
    load: async () => (await import('./queued-deposit.tsx')).QueuedDeposit,
  },
];
