-- The machine on which the time was used; empty for segments from before this column.
alter table meter_segments add column machine_id TEXT not null default '';

create index meter_segments_by_machine on meter_segments (machine_id, started_ms);
