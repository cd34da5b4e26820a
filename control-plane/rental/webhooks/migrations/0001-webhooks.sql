-- Who wants to be told of what. `due_ms`: when a delivery is due at the earliest; `open_until_ms`: until then none is tried.
create table webhook_endpoints (
  id TEXT not null primary key,
  org_id TEXT not null,
  url TEXT not null,
  event_types TEXT not null,
  status TEXT not null,
  status_reason TEXT,
  secret_sealed TEXT not null,
  previous_secret_sealed TEXT,
  previous_until_ms INTEGER,
  failures INTEGER not null default 0,
  failing_since_ms INTEGER,
  open_until_ms INTEGER,
  due_ms INTEGER,
  created_ms INTEGER not null,
  deleted_ms INTEGER
) STRICT;

create index webhook_endpoints_of_org on webhook_endpoints (org_id, created_ms, id);
create index webhook_endpoints_due on webhook_endpoints (due_ms) where due_ms is not null;
create index webhook_endpoints_deleted on webhook_endpoints (deleted_ms) where deleted_ms is not null;

-- The outbox: one row for each event and endpoint, written with the event. `body` is what is sent, byte for byte, at every attempt.
create table webhook_deliveries (
  id TEXT not null primary key,
  endpoint_id TEXT not null,
  event_id TEXT not null,
  event_type TEXT not null,
  instance_id TEXT not null,
  instance_version INTEGER not null,
  body TEXT not null,
  status TEXT not null,
  attempts INTEGER not null,
  max_attempts INTEGER not null,
  next_trigger TEXT not null,
  next_attempt_ms INTEGER,
  deadline_ms INTEGER not null,
  created_ms INTEGER not null,
  completed_ms INTEGER
) STRICT;

create index webhook_deliveries_of_endpoint on webhook_deliveries (endpoint_id, created_ms, id);
create index webhook_deliveries_due on webhook_deliveries (endpoint_id, next_attempt_ms) where next_attempt_ms is not null;
create index webhook_deliveries_waiting on webhook_deliveries (endpoint_id, instance_id, instance_version) where status = 'pending';
create index webhook_deliveries_deadline on webhook_deliveries (deadline_ms) where next_attempt_ms is not null;
create index webhook_deliveries_completed on webhook_deliveries (completed_ms) where completed_ms is not null;

create table webhook_attempts (
  delivery_id TEXT not null,
  n INTEGER not null,
  trigger_kind TEXT not null,
  started_ms INTEGER not null,
  duration_ms INTEGER not null,
  response_status INTEGER,
  response_body_excerpt TEXT,
  truncated INTEGER not null,
  error_code TEXT,
  error_detail TEXT,
  remote_ip TEXT,
  primary key (delivery_id, n)
) STRICT;
