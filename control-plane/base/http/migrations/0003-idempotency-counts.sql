-- How many Idempotency-Keys an API key has used, by hour: counting the rows themselves would cost every request.
create table idempotency_counts (
  api_key_id TEXT not null,
  hour_ms INTEGER not null,
  count INTEGER not null,
  primary key (api_key_id, hour_ms)
) STRICT;
