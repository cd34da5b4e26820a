-- Since when each machine has its link; null while it has none. The first link is the begin of its life.
create table machine_links (
  machine_id TEXT not null primary key,
  first_ms INTEGER not null,
  since_ms INTEGER
) STRICT;

-- Each row is a UTC day: how long the machine had a link, as far as that link has ended, and how launches on it ended.
create table machine_days (
  machine_id TEXT not null,
  day_ms INTEGER not null,
  linked_ms INTEGER not null default 0,
  launches INTEGER not null default 0,
  failed_launches INTEGER not null default 0,
  primary key (machine_id, day_ms)
) STRICT;

create index machine_days_by_time on machine_days (day_ms);
create index machine_links_up on machine_links (machine_id) where since_ms is not null;
