-- How much of a machine's time was rented in the last weeks. Without it, all segments that a machine ever had would be read.
create index meter_segments_of_machine on meter_segments (machine_id, ended_ms);
