-- One row for each tier of a model that the platform runs servers for. Its id is the name that calls use: `acme/tiny` or `acme/tiny:economy`.
create table model_pools (
  id TEXT not null primary key,
  -- The operator's word in place of the file of models; null: the file decides.
  min_replicas INTEGER,
  max_replicas INTEGER,
  -- When all of its replicas were last needed.
  busy_ms INTEGER not null,
  -- Starts that failed in a row, when the next start may begin, and why the last one failed.
  failures INTEGER not null default 0,
  retry_ms INTEGER not null default 0,
  last_failure TEXT,
  -- When two of its replicas were last asked the same.
  compared_ms INTEGER not null,
  due_ms INTEGER,
  created_ms INTEGER not null
) STRICT;

create index model_pools_due on model_pools (due_ms) where due_ms is not null;

create table model_replicas (
  id TEXT not null primary key,
  pool_id TEXT not null references model_pools (id),
  state TEXT not null,
  -- The deployment in the file of models when the replica was started.
  deployment TEXT not null,
  instance_id TEXT unique,
  machine_id TEXT,
  workload_id TEXT,
  -- Health checks that failed in a row, and comparisons in a row in which it alone answered otherwise.
  health_failures INTEGER not null default 0,
  disagreements INTEGER not null default 0,
  -- Why it is not ready yet, as seen last.
  unready_because TEXT,
  ended_because TEXT,
  has_failed INTEGER not null default 0,
  created_ms INTEGER not null,
  entered_ms INTEGER not null,
  ready_ms INTEGER,
  ended_ms INTEGER,
  due_ms INTEGER
) STRICT;

create index model_replicas_due on model_replicas (due_ms) where due_ms is not null;
-- Few rows, whatever was there before: the plan and the metrics read nothing else.
create index model_replicas_live on model_replicas (pool_id, state) where state <> 'ended';
create index model_replicas_of_pool on model_replicas (pool_id, created_ms, id);
create index model_replicas_ended on model_replicas (ended_ms, id) where state = 'ended';

-- What each control plane knows of the requests that it serves. A row that was not renewed belongs to a process that has died.
create table model_loads (
  pool_id TEXT not null references model_pools (id),
  process_id TEXT not null,
  waiting INTEGER not null,
  -- Requests in progress at each replica, as a JSON object.
  open TEXT not null,
  last_request_ms INTEGER not null,
  -- The process has seen the states of the replicas as of this time.
  seen_ms INTEGER not null,
  primary key (pool_id, process_id)
) STRICT;
