-- Durable intents that a caller can follow.
create table operations (
  id TEXT not null primary key,
  kind TEXT not null,
  state TEXT not null,
  org_id TEXT not null,
  api_key_id TEXT not null,
  resource_id TEXT,
  error_code TEXT,
  error_detail TEXT,
  progress TEXT,
  created_ms INTEGER not null,
  updated_ms INTEGER not null,
  completed_ms INTEGER
) STRICT;
