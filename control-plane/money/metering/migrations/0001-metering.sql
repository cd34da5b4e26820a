-- Priced time. A segment has one rate from its start to its end; `posted_through_ms` is how far the ledger knows it.
create table meter_segments (
  id TEXT not null primary key,
  subject_id TEXT not null,
  org_id TEXT not null,
  supplier_id TEXT not null,
  gpu_type TEXT not null,
  gpu_count INTEGER not null,
  rate_ucents_per_hour INTEGER not null check (rate_ucents_per_hour >= 0),
  supplier_bps INTEGER not null check (supplier_bps between 0 and 10000),
  started_ms INTEGER not null,
  posted_through_ms INTEGER not null,
  ended_ms INTEGER
) STRICT;

create unique index meter_segments_open on meter_segments (subject_id) where ended_ms is null;
create index meter_segments_by_subject on meter_segments (subject_id, started_ms);
-- Holds all that finding an organisation's rentals in a window needs.
create index meter_segments_of_org on meter_segments (org_id, ended_ms, started_ms, subject_id);
