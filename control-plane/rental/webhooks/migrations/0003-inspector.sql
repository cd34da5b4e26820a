-- What an attempt sent, without what a reader could sign with. Null for attempts from before.
alter table webhook_attempts add column request_url TEXT;
alter table webhook_attempts add column request_headers TEXT;

-- A test that the owner asked for. It is tried once, and its failure is no dead letter.
alter table webhook_deliveries add column is_test INTEGER not null default 0;
create index webhook_deliveries_tests on webhook_deliveries (endpoint_id, created_ms) where is_test = 1;
