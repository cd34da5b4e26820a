-- What happened to an organisation: its activity, and what a stream that was interrupted has missed.
create index events_by_org on events (org_id, created_ms, id) where org_id is not null;
