-- A rented instance's life, from request to last bill. `due_ms` is when the engine looks at it next (null: nothing to do).
create table instances (
  id TEXT not null primary key,
  org_id TEXT not null,
  api_key_id TEXT not null,
  name TEXT,
  status TEXT not null,
  status_reason TEXT,
  request TEXT not null,
  launch TEXT not null,
  gpu_type TEXT not null,
  gpu_count INTEGER not null,
  tier TEXT not null,
  region TEXT not null,
  price_ucents_per_hour INTEGER not null,
  machine_id TEXT,
  supplier_id TEXT,
  workload_id TEXT,
  tried_machine_ids TEXT not null,
  disk_gb INTEGER,
  create_operation_id TEXT not null,
  delete_operation_id TEXT,
  created_ms INTEGER not null,
  entered_ms INTEGER not null,
  due_ms INTEGER,
  facts_version INTEGER not null default 0,
  ready_ms INTEGER,
  auto_terminate_ms INTEGER,
  terminated_ms INTEGER,
  last_reachable_ms INTEGER,
  unreachable_since_ms INTEGER
) STRICT;

create index instances_of_org on instances (org_id, created_ms, id);
create index instances_due on instances (due_ms) where due_ms is not null;
create index instances_open_launches on instances (org_id) where status in ('allocating', 'starting');
