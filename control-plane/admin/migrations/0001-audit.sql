-- What operators did: one row for each action, kept for ever. `actor` is what the command said of itself.
create table audit_entries (
  id TEXT not null primary key,
  at_ms INTEGER not null,
  actor TEXT not null,
  operation TEXT not null,
  subject_id TEXT,
  parameters TEXT not null,
  outcome TEXT not null,
  request_id TEXT not null
) STRICT;

create index audit_entries_by_time on audit_entries (at_ms, id);
