// The rows that transactions lock, and the order in which they lock them.
//
// On PostgreSQL, bodies run side by side. A body that reads a row, decides and writes would decide on old facts if another body wrote in
// between. So each body that does this has a root: the row of the thing that it is about. Its first statement locks the root.
//
//   body A: lock org o-1; count its keys: 99; insert a key; commit
//   body B: lock org o-1 ......................... waits ......................; count its keys: 100; refuse
//
// Rules:
// - The lock comes before the reads on which the body decides. Ids that never change may be read before the transaction.
// - A body that needs several roots locks them in the order of ROOTS. Then no two bodies wait for each other. `openLockOrder` (bodies.ts) refuses
//   another order on both engines, so that a test on SQLite finds it. Several ids of one root are locked in one call, which sorts them.
// - A body may find further ids of its last root later, e.g. the machines of a contract. Two such bodies can wait for each other. The server
//   then rolls one of them back, and it runs again.
// - A body that can do its work with any of several rows locks the first that is free (`firstUnlocked`). It then waits for nobody.
// - A body of one statement needs no lock: a statement with its own conditions is atomic.
// - A body that decides by the balance of an account locks the account (`Ledger.coverHold`). Other changes of a balance need no lock: the
//   condition is in their statement, and the ledger changes accounts in the order of their ids.
//
// Locks are `for no key update`, so rows that refer to a root can be inserted meanwhile. SQLite runs bodies one after another and locks
// nothing.
/** Each root with its table, in the order of locking. The key of every table is `id`. */
export const ROOTS = {
  org: 'orgs',
  user: 'users',
  supplier: 'suppliers',
  reservation: 'reservations',
  instance: 'instances',
  account: 'ledger_accounts',
  machine: 'machines',
  video_server: 'video_servers',
  video: 'video_jobs',
  webhook_endpoint: 'webhook_endpoints',
  model_pool: 'model_pools',
  deposit_family: 'deposit_families',
  deposit_chain: 'deposit_chains',
  deposit: 'deposits',
} as const;

export type Root = keyof typeof ROOTS;
