-- The last lines of instances that ended with their programs, as sealed JSON. Their containers, and so their logs, are removed soon after the end.
create table kept_logs (
  instance_id TEXT not null primary key,
  org_id TEXT not null,
  sealed_lines TEXT not null,
  kept_ms INTEGER not null
) STRICT;

create index kept_logs_of_org on kept_logs (org_id, kept_ms);
create index kept_logs_by_time on kept_logs (kept_ms);
