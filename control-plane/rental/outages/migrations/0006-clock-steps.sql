-- The wall clock was set forward: time that never passed, and for which nobody is charged.
create table clock_steps (
  from_ms INTEGER not null primary key,
  -- The last moment at which a rental was cut because of it.
  until_ms INTEGER not null
) STRICT;
