-- How much of a machine's time was rented in the last weeks. Without it, all segments that a machine ever had would be read.
create index meter_segments_of_machine on meter_segments (machine_id, ended_ms);
-- The tick reads all open segments by their ids. Without it, it would read all segments that ever were.
create index meter_segments_running on meter_segments (id) where ended_ms is null;
-- The last step of the wall clock that was cut out of the segment: when it began. So a step that is tried again cuts no segment twice.
alter table meter_segments add column skipped_step_ms INTEGER;
