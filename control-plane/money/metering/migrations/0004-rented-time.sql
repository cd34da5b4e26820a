-- How much of a machine's time was rented in the last weeks. Without it, all segments that a machine ever had would be read.
create index meter_segments_of_machine on meter_segments (machine_id, ended_ms);
-- The tick reads all open segments by their ids. Without it, it would read all segments that ever were.
create index meter_segments_running on meter_segments (id) where ended_ms is null;
