-- Who may do something alone; the epoch grows at every change of holder.
create table leases (
  name TEXT not null primary key,
  holder TEXT not null,
  epoch INTEGER not null,
  until_ms INTEGER not null
) STRICT;
