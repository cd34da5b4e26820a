// State machines as data: which state may follow which. Each room has its own `move`; these tables are all it may do.

export type StateTable<S extends string> = { readonly [From in S]: readonly S[] };

export type InstanceState =
  | 'allocating'
  | 'starting'
  | 'running'
  | 'stopping'
  | 'stopped'
  | 'terminated'
  | 'unreachable'
  | 'error';

/**
 * Specification 3.1. `starting -> allocating` is the boot rescue (next candidate after a host failed);
 * `unreachable` is a degraded reading of a running rental, so it can end like one.
 */
export const INSTANCE_STATES: StateTable<InstanceState> = {
  allocating: ['starting', 'terminated', 'error'],
  starting: ['running', 'allocating', 'terminated', 'error'],
  running: ['stopping', 'stopped', 'terminated', 'unreachable', 'error'],
  unreachable: ['running', 'stopped', 'terminated', 'error'],
  stopping: ['terminated'],
  stopped: ['terminated'],
  error: ['terminated'],
  terminated: [],
};

export type OperationState = 'pending' | 'in_progress' | 'succeeded' | 'failed' | 'cancelled';

/** Specification 3.2. */
export const OPERATION_STATES: StateTable<OperationState> = {
  pending: ['in_progress', 'cancelled'],
  in_progress: ['succeeded', 'failed', 'cancelled'],
  succeeded: [],
  failed: [],
  cancelled: [],
};

export type MachineState = 'pending_verification' | 'listed' | 'draining' | 'delisted' | 'suspended';

/**
 * Specification 3.4. `draining` and `delisted` are the supplier's word and stay until it lists the machine again, which waits for the
 * operator where that has not approved it. Draining keeps the rentals that run and takes no new ones.
 */
export const MACHINE_STATES: StateTable<MachineState> = {
  pending_verification: ['listed', 'draining', 'delisted', 'suspended'],
  listed: ['draining', 'delisted', 'suspended'],
  draining: ['delisted', 'listed', 'pending_verification'],
  delisted: ['listed', 'pending_verification'],
  suspended: ['listed', 'draining', 'delisted'],
};

export type WorkloadState = 'wanted' | 'removing' | 'gone';

/**
 * A container that should exist on a machine. `removing` is the tombstone: it stays until the host itself has said
 * that the container stopped, so the GPUs are never rented twice.
 */
export const WORKLOAD_STATES: StateTable<WorkloadState> = {
  wanted: ['removing'],
  removing: ['gone'],
  gone: [],
};

export type ReservationState = 'pending' | 'active' | 'suspended' | 'expired' | 'cancelled';

/** Specification 3.4. `suspended -> pending` is a contract that is resumed before its term has begun. */
export const RESERVATION_STATES: StateTable<ReservationState> = {
  pending: ['active', 'suspended', 'cancelled'],
  active: ['suspended', 'expired', 'cancelled'],
  suspended: ['pending', 'active', 'expired', 'cancelled'],
  expired: [],
  cancelled: [],
};

export type WebhookDeliveryState = 'pending' | 'succeeded' | 'retrying' | 'dead_lettered';

/** Specification 3.4 and 6.4. A dead delivery is tried again only where its owner asks for it. */
export const WEBHOOK_DELIVERY_STATES: StateTable<WebhookDeliveryState> = {
  pending: ['succeeded', 'retrying', 'dead_lettered'],
  retrying: ['retrying', 'succeeded', 'dead_lettered'],
  dead_lettered: ['retrying'],
  succeeded: [],
};

export type WebhookEndpointState = 'healthy' | 'degraded' | 'disabled';

/** Only its owner brings an endpoint back from `disabled`. */
export const WEBHOOK_ENDPOINT_STATES: StateTable<WebhookEndpointState> = {
  healthy: ['healthy', 'degraded', 'disabled'],
  degraded: ['healthy', 'degraded', 'disabled'],
  disabled: ['healthy', 'disabled'],
};

export type ReceiptState = 'open' | 'settled' | 'released';

/** A request to a model: money is held while it is open; then a part of it is charged, or all is given back. */
export const RECEIPT_STATES: StateTable<ReceiptState> = {
  open: ['settled', 'released'],
  settled: [],
  released: [],
};

export type VideoState = 'queued' | 'in_progress' | 'completed' | 'failed' | 'cancelled' | 'expired';

/** Specification 3.3. A job that never started expires unbilled; of one that is completed it is the file that expires. */
export const VIDEO_STATES: StateTable<VideoState> = {
  queued: ['in_progress', 'failed', 'cancelled', 'expired'],
  in_progress: ['completed', 'failed', 'cancelled'],
  completed: ['expired'],
  failed: [],
  cancelled: [],
  expired: [],
};

/** True where the table allows the move. */
export function mayMove<S extends string>(table: StateTable<S>, from: S, to: S): boolean {
  return table[from].includes(to);
}
