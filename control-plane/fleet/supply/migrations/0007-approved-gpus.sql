-- The GPUs that the operator has approved, as a JSON list. Null: nothing was approved, so nothing is offered.
alter table machines add column approved_gpus TEXT;
-- What the host has shown since that contradicts the approval, in words; null while there is nothing. A new approval clears it.
alter table machines add column inventory_fault TEXT;

-- One machine alone offers a GPU: the first that was approved with it, whether its host is online or not.
create table gpu_claims (
  gpu_uuid TEXT not null primary key,
  machine_id TEXT not null references machines (id),
  claimed_ms INTEGER not null
) STRICT;

create index gpu_claims_by_machine on gpu_claims (machine_id);
