-- When an organisation last got a machine for a new job. Among organisations with as many jobs on machines, the one with the oldest turn is next.
create table finetuning_turns (
  org_id TEXT not null primary key,
  placed_ms INTEGER not null
) STRICT;
