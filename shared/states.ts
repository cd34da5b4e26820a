// State machines as data: which state may follow which. Each room has its own `move`, which allows only the moves in these tables.

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
 * Specification 3.1. `starting -> allocating` is the boot rescue: if a host fails, the next candidate is tried. An `unreachable` instance
 * runs, but probes cannot reach it. So it can end like a running one.
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
 * Specification 3.4. `draining` and `delisted` are the supplier's choice and stay until the supplier lists the machine again; a machine
 * that the operator has not approved waits for the approval. A draining machine keeps its rentals and gets no new ones.
 * `listed -> pending_verification`: its host is lost for good, so a new host must be approved.
 */
export const MACHINE_STATES: StateTable<MachineState> = {
  pending_verification: ['listed', 'draining', 'delisted', 'suspended'],
  listed: ['draining', 'delisted', 'suspended', 'pending_verification'],
  draining: ['delisted', 'listed', 'pending_verification'],
  delisted: ['listed', 'pending_verification'],
  suspended: ['listed', 'draining', 'delisted'],
};

export type PayoutState = 'due' | 'in_flight' | 'paid' | 'failed';

/**
 * A payout to a supplier. `due`: no money has moved in the ledger. `in_flight`: the money may have left outside of this service, so it is
 * not owed any more. `paid` and `failed` are final.
 */
export const PAYOUT_STATES: StateTable<PayoutState> = {
  due: ['in_flight', 'failed'],
  in_flight: ['paid', 'failed'],
  paid: [],
  failed: [],
};

export type WorkloadState = 'wanted' | 'removing' | 'gone';

/**
 * A container that should exist on a machine. `removing` is the tombstone: it stays until the host has reported that the container
 * stopped, so that its GPUs are never rented twice. `gone -> removing`: the host reports the container again.
 */
export const WORKLOAD_STATES: StateTable<WorkloadState> = {
  wanted: ['removing'],
  removing: ['gone'],
  gone: ['removing'],
};

export type ReservationState = 'pending' | 'active' | 'suspended' | 'expired' | 'cancelled';

/** Specification 3.4. `suspended -> pending`: the contract is resumed before its term has begun. */
export const RESERVATION_STATES: StateTable<ReservationState> = {
  pending: ['active', 'suspended', 'cancelled'],
  active: ['suspended', 'expired', 'cancelled'],
  suspended: ['pending', 'active', 'expired', 'cancelled'],
  expired: [],
  cancelled: [],
};

export type WebhookDeliveryState = 'pending' | 'succeeded' | 'retrying' | 'dead_lettered';

/** Specification 3.4 and 6.4. A dead-lettered delivery is tried again only if its owner requests it. */
export const WEBHOOK_DELIVERY_STATES: StateTable<WebhookDeliveryState> = {
  pending: ['succeeded', 'retrying', 'dead_lettered'],
  retrying: ['retrying', 'succeeded', 'dead_lettered'],
  dead_lettered: ['retrying'],
  succeeded: [],
};

export type WebhookEndpointState = 'healthy' | 'degraded' | 'disabled';

/** Only its owner can enable a disabled endpoint. */
export const WEBHOOK_ENDPOINT_STATES: StateTable<WebhookEndpointState> = {
  healthy: ['healthy', 'degraded', 'disabled'],
  degraded: ['healthy', 'degraded', 'disabled'],
  disabled: ['healthy', 'disabled'],
};

export type ReceiptState = 'open' | 'settled' | 'released';

/** A request to a model. Money is held while it is open; at its end a part is charged (`settled`) or nothing (`released`). */
export const RECEIPT_STATES: StateTable<ReceiptState> = {
  open: ['settled', 'released'],
  settled: [],
  released: [],
};

export type VideoState = 'queued' | 'in_progress' | 'completed' | 'failed' | 'cancelled' | 'expired';

/** Specification 3.3. A job that never started expires without a charge. A completed job expires together with its file. */
export const VIDEO_STATES: StateTable<VideoState> = {
  queued: ['in_progress', 'failed', 'cancelled', 'expired'],
  in_progress: ['completed', 'failed', 'cancelled'],
  completed: ['expired'],
  failed: [],
  cancelled: [],
  expired: [],
};

export type FineTuningState = 'validating' | 'queued' | 'running' | 'succeeded' | 'failed' | 'cancelled';

/** Specification 3.4. `running -> queued`: its machine was lost, and it goes on from its last checkpoint on another one. */
export const FINE_TUNING_STATES: StateTable<FineTuningState> = {
  validating: ['queued', 'failed', 'cancelled'],
  queued: ['running', 'failed', 'cancelled'],
  running: ['queued', 'succeeded', 'failed', 'cancelled'],
  succeeded: [],
  failed: [],
  cancelled: [],
};

export type UploadState = 'pending' | 'completed' | 'cancelled' | 'expired';

/** The states of a file that comes in parts. */
export const UPLOAD_STATES: StateTable<UploadState> = {
  pending: ['completed', 'cancelled', 'expired'],
  completed: [],
  cancelled: [],
  expired: [],
};

export type ReplicaState = 'starting' | 'ready' | 'draining' | 'ended';

/** A server of a model on a machine of the fleet. A draining replica gets no new request and ends when its last one is answered. */
export const REPLICA_STATES: StateTable<ReplicaState> = {
  starting: ['ready', 'ended'],
  ready: ['draining', 'ended'],
  draining: ['ended'],
  ended: [],
};

export type DepositState =
  | 'created'
  | 'detected'
  | 'confirming'
  | 'settled'
  | 'screening'
  | 'held_screening'
  | 'credited'
  | 'credited_underpaid'
  | 'credited_overpaid'
  | 'expired'
  | 'expired_received'
  | 'failed'
  | 'failed_screening';

/**
 * Specification 3.4. A reorganisation of the chain leads back to `created`. A credited deposit moves on if the operator credits what came
 * late.
 */
export const DEPOSIT_STATES: StateTable<DepositState> = {
  created: ['detected', 'expired', 'failed'],
  detected: ['confirming', 'created', 'expired', 'failed'],
  confirming: ['settled', 'created', 'expired', 'failed'],
  settled: ['screening'],
  screening: ['held_screening', 'failed_screening', 'credited', 'credited_underpaid', 'credited_overpaid'],
  held_screening: ['failed_screening', 'credited', 'credited_underpaid', 'credited_overpaid'],
  credited: ['credited', 'credited_overpaid'],
  credited_underpaid: ['credited_underpaid', 'credited', 'credited_overpaid'],
  credited_overpaid: ['credited_overpaid'],
  expired: ['expired_received'],
  expired_received: ['credited', 'credited_underpaid', 'credited_overpaid'],
  failed: [],
  failed_screening: [],
};

/** True if the table allows the move. */
export function mayMove<S extends string>(table: StateTable<S>, from: S, to: S): boolean {
  return table[from].includes(to);
}
