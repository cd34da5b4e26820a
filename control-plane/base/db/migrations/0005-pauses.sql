-- What operators have paused, for all control planes at once. A row is there as long as the pause lasts.
create table pauses (
  what TEXT not null primary key,
  since_ms INTEGER not null,
  actor TEXT not null,
  reason TEXT not null
) STRICT;
