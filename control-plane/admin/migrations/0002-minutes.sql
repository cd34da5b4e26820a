-- The links of machines minute by minute. A minute without a row: no control plane was there to write it.
create table service_minutes (
  minute_ms INTEGER not null primary key,
  listed INTEGER not null,
  linked INTEGER not null
) STRICT;

-- The due rows of each kind that each process has worked off in a minute.
create table work_minutes (
  minute_ms INTEGER not null,
  kind TEXT not null,
  process TEXT not null,
  done INTEGER not null,
  primary key (minute_ms, kind, process)
) STRICT;
