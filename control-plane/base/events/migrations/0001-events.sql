-- Everything that happened, append only.
create table events (
  id TEXT not null primary key,
  type TEXT not null,
  subject_id TEXT not null,
  org_id TEXT,
  data TEXT not null,
  created_ms INTEGER not null
) STRICT;

create index events_by_subject on events (subject_id, created_ms, id);
