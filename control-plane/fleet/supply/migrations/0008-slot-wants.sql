-- GPUs that a reservation contract lacks at present. Those that come free become its slots before anybody else can take them.
create table slot_wants (
  reserved_by TEXT not null,
  gpu_type TEXT not null,
  region TEXT not null,
  gpus_missing INTEGER not null,
  -- The start of the contract. The contract that begins first is served first.
  starts_ms INTEGER not null,
  primary key (reserved_by, gpu_type, region),
  check (gpus_missing > 0)
) STRICT;

create index slot_wants_by_type on slot_wants (gpu_type, region, starts_ms);
