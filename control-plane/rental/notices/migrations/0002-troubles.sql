-- What is wrong with a machine, and when its supplier was told so. The row is deleted when the trouble is over, or the machine leaves the market.
create table notice_troubles (
  machine_id TEXT not null,
  trouble TEXT not null,
  -- The broken GPU; empty if the trouble is the machine's as a whole.
  gpu_uuid TEXT not null,
  org_id TEXT not null,
  since_ms INTEGER not null,
  -- Null: the trouble may end soon, so nobody was told yet.
  told_ms INTEGER,
  primary key (machine_id, trouble, gpu_uuid)
) STRICT;

insert into notice_troubles (machine_id, trouble, gpu_uuid, org_id, since_ms, told_ms)
select machine_id, 'offline', '', org_id, told_ms, told_ms from notice_machines;
drop table notice_machines;
