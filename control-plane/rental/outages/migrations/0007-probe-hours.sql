-- How many probes of a machine's rentals were good, and how many failed, by the hour in which they ended.
create table probe_hours (
  machine_id TEXT not null,
  hour_ms INTEGER not null,
  good INTEGER not null,
  failed INTEGER not null,
  primary key (machine_id, hour_ms)
) STRICT;

create index probe_hours_by_age on probe_hours (hour_ms);
