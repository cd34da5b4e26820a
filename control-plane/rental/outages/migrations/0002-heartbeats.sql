-- When the control plane was last alive: one row. A gap is an outage of our own.
create table heartbeats (
  id INTEGER not null primary key check (id = 1),
  beat_ms INTEGER not null
) STRICT;
