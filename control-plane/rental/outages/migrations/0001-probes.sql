-- The running account of looking at a rental's SSH endpoint from outside.
create table probes (
  instance_id TEXT not null primary key,
  machine_id TEXT not null,
  next_ms INTEGER not null,
  first_failure_ms INTEGER,
  failures INTEGER not null default 0,
  successes INTEGER not null default 0,
  last_leg TEXT,
  last_detail TEXT
) STRICT;

create index probes_due on probes (next_ms);
