-- One row for each Idempotency-Key that a caller has used: a claim while its request runs (status is null), then the stored reply.
create table idempotency_keys (
  api_key_id TEXT not null,
  method TEXT not null,
  path TEXT not null,
  idempotency_key TEXT not null,
  fingerprint TEXT not null,
  claim_token TEXT not null,
  epoch INTEGER not null,
  lease_until_ms INTEGER not null,
  status INTEGER,
  headers TEXT,
  body TEXT,
  created_ms INTEGER not null,
  primary key (api_key_id, method, path, idempotency_key)
) STRICT;
create index idempotency_keys_created on idempotency_keys (created_ms);
