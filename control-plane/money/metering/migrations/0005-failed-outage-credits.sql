-- Outages of the control plane that could not be credited to a segment yet. Each tick tries them again.
create table failed_outage_credits (
  segment_id TEXT NOT NULL,
  from_ms INTEGER NOT NULL,
  until_ms INTEGER NOT NULL,
  evidence TEXT NOT NULL,
  primary key (segment_id, from_ms)
);
