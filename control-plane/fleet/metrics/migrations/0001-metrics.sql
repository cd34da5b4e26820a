-- What a machine and the workloads on it used in one minute, as a JSON document. One row for all, because there are many minutes.
create table metric_minutes (
  machine_id TEXT not null,
  minute_ms INTEGER not null,
  -- How many samples it sums up.
  samples INTEGER not null,
  figures TEXT not null,
  primary key (machine_id, minute_ms)
) STRICT;

create index metric_minutes_by_age on metric_minutes (minute_ms);

-- The newest sample of each machine, and until when somebody looks at it.
create table metric_machines (
  machine_id TEXT not null primary key,
  sampled_ms INTEGER not null default 0,
  figures TEXT,
  watched_until_ms INTEGER not null default 0
) STRICT;

create index metric_machines_watched on metric_machines (watched_until_ms);
create index metric_machines_by_age on metric_machines (sampled_ms);
